"""An author's mistake is a sentence with the file, the line and what is right; none is ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from greenfast.app.cli.new import kernel_files_of
from greenfast.search.devices.facts import device
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.mistakes import SpecErrors
from greenfast.search.kernels.places import key_lines
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import Space, resolve
from greenfast.search.toolchain import Cubin
from greenfast.search.toolchain.signature import Passed, passed_arguments, signature_fault

Edit = Callable[..., KernelSpec]


@pytest.fixture
def edited(tmp_path) -> Edit:
    """`edited((file, old, new), ...)`: the kernel that `greenfast new` writes, changed."""

    def changed(*changes: tuple[str, str, str]) -> KernelSpec:
        folder = tmp_path / "vecsum"
        folder.mkdir(exist_ok=True)
        files = kernel_files_of("vecsum")
        for file, old, new in changes:
            assert old in files[file], f"{old!r} is not in {file}"
            files[file] = files[file].replace(old, new)
        for file, text in files.items():
            (folder / file).write_text(text)
        return Catalogue([tmp_path]).kernel("vecsum")

    return changed


def line_of(file: str, words: str) -> int:
    text = kernel_files_of("vecsum")[file]
    return text[: text.index(words)].count("\n") + 1


A_SHAPE = 'shape = ["M", "N"]\ncontiguous = true                            # no'


@pytest.mark.parametrize(
    ("file", "old", "new", "line", "sentence"),
    [
        ("kernel.toml", A_SHAPE, A_SHAPE.replace('"N"', "4"), A_SHAPE, "holds the number 4"),
        ("kernel.toml", A_SHAPE, A_SHAPE.replace('"N"', '"4"'), A_SHAPE, "size_4 = { time"),
        ("kernel.toml", A_SHAPE, A_SHAPE.replace('"N"', '"K"'), A_SHAPE, "known: M, N"),
        ("kernel.toml", A_SHAPE, A_SHAPE.replace('"N"', '"N + 2"'), A_SHAPE, "'N + 2', but a"),
        ("kernel.toml", 'value = "N"', 'value = "K"', 'value = "N"', "unknown name 'K'"),
        ("kernel.toml", 'shape = ["M"]', "shape = []", 'shape = ["M"]', "at least one dim"),
        ("kernel.toml", 'name = "b"', 'name = "a"', 'name = "b"', "a second argument 'a'"),
        ("kernel.toml", "dtype = { val", "dtypes = { val", 'dtype = "dtype"\nshape', "no such opt"),
        ("kernel.toml", '"fp16"]', '"half"]', 'dtype = "dtype"\nshape', "not a tensor type"),
        ("kernel.toml", 'M = { time = "run"', 'M = { time = "now"', "M = { time", "compile, run"),
        ("kernel.toml", "N = { time", "N = { values = ['4'], time", "N = { time", "whole numbers"),
        ("kernel.toml", '"tile - 1" }', '"tiel - 1" }', 'M = "3"', "unknown name 'tiel'"),
        ("kernel.toml", ', N = "tile - 1" }', " }", "[[checks]]\nname = \"tile_less", "of N"),
        ("kernel.toml", '"block:plain"', '"block:fast"', "baseline", "unknown preset 'fast'"),
        ("kernel.toml", '"block:plain"', '"block"', "baseline", "for example block:plain"),
        ("kernel.toml", "baseline =", "base_line =", "baseline", "'baseline' is missing"),
        ("kernel.toml", '"2 * M * N"', '"M && N"', "flop =", "&& is written and"),
        ("kernel.toml", '"2 * M * N"', '"M^2"', "flop =", "'M^2' (^ is written **"),
        ("kernel.toml", "[options]", "[alignment]\nstride_elements = 0\n[options]", "[options]",
         "stride_elements: 0 is not between 1"),
        ("kernel.toml", "[options]", "[alignment]\npointer_bytes = 24\n[options]", "[options]",
         "pointer_bytes: 24 is no power of two"),
        ("kernel.toml", "seeds = 1", "seeds = 10000000000", "seeds = 1", "between 0 and 1000"),
        ("kernel.toml", 'value = "N"', 'value = "8 / 0"', 'value = "N"', "division by zero"),
        ("kernel.toml", "[options]", 'empty_dims = ["K"]\n[options]', "[options]", "known: M, N"),
        ("kernel.toml", "dims = { M = 256, N = 1024 }", "dims = { M = 256", "dims = { M = 256",
         "not valid TOML"),
        ("block.toml", "[[launches]]", "[[launchs]]", "[[launches]]", "did you mean 'launches'?"),
        ("block.toml", "[[launches]]", "[launches]", "[[launches]]", "write [[launches]]"),
        ("block.toml", "parameters = { }", "parameters = { thread = 64 }", "[presets.plain]",
         "known: threads, unroll"),
        ("block.toml", "default = 128", "default = 100", "default = 128", "100 is not among"),
        ("block.toml", "warps = ", "threads = ", "warps = ", "has this name"),
        ("block.toml", 'grid = ["M"', 'grid = ["rows"', "grid = ", "unknown name 'rows'"),
        ("block.toml", 'default = 128', 'default = 128\nwhen = "threads > 64"', "default = 128",
         "of threads depend on each other"),
        ("block.toml", "unroll]", "N]", "[parameters.unroll]", "a dim or option of this name"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(edited, file, old, new, line, sentence):
    with pytest.raises(SpecError) as refused:
        edited((file, old, new))
    first = (refused.value.mistakes if isinstance(refused.value, SpecErrors) else [refused.value])[
        0
    ]
    assert sentence in str(first)
    number = int(first.message.removeprefix(f"vecsum/{file}:").replace(":", ",").partition(",")[0])
    assert abs(number - line_of(file, line)) <= 4 and "\n" not in str(first)


def test_all_mistakes_are_told_at_once(edited):
    with pytest.raises(SpecErrors) as refused:
        edited(
            ("kernel.toml", A_SHAPE, A_SHAPE.replace('"N"', '"K"')),
            ("kernel.toml", 'flop = "2 * M * N"', 'flop = "2 * M * L"'),
            ("block.toml", "default = 128", "default = 100"),
            ("block.toml", 'expr = "threads', 'expr = "thread'),
        )
    text = str(refused.value)
    assert len(refused.value.mistakes) == 4 and text.count("vecsum/") == 4
    for words in ("names 'K'", "'L'", "100 is not among", "'thread'"):
        assert words in text


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("M = 256, N", 'M = "256", N', "'256' is not a whole number"),
        ("M = 256, N", "M = -1, N", "-1 is not a whole number"),
        ("M = 256, N", "K = 256, N", "unknown dim 'K'"),
        ("[workloads.small]", '[workloads.small]\noptions = { dtype = "half" }', "'half'"),
        ("[workloads.small]", "[workloads.SMALL]", "small letters"),
    ],
)
def test_a_bad_workload_disables_no_other(edited, old, new, sentence):
    kernel = edited(("kernel.toml", old, new))
    assert [workload.name for workload in kernel.workloads] == ["odd"]
    ((name, why),) = kernel.broken_workloads
    assert sentence in why and why.startswith("vecsum/kernel.toml:")
    with pytest.raises(SpecError) as refused:
        kernel.workload(name)
    assert str(refused.value) == why
    assert edited().broken_workloads == ()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("def make_inputs(dims, options, recipe, seed, tiles)", "def make_inputs(dims, seed)",
         "reference.py:9: make_inputs is called with 5 arguments"),
        ('"c": summed(c, sizes, 2, options["dtype"])', '"c": {"value": c, "bound": c}',
         "no 'rounded'; write"),
        ('"c": summed(c, sizes, 2, options["dtype"])',
         '"c": {"value": c, "bound": 1.0, "rounded": c, "atol": 1}', "the unknown 'atol'"),
        ('"c": summed(c, sizes, 2, options["dtype"])',
         '"c": {"value": c, "bound": c[:1], "rounded": c}', "the bound of c another shape"),
        ('"c": summed(c, sizes, 2, options["dtype"])',
         '"c": {"value": c, "bound": -1.0, "rounded": c}', "the bound of c is negative"),
        ('"c": summed(c, sizes, 2, options["dtype"])',
         '"c": {"value": "c", "bound": 1, "rounded": c}', "must hold real numbers"),
        ('"c": summed(c, sizes, 2, options["dtype"])',
         '"c": {"value": c * 1j, "bound": 1, "rounded": c}', "an array of complex128"),
        ("    a, b = as_float64(inputs)",
         "    raise type('Own', (Exception,), {'__str__': None})\n    a, b = as_float64(inputs)",
         "Own: its __str__ fails"),
        ('"c": summed(c, sizes, 2, options["dtype"])', '"c": c', 'for c, and it must be {"value"'),
        ('summed(c, sizes, 2, options["dtype"])', 'summed(c, sizes, 2, "int32")',
         "greenfast_bounds knows fp16, bf16, float32, and not 'int32'"),
        ('"c": summed', '"d": summed', "reference returns no c; it returns d, sums"),
        ("return {\n", "return [] and {\n", "must return a dict"),
        ('return {"a": stored', 'return {"A": stored', "make_inputs returns no a"),
        ('"a": stored(a, options["dtype"])', '"a": a', "the type float64"),
        ('"a": stored(a, options["dtype"])', '"a": stored(a[:1], options["dtype"])', "gives 'a'"),
        ("c, sizes = a + b", "c, sizes = a + b / nothing",
         "reference.py:27: case odd (M=37 N=1001): NameError"),
        ("import numpy as np", "import numpi as np", "reference.py:5 does not load: Mod"),
        ("stored, summed", "stored, sum_", "cannot import name 'sum_' from 'greenfast_bounds'"),
        ("def reference(", "def refer(", "has no function reference (write def reference("),
    ],
)  # fmt: skip
def test_a_mistake_in_reference_py_says_what_is_right(edited, old, new, sentence):
    kernel = edited(("reference.py", old, new))
    with pytest.raises(SpecError) as refused:
        case_data(kernel, workload_case(kernel.workload("odd"), 0))
    assert sentence in str(refused.value) and str(refused.value).startswith("vecsum/reference.py")
    assert refused.value.code == "reference_failed"


def test_a_bound_may_be_one_number(edited):
    new = '"c": {"value": c, "bound": 0.5, "rounded": None}'
    kernel = edited(("reference.py", '"c": summed(c, sizes, 2, options["dtype"])', new))
    expected = case_data(kernel, workload_case(kernel.workload("odd"), 0)).outputs["c"]
    assert expected.bound.shape == (37, 1001) and (expected.bound == 0.5).all()


def test_an_option_of_numbers_is_named_by_its_text(edited):
    kernel = edited(
        ("kernel.toml", "[dims]", 'way = { values = ["1", "2"], default = "1" }\n[dims]')
    )
    assert dict(kernel.workload("M=4,N=8,way=2").options)["way"] == "2"
    with pytest.raises(UsageError, match="way=3 is not one of 1, 2"):
        kernel.workload("M=4,N=8,way=3")


def test_a_requirement_may_use_constants(edited):
    rule = '[constants]\nrows = "2 * M"\n[[requires]]\nthat = "rows < 9"\nbecause = "{rows} rows"\n'
    kernel = edited(("kernel.toml", "[options]", rule + "[options]"))
    assert kernel.workload("M=4,N=8").dims == (("M", 4), ("N", 8))
    with pytest.raises(UsageError, match="10 rows"):
        kernel.workload("M=5,N=8")


def test_a_kernel_without_options_and_compile_time_dims_can_be_searched(edited):
    kernel = edited(
        ("kernel.toml", 'dtype = { values = ["float32", "fp16"], default = "float32" }', ""),
        ("kernel.toml", 'dtype = "dtype"', 'dtype = "float32"'),
        ("kernel.toml", "(4 if dtype == 'float32' else 2)", "4"),
        ("kernel.toml", 'options = { dtype = "fp16" }', ""),
        ("reference.py", 'options["dtype"]', '"float32"'),
    )
    plan = make_plan(SearchRequest("vecsum"), Catalogue([kernel.folder.parent]))
    assert plan.compiled == ()
    assert len(Space(kernel.templates[0], (), device("h200")).points) == 11
    assert case_data(kernel, workload_case(kernel.workload("small"), 0)).outputs["c"].value.any()


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        ("block.cu.j2", "int M, int N)", "int N)", "takes 5 arguments, and a launch passes 6"),
        ("block.cu.j2", "int M, int N)", "int M, float n) { const int N = n;", "takes a float as"),
        ("block.cu.j2", "float* __restrict__ sums,            // [M]\n        int M,",
         "int M, float* __restrict__ sums,", "argument 4, where a launch passes sums (a pointer)"),
        ("block.cu.j2", "vecsum_block(", "vecsum_blok(", "has no such entry"),
        ("block.toml", "# Values", '[[workspaces]]\nname = "w"\nbytes = "4"\n# Values',
         "a, b, c, sums, M, N, w ("),
    ],
)  # fmt: skip
def test_arguments_that_differ_from_kernel_toml_are_told(
    edited, toolchain, file, old, new, sentence
):
    kernel = edited((file, old, new))
    if "{ const" in new:
        path = kernel.folder / "block.cu.j2"
        path.write_text(path.read_text().replace("= n;\n{", "= n;\n"))
        kernel = Catalogue([kernel.folder.parent]).kernel("vecsum")
    template = kernel.templates[0]
    compiled = kernel.workload("small").compile_time(kernel)
    candidate = preset_candidate(template, "plain", compiled)
    point = resolve(template, candidate.parameters, compiled, device("h200"))
    dirs = Catalogue.from_environment().include_dirs
    source = render(kernel, template, point, dirs)
    assert isinstance(source, RenderedSource)
    cubin = toolchain.compile(source, "sm_90")
    assert isinstance(cubin, Cubin) and cubin.ptx
    passed = passed_arguments(kernel, template, dict(point.values), False)
    assert sentence in signature_fault(source.entries, passed, cubin.ptx, template.name)


@pytest.mark.parametrize("words", ["c", "sums", "M"])
def test_lines_of_keys_are_those_of_the_file(words):
    text = kernel_files_of("vecsum")["kernel.toml"]
    lines = key_lines(text)
    arguments = ["a", "b", "c", "sums", "M", "N"]
    line = lines["arguments", arguments.index(words), "name"]
    assert text.splitlines()[line - 1] == f'name = "{words}"'
    assert text.splitlines()[lines["dims", "N", "doc"] - 1].startswith("N = { time")


def test_lines_are_found_or_left_out_in_any_text():
    text = (
        'a = [\n  { b = 1 },\n]\n"x y".z = """\n[no]\n"""\n[t]\nk = { l = { m = 1 } }\n[[t.u]]\nv=1'
    )
    assert key_lines(text) == {
        ("a",): 1, ("x y",): 4, ("x y", "z"): 4, ("t",): 7, ("t", "k"): 8, ("t", "k", "l"): 8,
        ("t", "k", "l", "m"): 8, ("t", "u", 0): 9, ("t", "u", 0, "v"): 10,
    }  # fmt: skip
    for broken in ("[", "[[", "a = {", "a = [", "= 1", "]", "a.b", "\n" * 99, "a = '", "{" * 999):
        assert isinstance(key_lines(broken), dict)
    assert isinstance(key_lines(Path(__file__).read_text()), dict)


MAPPED = """.entry mapped(
\t.param .u64 .ptr .global .align 16 mapped_param_0,
\t.param .b32 mapped_param_1,
\t.param .align 64 .b8 mapped_param_2[128]
)
.maxntid 256, 1, 1
{
"""


def test_a_tensor_map_is_an_argument_by_value():
    pointer, number, tensor_map = Passed("x", "pointer"), Passed("n", "32 bits"), Passed("m", "map")
    assert signature_fault(["mapped"], [pointer, number, tensor_map], MAPPED, "t") == ""
    for passed in ([pointer, number, pointer], [pointer, tensor_map, number]):
        assert "takes" in signature_fault(["mapped"], passed, MAPPED, "t")


def test_a_kernel_that_needs_a_cooperative_launch_is_refused():
    """A GPU stops grid.sync() in another launch, and the emulator would let all blocks wait."""
    ptx = ".entry whole()\n{\n\tmov.u32 %r2, %envreg2;\n"
    assert "waits for its whole grid" in signature_fault(["whole"], [], ptx, "t")
