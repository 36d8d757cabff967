"""Kernel Tuner scripts in the styles that people write, followed without being run."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenfast.app.cli import main
from greenfast.app.cli.import_instance import instantiated
from greenfast.app.cli.import_launch import default_grid, in_small_letters
from greenfast.app.cli.import_script import read_script, script_kernel
from greenfast.app.cli.import_script_arguments import script_arguments
from greenfast.app.cli.import_source import ImportedArgument, read_entry
from greenfast.app.cli.import_tune_file import read_tune_file
from greenfast.search.errors import UsageError

BODY = "{ int i = blockIdx.x * block_size_x + threadIdx.x; if (i < n) c[i] = a[i]; }"
PLAIN = f"__global__ void copy(float *c, const float *a, int n) {BODY}\n"
INSTANCE = f"template <typename T, int B>\n__global__ void copy(T *c, const T *a, int n) {BODY}\n"
ARRAYS = "c = np.zeros(n, np.float32); a = np.ones_like(c); args = [c, a, np.int32(n)]\n"
SPACE = 'space = {"block_size_x": [32, 64]}\n'
COPIES = ["c:float32[n]:output", "a:float32[n]:input", "n:int32=640"]


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """The kernel, the space and the --arg texts of a script beside two kernels."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copy.cu").write_text(PLAIN)
    (tmp_path / "instance.cu").write_text(INSTANCE)

    def read(text, entry=None):
        (tmp_path / "s.py").write_text(f"import numpy as np\nn = 640\n{text}")
        script = read_script(tmp_path / "s.py")
        kernel = script_kernel(script, entry)
        tuning = read_tune_file(script, entry)
        source, name, _ = instantiated(kernel.source, kernel.entry, "s.py", tuning.parameters)
        told = script_arguments(script, read_entry(source, name, "s.py"), source.text, entry)
        return kernel, tuning, list(told.values()), source.text

    return read


@pytest.mark.parametrize(
    "text",
    [
        'tune_kernel("copy<float, block_size_x>", "instance.cu", n, args, space)',
        'T = "float"\ntune_kernel(f"copy<{T}, block_size_x>", "instance.cu", n, args, space)',
        (
            'T = {"f4": "float"}["f4"]\nname = "copy<%s, %s>" % (T, list(space)[0])\n'
            'tune_kernel(name, "instance.cu", n, args, space)'
        ),
        (
            'name = "copy<" + ", ".join(["{}".format("float"), "block_size_x"]) + ">"\n'
            'tune_kernel(name, open("instance.cu").read(), n, args, space)'
        ),
    ],
)
def test_a_script_names_an_instance_of_a_template(imported, text):
    kernel, _, told, source = imported(ARRAYS + SPACE + text)
    assert kernel.entry == "copy<float, block_size_x>"
    assert "copy<float, block_size_x>(c, a, n);" in source
    assert told == COPIES


@pytest.mark.parametrize(
    "text",
    [
        ('here = os.path.dirname(os.path.realpath(__file__))\n'
        'tune_kernel("copy", os.path.join(here, "copy.cu"), n, args, space)'),
        ('text = (Path(__file__).resolve().parent / "copy.cu").read_text()\n'
        'tune_kernel("copy", text, n, args, space)'),
        ('words = dict(kernel_name="copy", kernel_source="copy.cu", problem_size=n)\n'
        "words.update(arguments=args)\ntune_kernel(**words, tune_params=space)"),
        ("class Bench:\n    def __init__(self, file):\n        self.file, self.space = file, {}\n"
        "    def tune(self):\n        self.space.update(space)\n"
        '        tune_kernel("copy", self.file, n, args, self.space)\n'
        'if __name__ == "__main__":\n    Bench("copy.cu").tune()'),
        ("parser = argparse.ArgumentParser()\n"
        'parser.add_argument("-n", "--size", type=int, default=640)\n'
        "options = parser.parse_args()\n"
        'tune_kernel("copy", "copy.cu", options.size, args, space)'),
        ("def tune(lang):\n    file = 'copy.hip' if lang == 'HIP' else 'copy.cu'\n"
        "    tune_kernel('copy', file, n, args, space, lang=lang)\ntune(sys.argv[1])"),
        ("match sys.argv[1]:\n    case 'cuda' | 'cupy':\n        name = string.Template('$f.cu')\n"
        "    case _:\n        name = None\n"
        "tune_kernel('copy', name.substitute(f='copy'), n, args, space)"),
        ("def tune(lang='CUDA', size=5):\n"
        "    if lang == 'CUDA':\n        name = 'copy.cu'\n    else:\n        name = 'copy.hip'\n"
        "    tune_kernel('copy', name, size, args, space)\n"
        "tune(sys.argv[1], size=640)"),
        ("class Base:\n    file = 'copy.cu'\n    def __init__(self, n):\n        self.n = n\n"
        "    @property\n    def space(self):\n        return {'block_size_x': list(self.sizes())}\n"
        "class Bench(Base):\n    def __init__(self, n):\n        super().__init__(n)\n"
        "    @staticmethod\n    def sizes():\n        for k in (5, 6):\n            yield 1 << k\n"
        "    def tune(self):\n"
        "        partial(tune_kernel, 'copy')(self.file, self.n, args, self.space)\n"
        "Bench(640).tune()"),
        ("@dataclass\nclass Options:\n    n: int\n    file: str = 'copy.cu'\n"
        "    names: list = field(default_factory=lambda: ['copy'])\n"
        "o = Options(n=640)\ntune_kernel(o.names[0], o.file, o.n, args, space)"),
        ("def tune(n, fail=False):\n    if fail:\n        raise ValueError\n"
        "    if len(sys.argv) > 1:\n        n = int(sys.argv[1])\n"
        '    tune_kernel("copy", "copy.cu", n, args, space)\ntune(n)'),
        ("n = int(sys.argv[1]) if len(sys.argv) > 1 else 640\n"
        'tune_kernel("copy", "copy.cu", n, args, space)'),
        ("n = np.int32(640 if len(sys.argv) < 2 else int(sys.argv[1]))\n"
        'tune_kernel("copy", "copy.cu", n, args, space)'),
    ],
)  # fmt: skip
def test_a_call_gets_its_arguments_in_many_ways(imported, text):
    kernel, tuning, told, _ = imported(ARRAYS + SPACE + text)
    assert kernel.entry == "copy" and kernel.source.text.strip() == PLAIN.strip()
    assert tuning.parameters == {"block_size_x": (32, 64)}
    assert [size.value for size in tuning.problem_size] == [640]
    assert told == COPIES


@pytest.mark.parametrize(
    "space",
    [
        'space = {}\nfor d in "xy":\n    space[f"block_size_{d}"] = [1 << i for i in range(5, 7)]',
        'space = {**{"block_size_" + d: [32, 64] for d in "xy"}}',
        'space = OrderedDict(zip(["block_size_x", "block_size_y"], [np.arange(32, 65, 32)] * 2))',
        (
            'space = dict()\nspace.setdefault("block_size_x", []).append(32)\n'
            'space["block_size_x"] += [64]\nspace["block_size_y"] = list(2 ** np.arange(5, 7))'
        ),
    ],
)
def test_a_space_is_filled_in_many_ways(imported, space):
    call = 'tune_kernel("copy", "copy.cu", n, [], space)'
    _, tuning, _, _ = imported(f"{space}\n{call}")
    assert tuning.parameters == {"block_size_x": (32, 64), "block_size_y": (32, 64)}


@pytest.mark.parametrize(
    ("restrictions", "expected"),
    [
        ("lambda p: p['x'] * p['y'] <= n", ("x * y <= 640",)),
        ("lambda x, y: x >= y", ("x >= y",)),
        ("['x in [1, 2]', lambda p: p['y'] > 1, f'x < {n}']", ("x in (1, 2)", "y > 1", "x < 640")),
        ("[lambda p, k=k: p[k] < 4 for k in ('x', 'y')]", ("x < 4", "y < 4")),
        ("ordered", ("not x * y > 8 and (x >= y or y == 1)",)),
        ("bounded", ("not x > 4 and (not y > 4)",)),
    ],
)
def test_restrictions_are_texts_and_functions(imported, restrictions, expected):
    functions = (
        "def ordered(p):\n    area = p['x'] * p['y']\n    if area > 8:\n        return False\n"
        "    return p['x'] >= p['y'] or p['y'] == 1\n"
        "def bounded(p):\n    for name in ('x', 'y'):\n        if p[name] > 4:\n"
        "            return False\n    return True\n"
    )
    call = f"tune_kernel('copy', 'copy.cu', n, [], space, restrictions={restrictions})"
    text = f"{functions}space = dict(x=[1, 2, 4], y=[1, 2], block_size_x=[32])\n{call}"
    if expected is None:
        with pytest.raises(UsageError, match=r"s\.py:.* a function is understood only where"):
            imported(text)
    else:
        assert imported(text)[1].restrictions == expected


CONSTRAINTS = (
    "import math\nfrom functools import partial\nfrom constraint import *\n"
    "def below(limit, p):\n    return p['x'] * p['y'] < limit\n"
    "def odd(p):\n    for k in (1, 2):\n        if p['x'] > k:\n            break\n"
    "        if k > 1:\n            return False\n    return True\n"
    "space = dict(x=[1, 2, 4], y=[1, 2], f=[0.5, 1.0], block_size_x=[32])\n"
)


@pytest.mark.parametrize(
    ("restrictions", "expected"),
    [
        ("[(MaxProdConstraint(4), ['x', 'y'])]", ("x * y <= 4",)),
        ("[(MinSumConstraint(9, [1, 4]), ('x', 'y'))]", ("x + 4 * y >= 9",)),
        ("[(AllDifferentConstraint(), ['x', 'y']), ('x < 4', ['x'])]", ("x != y", "x < 4")),
        ("[(InSetConstraint({1, 4}), ['x']), (lambda a, b: a > b, ['x', 'y'])]",
         ("x in (1, 4)", "x > y")),
        ("[(FunctionConstraint(lambda y, x: x > y), ['y', 'x'])]", ("x > y",)),
        ("partial(below, 4)", ("x * y < 4",)),
        ("[lambda p, most=2: p['x'] <= most, lambda x, y, most=9: x + y <= most]",
         ("x <= 2", "x + y <= 9")),
        ("lambda p: sum(p[k] for k in 'xy') < 5 and max(p['x'], p['y']) > 1",
         ("x + y < 5 and max(x, y) > 1",)),
        # What no expression says is listed.
        ("odd", ("x != 1",)),
        ("lambda p: math.log2(p['x']) == p['y']",
         ("x == 2 and y == 1 or x == 4 and y == 2",)),
        ("lambda **p: p['x'] ^ p['y'] != 0",
         ("y == 1 and x != 1 or y == 2 and x != 2",)),
        ("['log2(x) < 2 or f == 0.5', 'x ^ 3 != 2 and x << 1 < 8']",
         ("x != 4 or x == 4 and f == '0.5'", "x == 2")),
    ],
)  # fmt: skip
def test_restrictions_are_constraints_and_computed_functions(imported, restrictions, expected):
    call = f"tune_kernel('copy', 'copy.cu', n, [], space, restrictions={restrictions})"
    given = imported(CONSTRAINTS + call)[1].restrictions
    assert given == expected


@pytest.mark.parametrize(
    ("size", "words", "grid"),
    [
        ("n", "", ["ceil_div(n, (block_size_x))"]),
        ("(n, 1)", "grid_div_x=['block_size_x', 'e']", ["ceil_div(n, (block_size_x) * (e))", "1"]),
        ("lambda p: (n // p['e'], 2)", "", ["ceil_div(n // e, (block_size_x))", "2"]),
        ("'e'", "grid_div_x=[]", ["e"]),
        ("('e * 2',)", "grid_div_x=lambda p: p['e'] * 4", ["ceil_div(e * 2, (e * 4))"]),
        ("int(n / 2)", "block_size_names=['E']", ["ceil_div(320, (e))"]),
    ],
)
def test_the_grid_follows_the_problem_size(imported, size, words, grid):
    space = 'space = {"block_size_x": [32], "E": [1, 2]}\n'.replace(
        "E", "e" if "E" not in words else "E"
    )
    call = f"tune_kernel('copy', 'copy.cu', {size}, args, space, {words})"
    _, tuning, _, _ = imported(ARRAYS + space + call)
    tuning, _ = in_small_letters(tuning, ("c", "a", "n"))
    sizes = [ImportedArgument("n", "int32", (), "scalar", 640)]
    assert default_grid(tuning, sizes) == grid


def test_shared_memory_and_macros_come_with_the_call(imported):
    kernel, tuning, _, _ = imported(
        SPACE + "tune_kernel('copy', 'copy.cu', n, [], space, defines={'K': 3},\n"
        "    compiler_options=['-DF=2', '-O3'],\n"
        "    smem_args=dict(size=lambda p: 4 * p['block_size_x']))"
    )
    assert tuning.smem == "4 * block_size_x"
    assert kernel.source.text.startswith("#define F 2\n#define K 3\n")


def test_a_script_with_two_kernels_is_read_for_the_one_that_is_wanted(imported):
    text = (
        "def first():\n    space = {'block_size_x': [32]}\n"
        "    tune_kernel('copy', 'copy.cu', n, [], space)\n"
        "def second():\n    space = {'block_size_x': [64]}\n"
        "    tune_kernel('copy<float, block_size_x>', 'instance.cu', n, [], space)\n"
    ).replace("'copy<", "'ns::copy2<")
    assert imported(text)[1].parameters == {"block_size_x": (32,)}
    script = read_script(Path("s.py"))
    assert read_tune_file(script, "copy2").parameters == {"block_size_x": (64,)}
    assert script.entries() == ["copy", "ns::copy2<float, block_size_x>"]


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("'../other/k.cu'", "which is outside of the script's folder"),
        ("open('../other/k.cu').read() + ' '", "which is outside of the script's folder"),
        ("Path(__file__).parent.parent / 'other' / 'k.cu'", "which is outside"),
        ("'link.cu'", "which links to a file outside"),
        ("'/etc/hostname'", "has no __global__ function"),
        ("'/etc/hostname.cu'", "which is outside"),
        ("'#include \"../other/k.cu\"\\n'", "includes '../other/k.cu', which is outside"),
        ("'inner.cu'", "includes '../other/k.cu', which is outside"),
    ],
)
def test_a_script_brings_only_files_of_its_folder(imported, tmp_path, source, part):
    other = tmp_path.parent / "other"
    other.mkdir(exist_ok=True)
    (other / "k.cu").write_text(PLAIN)
    (tmp_path / "inner.cu").write_text('#include "../other/k.cu"\n')
    (tmp_path / "link.cu").symlink_to(other / "k.cu")
    with pytest.raises(UsageError, match=part):
        imported(f"{SPACE}tune_kernel('copy', {source}, n, [], space)")


def test_the_sentence_names_the_command_that_works(tmp_path, monkeypatch, capsys):
    for folder in ("here", "other"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "other" / "k.cu").write_text(PLAIN)
    (tmp_path / "here" / "s.py").write_text(
        f"n = 640\n{ARRAYS}{SPACE}tune_kernel('copy', '../other/k.cu', n, args, space)"
    )
    assert main.run(("import", "s.py")) == 2
    error = capsys.readouterr().err
    assert "name it yourself: greenfast import ../other/k.cu --tune-file s.py" in error
    assert main.run(("import", "../other/k.cu", "--tune-file", "s.py")) == 0


@pytest.mark.parametrize(
    ("text", "is_endless"),
    [
        ("x = 1\nwhile True:\n    x = [x, x]\n", False),
        ("def f(p):\n    return f(p) + f(p)\nf(1)\n", True),
        ("t = 'a'\nfor i in range(4000):\n    t = t + t\n" + "u = '%999999999d' % 5\n", False),
        (
            "q = f'{3:>999999999}' * 10**9\nfor i in range(10**9):\n    q\n",
            False,
        ),
        (
            "exec('open(\"ran\", \"w\")'); __import__('os').system('touch ran')\n",
            False,
        ),
    ],
)
def test_a_hostile_script_neither_runs_nor_hangs(imported, tmp_path, text, is_endless):
    call = "tune_kernel('copy', 'copy.cu', n, [], space)"
    if is_endless:
        with pytest.raises(UsageError, match="computes too much"):
            imported(f"{text}{SPACE}{call}")
    else:
        assert imported(f"{text}{SPACE}{call}")[1].parameters == {"block_size_x": (32, 64)}
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("float *c", "double *c", "s.py:9: the script passes c as float32[...], and the kernel"),
        ("const float *a", "const block_size_x *a", "s.py:5: the parameter block_size_x is the"),
        ("__global__ void", "texture<float, 2> t;\n__global__ void", "s.py:5: t is a texture"),
        ("__global__", "__kernel", "s.py:5: this is an OpenCL kernel"),
        ("np.zeros(n, np.float32)", "load('c')", "s.py:9: copy has the parameters c, a, n; --arg"),
        ("tune_kernel(", "run_kernel(", "s.py:9: the script runs a kernel (run_kernel) and tunes"),
        ("space)", "space, restrictions=['x < 3'])", "s.py:9: 'x < 3' uses 'x', which is not a"),
        ("space)", "space, restrictions=[(lambda y: y, ['x'])])",
         "s.py:9: a restriction is about 'x', which is not a parameter"),
        ("text,", "lambda p: text,", "s.py:9: the kernel's source is a function, which writes"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_line_of_the_script(tmp_path, monkeypatch, capsys, old, new, sentence):
    monkeypatch.chdir(tmp_path)
    text = (
        f'import numpy as np\nn = 640\n{SPACE}text = """\n{PLAIN}"""\n{ARRAYS}\n'
        "tune_kernel('copy', text, n, args, space)\n"
    )
    Path("s.py").write_text(text.replace(old, new, 1))
    assert main.run(("import", "s.py")) == 2
    assert sentence in capsys.readouterr().err
