"""`greenfast import`: a plain CUDA file becomes a kernel, or a sentence says what does not fit."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from greenfast.app.cli import main
from greenfast.app.cli.import_script import read_script
from greenfast.app.cli.import_tune_file import read_tune_file
from greenfast.search.devices.facts import device
from greenfast.search.errors import UsageError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.kernel_file import load_kernel
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import Space, resolve

SAXPY = """#ifndef block_size_x
#define block_size_x 128
#endif
#define per_thread 2
// __global__ void commented(int x) {
__global__ void saxpy(const float* __restrict__ x, float *y, int n, float a) {
    for (int s = 0; s < per_thread; ++s) {
        int i = (blockIdx.x * per_thread + s) * block_size_x + threadIdx.x;
        if (i < n) y[i] = a * x[i] + 1.0f;  // {{ not Jinja }} {% nor this %}
    }
}
"""
ARGUMENTS = (
    "--arg", "x:float32[n]:input", "--arg", "y:float32[n]:output", "--arg", "n:int32=1000",
    "--arg", "a:float32=2.5", "--grid", "ceil_div(n, block_size_x * per_thread)",
)  # fmt: skip
TUNE = ("--tune", "block_size_x=32,64,128", "--tune", "per_thread=1,2,4")


@pytest.fixture
def run(tmp_path, monkeypatch, artifacts, capsys):
    """`run("import", ...)` in an empty folder with saxpy.cu: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GREENFAST_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("GREENFAST_TEMPLATE_PATH", raising=False)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cache").symlink_to(artifacts)
    (tmp_path / "saxpy.cu").write_text(SAXPY)

    def command(*arguments: str):
        code = main.run(arguments)
        out = capsys.readouterr()
        return code, out.out, out.err

    return command


def test_a_plain_file_becomes_a_kernel_with_its_defines_as_parameters(run):
    text = SAXPY.replace("float a)", "float a = 1.0f)")  # a launch passes it all the same
    Path("saxpy.cu").write_text(f"#include <cuda_fp16.h>\n{text}")
    code, out, _ = run("import", "saxpy.cu", *TUNE, *ARGUMENTS,
                       "--restrict", "block_size_x*per_thread<=256", "--json")  # fmt: skip
    assert code == 0 and len(json.loads(out)["files"]) == 4
    kernel = load_kernel(Path("kernels/saxpy"))
    template = kernel.templates[0]
    assert dict(template.preset("defaults").parameters) == {"block_size_x": 128, "per_thread": 2}
    assert len(Space(template, (), device("h200")).points) == 8
    candidate = preset_candidate(template, "defaults", ())
    source = render(kernel, template, resolve(
        template, candidate.parameters, (), device("h200")
    ), Catalogue.from_environment().include_dirs)  # fmt: skip
    assert isinstance(source, RenderedSource)
    assert "<cuda_fp16.h>\n#define block_size_x 128\n#define per_thread 2\n" in source.text
    assert "float a)" in source.text and [name for name, _ in kernel.constants] == ["a"]
    assert 'extern "C" __global__ void saxpy(' in source.text
    assert "{{ not Jinja }} {% nor this %}" in source.text
    assert source.text.count("#define per_thread") == 2  # the second is in a comment
    assert "is the unmodified kernel" in kernel.reference_text


def test_sizes_are_expressions_over_scalars(run):
    """Each becomes a dim whose default computes it, also for the copy of a tensor that is read."""
    text = SAXPY.replace("y[i] = a * x[i]", "y[2 * i] += a * x[i]")
    Path("saxpy.cu").write_text(f'#include "cuda_fp16.h"\n__constant__ int unused[4];\n{text}')
    sizes = (
        "--arg",
        "x:float32[n + 4/2]",
        "--arg",
        "y:float32[max(4 * (n) // 2, ceil_div(n, 64)), 1]=range(0, n // 2):inout",
        *ARGUMENTS[4:],
    )
    assert run("import", "saxpy.cu", *TUNE, *sizes)[0] == 0
    kernel = load_kernel(Path("kernels/saxpy"))
    workload = dict(kernel.workloads[0].dims)
    assert (workload["size_of_x_0"], workload["size_of_y_0"]) == (1002, 2000)
    assert [check.name for check in kernel.checks[:3]] == ["imported", "one_less", "one_more"]
    outputs = outputs_of(kernel, {**workload, "n": 3, "size_of_y_0": 6})
    assert outputs["y"]["value"].shape == (6, 1)
    reference = runpy.run_path("kernels/saxpy/reference.py")
    y = reference["make_inputs"](workload, {}, "normal", 1, {})["y_before"]
    assert y.dtype == "float32" and 0 <= y.min() < 5 and 490 < y.max() < 500


def test_an_entry_that_a_macro_declares_is_read(run):
    """The macro's own line is no function, whatever function follows it."""
    head = "\n__global__ void"
    macro = f'\n#define KERNEL extern "C" {head.strip()} \\\n  __launch_bounds__(block_size_x)'
    macro += "  // entries\n"
    helper = "template <typename T> __device__ T same(T value) { return value; }\n"
    text = SAXPY.replace(head, f"{macro}{helper}KERNEL").replace("a * x[i]", "a * same(x[i])")
    Path("saxpy.cu").write_text(text)
    code, _, err = run("import", "saxpy.cu", *TUNE, *ARGUMENTS)
    assert code == 0, err
    assert outputs_of(load_kernel(Path("kernels/saxpy")), {"n": 5})["y"]["value"].shape == (5,)


def test_checks_of_a_large_import_are_smaller_and_keep_multiples_of_powers_of_two(run):
    Path("saxpy.cu").write_text(SAXPY)
    large = [text.replace("n:int32=1000", "n:int32=80000000") for text in ARGUMENTS]
    assert large != list(ARGUMENTS) and run("import", "saxpy.cu", *TUNE, *large)[0] == 0
    kernel = load_kernel(Path("kernels/saxpy"))
    assert dict(kernel.workloads[0].dims) == {"n": 80_000_000}
    (_, size), *_ = kernel.checks[0].dims
    assert int(size({})) < 2**16 and (80_000_000 - int(size({}))) % 2**14 == 0
    assert [check.name for check in kernel.checks[:3]] == ["smaller", "one_less", "one_more"]


def test_a_check_gives_floats_another_value_and_the_plain_kernel_takes_it(run):
    Path("saxpy.cu").write_text(SAXPY)
    assert run("import", "saxpy.cu", *TUNE, *ARGUMENTS)[0] == 0
    kernel = load_kernel(Path("kernels/saxpy"))
    other = kernel.checks[-1]
    assert other.name == "other_constants"
    dims = {name: value({}) for name, value in other.dims}
    assert dims == {"n": 1000, "a": 3.75}  # 2.5 in the import
    usual, changed = outputs_of(kernel, {"n": 5}), outputs_of(kernel, {**dims, "n": 5})
    assert abs(usual["y"]["value"] - changed["y"]["value"]).max() > 0.1


def outputs_of(kernel, dims):
    reference = runpy.run_path(str(Path("kernels") / kernel.name / "reference.py"))
    inputs = reference["make_inputs"](dims, {}, "normal", 1, {})
    return reference["reference"](dims, {}, inputs)


@pytest.mark.slow
def test_an_imported_kernel_is_linted_searched_and_tells_its_truth(run):
    run("import", "saxpy.cu", *TUNE, *ARGUMENTS)
    assert run("lint", "saxpy")[0] == 0
    code, out, _ = run("trial", "saxpy", "--template", "plain", "--set", "per_thread=4", "--json")
    report = json.loads(out)
    assert code == 0 and report["verdict"] == "green"
    assert any("the unmodified kernel saxpy" in weak
               for weak in report["gates"]["correctness"]["weak_tests"])  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((*ARGUMENTS,), "nothing to tune"),
        ((*TUNE,), "--arg is missing for x, y, n, a (for example --arg x:float32[1024]:input"),
        ((*TUNE, *ARGUMENTS[:-2]), "--grid is given 0 times"),
        ((*TUNE, *ARGUMENTS, "--tune", "blok_size_x=64"), "did you mean block_size_x?"),
        ((*TUNE, *ARGUMENTS, "--restrict", "block_size_y < 3"), "which is not a parameter"),
        ((*TUNE, *ARGUMENTS, "--restrict", "__import__('os')"), "unknown function"),
        ((*TUNE, *ARGUMENTS, "--grid", "(1).real"), "a dot in a name is not allowed"),
        ((*TUNE, *ARGUMENTS, "--name", "../up"), "names are small letters"),
        ((*TUNE, *ARGUMENTS, "--entry", "other"), "known: saxpy"),
        ((*TUNE, *ARGUMENTS, "--entry", "saxpy<float>"), "saxpy is not a template"),
        ((*TUNE, *ARGUMENTS, "--entry", "sax py"), "is not the name of a kernel"),
        ((*TUNE, "--arg", "x:float32[m + 1]", *ARGUMENTS[2:]), "expression over scalars"),
        ((*TUNE, "--arg", "x:float32[n - 1000]", *ARGUMENTS[2:]), "the size n - 1000 is 0"),
        ((*TUNE, "--arg", "x:float32[2 * (n]", *ARGUMENTS[2:]), "is not an expression"),
        ((*TUNE, *ARGUMENTS, "--arg", "z:float32[4]"), "--arg names z"),
        (
            (*TUNE, *ARGUMENTS, "--arg", "x:float32[m]:input"),
            "'m' is neither a number nor a scalar",
        ),
        ((*TUNE, *ARGUMENTS, "--arg", "x:int32[n]:input"), "declares it as float32[...]"),
        ((*TUNE, *ARGUMENTS, "--arg", "x:float32[n]:output"), "declares it const"),
        ((*TUNE, *ARGUMENTS, "--arg", "n:int32=many"), "many is not of type int32"),
        ((*TUNE, *ARGUMENTS, "--arg", "x"), "is not understood"),
        ((*TUNE, *ARGUMENTS, "--tune", "block_size_x=32,a"), "all must be whole numbers"),
        ((*TUNE, *ARGUMENTS, "--tune", "block_size_x=32"), "--tune gives block_size_x twice"),
        ((*TUNE, *ARGUMENTS, "--tune", "_tile=1"), "does not begin with a letter"),
        ((*TUNE, *ARGUMENTS, "--tune", "n=1"), "n is a parameter and an argument"),
        ((*TUNE, *ARGUMENTS, "--tune", "x=a;b"), "neither a number nor a name"),
        ((*TUNE, *ARGUMENTS, "--tolerance", "nan"), "--tolerance must be"),
    ],
)
def test_what_does_not_fit_is_told_and_nothing_is_written(run, arguments, sentence):
    code, _, err = run("import", "saxpy.cu", *arguments)
    assert code == 2 and sentence in err
    assert not Path("kernels").exists()


@pytest.mark.parametrize("dtype", ["half", "float32"])
def test_a_scalar_of_16_bits_is_told_how_to_pass(run, dtype):
    text = SAXPY.replace("float a)", "half a)")
    Path("saxpy.cu").write_text(f"#include <cuda_fp16.h>\n{text}")
    words = [word.replace("a:float32", f"a:{dtype}") for word in ARGUMENTS]
    code, _, err = run("import", "saxpy.cu", *TUNE, *words)
    assert code == 2 and "let the kernel take one of these (float for half)" in " ".join(
        err.split()
    )


def test_sizes_of_a_block_and_of_its_shared_memory_are_known_when_a_candidate_is_compiled(run):
    Path("rows.cu").write_text(
        """
#define block_size_x 64
__global__ void reversed_rows(const float* x, float* y, int rows, int n)
{
    extern __shared__ float row[];
    for (int i = threadIdx.x; i < n; i += block_size_x)
        row[i] = x[blockIdx.x * n + i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += block_size_x)
        y[blockIdx.x * n + i] = row[n - 1 - i];
}
"""
    )
    words = ("--tune", "block_size_x=32,64", "--arg", "x:float32[rows,n]", "--arg", "rows:int32=5")
    words += ("--arg", "y:float32[rows,n]:output", "--arg", "n:int32=100", "--grid", "rows")
    code, out, err = run("import", "rows.cu", *words, "--smem", "4 * n")
    assert code == 0, err
    assert "a candidate is compiled for one value (n = 100 here)" in " ".join(out.split())
    kernel = load_kernel(Path("kernels/rows"))
    assert {dim.name: dim.time for dim in kernel.dims} == {"rows": "run", "n": "compile"}
    assert all(dict(check.dims).keys() == {"rows"} for check in kernel.checks)
    assert run("lint", "rows")[0] == 0
    words = ("rows", "--template", "plain", "--workload", "rows=3,n=2000", "--json")
    code, out, err = run("trial", *words)
    assert code == 0 and '"verdict": "green"' in out, err + out


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("#ifndef", '#include "mine.h"\n#ifndef', "saxpy.cu:1: it includes 'mine.h', which"),
        ("// __global__", "{% endraw %}", "which a template cannot hold"),
        ("// __global__", "// {%+  endraw %}{{ 7 * 7 }}{% raw %}", "which a template cannot hold"),
        ("// __global__", '{% include "gemm/wgmma/pipe.cu.j2" %}', "which a template cannot hold"),
        (
            "__global__ void saxpy",
            "template <int N>\n__global__ void saxpy",
            "is a template <int N>",
        ),
        ("__global__ void saxpy", "void saxpy", "has 0 __global__ functions"),
        (SAXPY, "template __global__ void " * 10_000, "has 0 __global__ functions"),  # at once
        ("float *y", "float **y", "a launch passes pointers to tensors and numbers"),
    ],
)
def test_a_text_that_no_launch_can_call_is_refused(run, old, new, sentence):
    Path("saxpy.cu").write_text(SAXPY.replace(old, new))
    code, _, err = run("import", "saxpy.cu", *TUNE, *ARGUMENTS)
    assert code == 2 and sentence in err and not Path("kernels").exists()


def test_a_file_that_is_no_source_does_not_become_part_of_a_kernel(run):
    """A kernel is shared; a stranger's text may name a private key, also by a link."""
    Path("id_rsa").write_text("int secret = 42;\n")
    Path("key.h").symlink_to("id_rsa")
    for name in ("id_rsa", "key.h", str(Path("id_rsa").absolute())):
        Path("saxpy.cu").write_text(f'#include "{name}"\n{SAXPY}')
        code, _, err = run("import", "saxpy.cu", *TUNE, *ARGUMENTS)
        assert code == 2 and "saxpy.cu:1" in err and "name is not that of a source file" in err
        assert not Path("kernels").exists()


@pytest.mark.parametrize(
    "text",
    [
        'tune_params = {"a": [1, 2, 4], "b": [0, 1]}',
        "tune_params = dict(a=[1, 2, 4], b=[0, 1])",
        """from collections import OrderedDict
tune_params = OrderedDict()
tune_params["a"] = [2**i for i in range(3)]
tune_params["b"] = list(range(2))""",
        """def tune():
    tune_params = {}
    tune_params["a"] = [1, 2, 4]
    tune_params["b"] = range(0, 2)
    return launch_the_missiles(tune_params)""",
        'tune_params: dict[str, list[int]] = {"a": [1, 2, 4], "b": [0, 1]}',
        """space = dict()
space["a"] = [1, 2, 4]
space["b"] = [0, 1]
restrictions = ["a * b <= 4"]
tune_kernel("f", "f.cu", 1000, [], space, restrictions=restrictions)""",
        """space = {"a": (1, 2, 4), "b": [0, 1]}
kernel_tuner.tune_kernel("f", "f.cu", 1000, [], tune_params=space, restrictions=restrictions)""",
    ],
)  # fmt: skip
def test_a_tune_file_is_read_and_never_run(tmp_path, text):
    path = tmp_path / "tune.py"
    if not text.startswith("def"):
        text = f'restrictions = ["a * b <= 4"]\n{text}\n\nimport nothing_of_that_name\n'
    path.write_text(text)
    tuning = read_tune_file(read_script(path))
    assert tuning.parameters == {"a": (1, 2, 4), "b": (0, 1)}
    assert tuning.restrictions == (() if text.startswith("def") else ("a * b <= 4",))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1", "assigns no tune_params"),
        ("tune_params = {", ":1 is not valid Python: '{' was never closed"),
        ("tune_params = {'a': [open('/etc/passwd').read()]}", "cannot be read, because"),
        ("tune_params = {'a': values()}", "tune.py:1: the values cannot be read"),
        ("tune_params = {'a': [1]}\nrestrictions = [lambda p: f(p['a'])]", "tune.py:2: a funct"),
        ("tune_params = {'a': [1]}\nrestrictions = [lambda p: p['b'] > 1]", "'b', which is not a"),
        ("tune_params = {'a': [1]}\nrestrictions = check", "tune.py:2: restrictions cannot be"),
        ("tune_params = {'a': range(10**9)}", "more than 4096 values"),
        ("tune_params = {'a': range(1, 9, 0)}", "cannot be read"),
        ("tune_params = {'a': [9**9**9]}", "cannot be read"),
        ("tune_params = {'a': [1.5, 'b']}", "all must be whole numbers"),
        ("tune_params = " + "(" * 5000 + ")" * 5000, "not valid Python"),
    ],
)
def test_a_tune_file_that_would_have_to_run_is_refused(tmp_path, text, sentence):
    path = tmp_path / "tune.py"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_tune_file(read_script(path))
    assert sentence in str(refused.value)


SCRIPT = """import kernel_tuner
from collections import OrderedDict

n, width = 1000, 4
sizes = [32 * i for i in range(1, 9) if 128 % i == 0]

def tune(size=n):
    tune_params = OrderedDict()
    tune_params["BLOCK"] = [32] + [64 * i for i in range(1, width - 1)]
    tune_params["N"] = [2**i for i in range(2)]
    args = [y, x, size]
    restrict = [lambda p: p["BLOCK"] * p["N"] <= 192, "N < 4"]
    return kernel_tuner.tune_kernel(
        "saxpy", "saxpy.cu", n, args, tune_params, restrictions=restrict,
        grid_div_x=["BLOCK", "N"], block_size_names=["BLOCK"], verbose=True)
"""
COUNTS = """#pragma once
#define BLOCK 64
#define N 2
"""
CAPITALS = """#include "counts.h"
  #include "counts.h"
__global__ void saxpy(const float* __restrict__ x, float *y, int n, float a) {
    for (int s = 0; s < N; ++s) {
        int i = (blockIdx.x * N + s) * BLOCK + threadIdx.x;
        if (i < n) y[i] = a * x[i] + 1.0f;
    }
}
"""


def test_a_script_of_another_tuner_brings_the_space_and_the_grid(run):
    Path("saxpy.cu").write_text(CAPITALS)
    Path("counts.h").write_text(COUNTS)
    Path("tune.py").write_text(SCRIPT)
    code, _, err = run("import", "saxpy.cu", "--tune-file", "tune.py", *ARGUMENTS[:8])
    assert code == 0, err
    kernel = load_kernel(Path("kernels/saxpy"))
    template = kernel.templates[0]
    assert dict(template.preset("defaults").parameters) == {"block": 64, "n_value": 2}
    space = Space(template, (), device("h200"))
    points = {tuple(sorted(dict(point).items())) for point in space.points}
    assert points == {
        (("block", block), ("n_value", count))
        for block in (32, 64, 128) for count in (1, 2) if block * count <= 192
    }  # fmt: skip
    launch = Path("kernels/saxpy/plain.toml").read_text()
    assert 'grid = ["ceil_div(n, (block) * (n_value))", "1", "1"]' in launch
    assert 'block = ["block", "1", "1"]' in launch
    text = Path("kernels/saxpy/plain.cu.j2").read_text()
    assert "#define BLOCK {{ block }}\n#define N {{ n_value }}\n" in text
    assert "(above)" in text and "pragma once" not in text


SCALE = """#define threads 64
extern "C" __global__ void scale(float* __restrict__ x, const float* w, /* inner */ int n) {
    int i = blockIdx.x * threads + threadIdx.x;
    if (i < n) x[i] *= w[i];  // a comment, (with a bracket
}
"""
IN_OUT = (
    "import", "scale.cu", "--tune", "threads=32,64", "--block", "threads",
    "--grid", "ceil_div(n, threads)", "--arg", "x:float32[n]:inout", "--arg", "w:float32[n]:in",
)  # fmt: skip


def test_a_tensor_that_is_read_and_written_begins_as_a_copy_of_an_input(run):
    Path("scale.cu").write_text(SCALE)
    code, out, err = run(*IN_OUT, "--arg", "n:int32=1000")
    assert code == 0, err
    assert "x is read and written: a first launch copies x_before to it" in out
    kernel = load_kernel(Path("kernels/scale"))
    kinds = {argument.name: argument.kind for argument in kernel.arguments}
    assert kinds == {"x_before": "input", "x": "output", "w": "input", "n": "scalar"}
    text = Path("kernels/scale/plain.cu.j2").read_text()
    assert "scale(const float* __restrict__ x_before, float* __restrict__ x, const float* w" in text
    assert [launch.entry for launch in kernel.templates[0].launches] == ["scale_copy", "scale"]


def test_the_copy_counts_elements_of_the_tensor_where_the_entry_has_vectors(run):
    Path("scale.cu").write_text(SCALE.replace("float* __restrict__ x", "float2* x"))
    given = [each.replace("x:float32[n]", "x:float32[2*n]") for each in IN_OUT]
    assert run(*given, "--arg", "n:int32=1000")[0] == 0
    text = Path("kernels/scale/plain.cu.j2").read_text()
    assert "((unsigned int*)x)[i_] = ((const unsigned int*)x_before)[i_];" in text


def test_the_cluster_that_the_text_declares_is_the_templates(run):
    head = "#define PAIR 2\n" + SCALE.replace(" void", " void __cluster_dims__(PAIR, 1)")
    Path("scale.cu").write_text(head)
    grid = [each.replace("ceil_div(n, threads)", "2 * ceil_div(n, 2 * threads)") for each in IN_OUT]
    code, _, err = run(*grid, "--tune", "PAIR=1,2", "--arg", "n:int32=1000")
    assert code == 0, err
    kernel = load_kernel(Path("kernels/scale"))
    assert [each.text for each in kernel.templates[0].launches[1].cluster] == ["pair", "1", "1"]
    assert "__cluster_dims__(2, 1)" in Path("kernels/scale/reference.py").read_text()
    assert run("lint", "scale")[0] == 0
    Path("scale.cu").write_text(head.replace("(PAIR, 1)", "(2 * PAIR)"))
    code, _, err = run(*grid, "--name", "two", "--tune", "PAIR=1,2", "--arg", "n:int32=1000")
    assert code == 2 and "numbers or tuned names in __cluster_dims__" in err


def test_a_define_in_the_launch_is_told_with_its_value(run):
    Path("scale.cu").write_text("#define WIDE 32\n" + SCALE)
    given = [each if each != "threads" else "WIDE" for each in IN_OUT]
    code, _, err = run(*given, "--arg", "n:int32=1000")
    assert code == 2 and "the file defines as 32 (tune it (--tune WIDE=32)" in err


@pytest.mark.slow
def test_the_truth_of_an_in_out_tensor_is_the_plain_kernels_from_its_first_value(run):
    Path("scale.cu").write_text(SCALE)
    assert run(*IN_OUT, "--arg", "n:int32=1000")[0] == 0
    reference = runpy.run_path("kernels/scale/reference.py")
    inputs = reference["make_inputs"]({"n": 70}, {}, None, 1, {})
    outputs = reference["reference"]({"n": 70}, {}, inputs)
    expected = inputs["x_before"].astype("float64") * inputs["w"]
    assert abs(outputs["x"]["value"] - expected).max() < 1e-6


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--arg", "x:float32[n]:inout", "--arg", "w:float32[n]:inout"), "declares it const"),
        (("--arg", "x:float32[n]:both", "--arg", "w:float32[n]"), "z:float32[n]=zeros:inout"),
        (("--arg", "x:float32[n]=0:out", "--arg", "w:float32[n]"), "an output has no first values"),
        (("--arg", "x:float32[n]:workspace", "--arg", "w:float32[n]"), "no --arg is an output"),
        (("--arg", "x:float32[n]:inout", "--arg", "w:float32[n]:workspace"), "declares it const"),
        (
            ("--arg", "x:float32[n]:inout", "--arg", "w:float32[n]=none"),
            "range(first, end), ",
        ),
        (("--arg", "x:float32[n]:inout", "--arg", "w:float32[n]=range(0,m)"), "unknown name 'm'"),
        (("--arg", "x:float32[n**n]:inout", "--arg", "w:float32[n]"), "constant exponent"),
    ],
)
def test_what_cannot_be_read_and_written_is_told(run, arguments, sentence):
    Path("scale.cu").write_text(SCALE)
    code, _, err = run(*IN_OUT[:8], *arguments, "--arg", "n:int32=1000")
    assert code == 2 and sentence in err and not Path("kernels").exists()


def test_a_name_that_the_first_value_would_take_is_refused(run):
    Path("scale.cu").write_text(SCALE.replace("w", "x_before"))
    code, _, err = run(*IN_OUT[:10], "--arg", "x_before:float32[n]", "--arg", "n:int32=1000")
    assert code == 2 and "rename the parameter x_before" in err
