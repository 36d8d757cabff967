"""`greenfast import` of Kernel Tuner scripts, restricted spaces, and outputs that are read."""

from __future__ import annotations

import runpy

import pytest

from greenfast.app.cli import main
from greenfast.app.cli.import_kernel import import_
from greenfast.app.cli.import_point import first_point
from greenfast.app.cli.import_script import read_script, script_entry, script_kernel
from greenfast.app.cli.import_script_arguments import script_arguments
from greenfast.app.cli.import_source import CudaText, read_entry
from greenfast.app.cli.import_tune_file import read_tune_file
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.expressions import expression
from greenfast.search.kernels.kernel_file import load_kernel

ADD = """
__global__ void add(float *c, float *a, int n) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) c[i] = a[i] + rows * 0.0f;
}
"""
ENTRY = read_entry(CudaText(ADD, ()), None, "add.cu")
CALL = 'tune_kernel("add", SOURCE, size, args, tune_params, restrictions=restrict)\n'
SCRIPT = (
    f"size = 1000\nkernel_string = '''{ADD}'''\n"
    'tune_params = dict()\ntune_params["block_size_x"] = [32, 64, 128]\n'
    'tune_params["rows"] = [1, 2, 4]\nrestrict = ["block_size_x * rows == 256"]\n'
    + CALL.replace("SOURCE", "kernel_string")
)
ARGUMENTS = ("--arg", "c:float32[n]:output", "--arg", "a:float16[n]", "--arg", "n:uint32=1000")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GREENFAST_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("GREENFAST_TEMPLATE_PATH", raising=False)
    return tmp_path


def test_a_script_is_imported_with_the_kernel_that_it_tunes(folder):
    """The first values do not fulfil the restriction: the preset is a point that does."""
    (folder / "add.py").write_text(SCRIPT.replace("float *a", "half *a"))
    assert main.run(("import", "add.py", *ARGUMENTS)) == 0
    kernel = load_kernel(folder / "kernels" / "add")
    (preset,) = kernel.template("plain").presets
    assert dict(preset.parameters) == {"block_size_x": 64, "rows": 4}
    assert {each.name: each.dtype for each in kernel.arguments} == {
        "c": "float32",
        "a": "fp16",
        "n": "int32",
    }


@pytest.mark.parametrize(
    "call",
    [
        CALL.replace("SOURCE", '"add.cu"'),
        'kernel_tuner.tune_kernel(kernel_name="add", kernel_source="add.cu")',
        'NAME = "add.cu"\ntune_kernel("add", NAME, 5)',
        'with open("add.cu", "r") as f:\n    text = f.read()\ntune_kernel("add", text, 5)',
        'text = Path("add.cu").read_text()\ntune_kernel("add", text, 5)',
    ],
)
def test_a_script_names_a_file_beside_it(folder, call):
    (folder / "add.cu").write_text(ADD)
    (folder / "s.py").write_text(call)
    kernel = script_kernel(read_script(folder / "s.py"))
    assert kernel.entry == "add" and kernel.source.text.strip() == ADD.strip()


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            (
                "a = np.random.randn(size).astype(np.float32)\nc = np.zeros_like(a)\n"
                "args = [c, a, np.int32(size)]"
            ),
            ["c:float32[n]:output", "a:float32[n]:input", "n:int32=1000"],
        ),
        (
            "args = [np.ones((10, size), dtype=np.float32), a, np.int32(5)]",
            ["c:float32[10,1000]:inout", "n:int32=5"],
        ),
        (
            (
                "shape = (2**3, int(1e2))\nx = numpy.random.rand(*shape)\n"
                "args = [numpy.empty(x.size, 'float32'), x.reshape(-1), n]"
            ),
            ["c:float32[800]:output", "a:float64[800]:input"],
        ),
        (
            "args = [np.empty(size * size, 'float32'), np.empty((2, 7)), np.int32(size)]",
            ["c:float32[n*n]:output", "a:float64[2,7]:input", "n:int32=1000"],
        ),
        (
            "args = [np.zeros((size + 2) * (size + 2)), np.arange(3 * size), np.int32(size)]",
            ["c:float64[(n+2)*(n+2)]:output", "a:int64[3*n]=iota:input", "n:int32=1000"],
        ),
        (
            (
                "p = np.asarray([0] + sorted(np.random.rand(size - 1) * 64) + [64])\n"
                "i = (np.random.rand(64) * size).astype(np.int32)\n"
                "args = [i, p.astype(np.int32), np.int32(size)]"
            ),
            ["c:int32[64]=range(0,n):inout", "a:int32[n+1]=offsets(0,64):input", "n:int32=1000"],
        ),
        (
            "args = [np.empty((2, size), 'float32'), np.empty(2), np.float32(2)]",
            ["c:float32[2,1000]:output", "a:float64[2]:input", "n:float32=2.0"],
        ),
        (
            (
                "a = np.random.randint(0, size, (2, 3)).astype(np.int32)\n"
                "x = np.random.uniform(0.5, 2, size=5)\nargs = [a, x, np.int32(size)]"
            ),
            ["c:int32[2,3]=range(0,n):inout", "a:float64[5]=range(0.5,2):input", "n:int32=1000"],
        ),
        (
            "x = np.random.randint(9, size=4)\nargs = [x * 2, x.reshape(2, 2), np.int32(size)]",
            ["c:int64[4]=range(0,18):inout", "a:int64[2,2]=range(0,9):input", "n:int32=1000"],
        ),
        ("args = [make(), (2**62)**62**62, np.zeros(c)]", []),
        ("c = c\nargs = [c, c.shape, np.int32(c)]", []),
    ],
)
def test_a_script_tells_the_arguments_that_numpy_makes_of_constants(folder, lines, told):
    (folder / "s.py").write_text(f"size = 1000\n{lines}\n{CALL}")
    assert list(script_arguments(read_script(folder / "s.py"), ENTRY, ADD).values()) == told


@pytest.mark.parametrize(("right", "role"), [("2 * c[i]", "inout"), ("2 * n", "output")])
def test_zeros_that_the_kernel_reads_and_writes_are_both(folder, right, role):
    args = "args = [np.zeros(size), np.ones(size), np.int32(size)]"
    (folder / "s.py").write_text(f"size = 1000\n{args}\n{CALL}")
    text = ADD.replace("a[i] + rows", f"a[i] + {right} + rows")
    told = script_arguments(read_script(folder / "s.py"), ENTRY, text)
    assert told["c"] == f"c:float64[n]:{role}"


def test_another_number_of_arguments_is_told_unless_all_are_given(folder):
    (folder / "s.py").write_text(f"size = 1000\nargs = [c, a]\n{CALL}")
    script, names = read_script(folder / "s.py"), [each.name for each in ENTRY.parameters]
    with pytest.raises(UsageError, match="the script passes 2 arguments"):
        script_arguments(script, ENTRY, ADD)
    assert script_arguments(script, ENTRY, ADD, None, names) == {}


def test_a_script_is_read_up_to_its_first_tuning(folder):
    """What is assigned for another kernel's tuning, before or behind it, belongs to that one."""
    (folder / "add.cu").write_text(ADD)
    (folder / "s.py").write_text(
        "def other():\n    tune_params = {'tile': [1]}\n    return tune_kernel('b', 'b.cu', 1)\n"
        "def add(sizes=None):\n    widths = (32, 64)\n    width = np.int32(9)\n"
        "    tune_params = {'block_size_x': [widths[0], widths[1]], 'rows': [width * 2]}\n"
        "    problem_size = width\n"
        "    tune_kernel('add', 'add.cu', problem_size, [], tune_params)\n"
        "    tune_params['rows'] = tune_params['rows'][:]\n"
        "    tune_params = {'tile': [2]}\n"
    )
    tuning = read_tune_file(read_script(folder / "s.py"))
    assert tuning.parameters == {"tile": (1,)}
    text = (folder / "s.py").read_text()
    (folder / "s.py").write_text(text[text.index("def add") :])
    tuning = read_tune_file(read_script(folder / "s.py"))
    assert tuning.parameters == {"block_size_x": (32, 64), "rows": (18,)}
    assert [(size.name, size.value) for size in tuning.problem_size] == [("width", 9)]


def test_a_script_of_a_host_program_and_of_constant_memory_says_what_to_change(folder, capsys):
    (folder / "add.cu").write_text(
        "__constant__ float2 filter[4];\n" + ADD.replace("a[i]", "filter[i].x")
    )
    (folder / "s.py").write_text("tune_kernel('add', ['host.cu', 'add.cu'], 5)\ntune_params = {}")
    assert main.run(("import", "s.py")) == 2
    assert "greenfast import add.cu --tune-file s.py" in capsys.readouterr().err
    (folder / "s.py").write_text("tune_params = {'rows': [1]}\ntune_kernel('add', 'add.cu', 5)")
    assert main.run(("import", "s.py")) == 2
    error = capsys.readouterr().err
    assert "add.cu:1: filter is constant memory" in error and "--arg filter:float32[25]" in error


def test_what_a_script_compares_is_an_output(folder):
    call = CALL.replace("restrictions=restrict", "answer=[None, x, None]")
    (folder / "s.py").write_text(f"x = np.ones(8)\nargs = [x, x, n]\n{call}")
    told = script_arguments(read_script(folder / "s.py"), ENTRY, ADD)
    assert list(told.values()) == ["c:float64[8]:input", "a:float64[8]:output"]
    (folder / "s.py").write_text(call)
    assert script_entry(read_script(folder / "s.py"), ADD) == "add"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1\n", "has no call of tune_kernel"),
        ("\ntune_kernel('add', get_source())\n", "s.py:2: the kernel's source is neither"),
        ("def (\n", "not valid Python"),
    ],
)
def test_a_script_without_a_readable_kernel_is_refused(folder, text, sentence):
    (folder / "s.py").write_text(text)
    with pytest.raises(UsageError, match=sentence) as error:
        script_kernel(read_script(folder / "s.py"))
    assert error.value.code == "bad_tune_file"


def test_a_size_that_only_running_the_script_tells_is_needed_without_a_grid_alone(folder):
    size = "lambda p: (blocks(p['tile']),)"
    call = f"tune_kernel('a', 'a.cu', {size})\n"
    (folder / "s.py").write_text("tune_params = {'tile': [1, 2]}\n" + call)
    with pytest.raises(UsageError, match=r"s\.py:2: the problem's size") as error:
        read_tune_file(read_script(folder / "s.py"))
    assert "--grid" in error.value.mend
    assert read_tune_file(read_script(folder / "s.py"), has_grid=True).parameters == {
        "tile": (1, 2)
    }


def _restricted(*texts):
    return [expression(text, "restriction") for text in texts]


def test_the_first_point_is_found_in_a_space_too_large_to_walk():
    values = {f"p{number}": list(range(10)) for number in range(30)}
    point = first_point(values, _restricted("p0 == 9", "p1 + p29 == 18", "p3 > p2"))
    assert point is not None
    assert (point["p0"], point["p1"], point["p29"], point["p3"]) == (9, 9, 9, 1)
    assert first_point({"a": [1, 2], "b": [3]}, _restricted("a > b")) is None
    assert first_point({"a": [1, 2]}, []) == {"a": 1}


def test_restrictions_that_exclude_everything_are_refused(folder):
    (folder / "add.py").write_text(SCRIPT.replace("== 256", "== 7").replace("float *a", "half *a"))
    with pytest.raises(UsageError, match="no combination") as error:
        import_(folder / "add.py", argument=list(ARGUMENTS[1::2]))
    assert error.value.code == "bad_restriction"


@pytest.mark.parametrize(
    ("body", "sizes", "part", "mend"),
    [
        ("if (i < 4) c[i] = 1.0f;", "6", "leaves 2 of 6 elements of c unwritten", "inout"),
        ("atomicAdd(c, 1.0f);", "1", "computes c from its earlier content", "inout"),
        (
            "if (i < 7) c[i] = i < 6 ? 1.0f : c[7];",
            "7",
            "reads 4 bytes of 'c' at +28",
            "correct the",
        ),
        ("c[i] = missing;", "6", "'missing' was not declared", ""),
    ],
)
def test_an_output_that_the_plain_kernel_does_not_write_is_named(
    folder, artifacts, body, sizes, part, mend
):
    (folder / "data").mkdir()
    (folder / "data" / "cache").symlink_to(artifacts)
    (folder / "k.cu").write_text(
        "__global__ void k(float *c, int n) { int i = threadIdx.x; " + body + " }\n"
    )
    import_(
        folder / "k.cu",
        tune=["block_size_x=32,64"],
        argument=[f"c:float32[{sizes}]:output", "n:int32=8"],
        grid=["1"],
    )
    module = runpy.run_path(str(folder / "kernels" / "k" / "reference.py"))
    dims = {f"size_{sizes}": int(sizes), "n": 8}
    with pytest.raises(SpecError) as error:
        module["reference"](dims, {}, {})
    assert part in str(error.value) and mend in error.value.mend
