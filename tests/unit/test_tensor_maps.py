"""Tensor maps: from a template's toml to the numbers of a problem, and to a kernel's 128 bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from greenfast.search.devices.facts import device
from greenfast.search.devices.tensor_map import TensorMap, misfit
from greenfast.search.errors import GreenfastError, SpecError, UsageError
from greenfast.search.kernels.frozen import frozen_catalogue, kernel_files
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.submitted import Submission, files_with
from greenfast.search.oracle.cases import Case, workload_case
from greenfast.search.oracle.problem import lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.space.space import Space
from greenfast.search.targets.emulator.execute import Buffer, PointerArgument, TensorMapArgument
from greenfast.search.targets.emulator.problem_run import emulated_run
from tests.unit.emulator_harness import Kernel, prepared
from tests.unit.rows_kernel import write_rows

TILE = TensorMap("m", "x", "fp16", (64, 100, 8), (128, 12800), (64, 32, 1), 128)


@pytest.fixture
def rows(tmp_path):
    return lambda old="", new="": write_rows(
        tmp_path / "templates", lambda file, text: text.replace(old, new) if old else text
    )


def problem_of(catalogue, case=None, **parameters):
    kernel = catalogue.kernel("rows")
    template, workload = kernel.template("mapped"), kernel.workload("small")
    space = Space(template, workload.compile_time(kernel), device("h200"))
    values = tuple(
        (each.name, parameters.get(each.name, each.default)) for each in template.parameters
    )
    case = case or workload_case(workload, 1)
    return lay_out(kernel, template, space.require(values), case, case_data(kernel, case))


def test_maps_follow_the_arguments_and_workspaces_with_the_numbers_of_the_layout(rows):
    catalogue = rows()
    *before, x_map, y_map, partial = problem_of(catalogue).arguments
    assert [getattr(each, "name", "") for each in before] == ["x", "y", "", "", "", "partial"]
    assert x_map == TensorMap(
        "x_map", "x", "fp16", (128, 100, 2), (256, 25600), (64, 64, 1), 128, "nan", 256
    )
    assert y_map == TensorMap("y_map", "y", "fp16", (128, 200), (256,), (8, 64))
    assert partial == TensorMap("partial_map", "partial", "float32", (4, 100), (16,), (4, 16))
    assert len(problem_of(catalogue, tile=32).arguments) == 8  # partial_map's `when`


def test_padded_strides_and_empty_axes(rows):
    case = Case(
        "c", (("B", 2), ("R", 0), ("C", 128)), (("dtype", "fp16"),), "normal", "padded", 1, ()
    )
    problem = problem_of(rows(), case)
    x, x_map = problem.tensors[0], problem.arguments[-3]
    assert (x_map.dtype, x_map.sizes) == ("fp16", (128, 1, 2))
    assert x_map.strides_bytes == (2 * x.strides[1], 2 * x.strides[0])
    assert x.strides[1] > 128


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"strides_bytes": (120, 12800)}, "the stride of axis 1 is 120 bytes"),
        ({"strides_bytes": (2**40, 12800)}, "the stride of axis 1 is 1,099,511,627,776 bytes"),
        ({"sizes": (64, 2**32, 8)}, "axis 1 has 4,294,967,296 elements"),
        ({"box": (64, 257, 1)}, "257 elements along axis 1"),
        ({"box": (64, 0, 1)}, "0 elements along axis 1"),
        ({"box": (72, 32, 1)}, "144 bytes, and the swizzle spans 128"),
        ({"box": (4, 32, 1)}, "a row of the box takes 8 bytes"),
        ({"swizzle_bytes": 96}, "a swizzle of 96 bytes; it may be 0, 32, 64, 128"),
        ({"l2_promotion_bytes": 1}, "an L2 promotion of 1 bytes"),
        ({"dtype": "int32", "fill": "nan", "box": (32, 1, 1)}, "int32 cannot be filled with NaN"),
        ({"sizes": (1,) * 6}, "it has 6 axes"),
        ({"box": (64, 32)}, "3 sizes, 2 strides and a box of 2 sizes"),
    ],
)
def test_a_map_that_no_gpu_has_is_refused_with_its_number(change, words):
    assert misfit(TILE) is None
    assert words in str(misfit(replace(TILE, **change)))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('tensor = "x"', 'tensor = "z"', "known: x, y, partial"),
        ('name = "y_map"', 'name = "x_map"', "is the name of another argument"),
        ('name = "y_map"', 'name = "R"', "names are small letters"),
        ('box = ["width", "tile", "1"]', 'box = ["width", "tile"]', "the map has 3 axes"),
        ('box = ["width", "tile", "1"]', 'box = ["width", "R", "1"]', "unknown name 'R'"),
        ('box = ["width", "tile", "1"]', 'box = ["width"]\naxes = [1]', "the first is 2"),
        ('box = ["width", "tile", "1"]', 'box = ["1"]\naxes = [2, 2]', "different axes of x"),
        ('box = ["width", "tile", "1"]', 'box = ["1"]\naxes = []', "different axes of x"),
        ('box = ["width", "tile", "1"]', 'box = ["1"]\naxes = [[2]]', "different axes of x"),
        ('strides = ["C"]', "strides = []", "2 sizes and 0 strides"),
        ('dtype = "float32"\nsizes', "sizes", "'dtype' is missing"),
        ('fill = "nan"', 'fill = "one"', "fill"),
        ('fill = "nan"', "interleave = 1", "unknown key 'interleave'"),
        ("minimum_sm = 90\n", "", "minimum_sm = 90"),
        ("pointer_bytes = 16", "pointer_bytes = 8", "pointer_bytes = 16"),
    ],
)
def test_an_authors_mistake_is_named_when_the_kernel_is_read(rows, old, new, words):
    with pytest.raises(SpecError, match=r"rows/mapped\.toml") as refused:
        rows(old, new).kernel("rows")
    assert words in str(refused.value)


def test_a_box_that_fits_no_map_is_no_point(rows):
    kernel = rows().kernel("rows")
    space = Space(kernel.template("mapped"), (("dtype", "fp16"), ("C", 128)), device("h200"))
    assert {dict(point)["width"] for point in space.points} == {32, 64}
    reason = space.why_not((("tile", 64), ("width", 128)))
    assert reason.startswith("tensor map x_map: a row of the box takes 256 bytes")


def test_a_map_of_an_absent_workspace_is_refused_at_submit(rows):
    catalogue = rows('bytes = "B * R * 16"', 'bytes = "B * R * 16"\nwhen = "tile > 64"')
    problem_of(catalogue, tile=128)
    problem_of(catalogue, tile=32)
    with pytest.raises(UsageError, match="the workspace partial is absent") as refused:
        plan(catalogue, templates=("mapped",))
    assert refused.value.code == "tensor_map"


@pytest.mark.parametrize("number", ["tile / 3", "dtype", "tile > 3", "2.5"])
def test_a_number_that_is_not_whole_is_named(rows, number):
    catalogue = rows("swizzle_bytes = 128", f'swizzle_bytes = "{number}"')
    with pytest.raises(SpecError, match="a tensor map needs whole numbers") as refused:
        problem_of(catalogue)
    assert "rows/mapped.toml" in str(refused.value) and number in str(refused.value)


def plan(catalogue, **request):
    return make_plan(SearchRequest("rows", baseline="none", seed=1, **request), catalogue)


def test_a_workload_that_tma_cannot_copy_leaves_the_other_templates(rows):
    assert plan(rows()).templates == ("mapped", "plain")
    catalogue = rows("stride_elements = 8", "stride_elements = 1")
    assert plan(catalogue).templates == ("plain",)
    with pytest.raises(UsageError, match="padded tensors of workload small") as refused:
        plan(catalogue, templates=("mapped",))
    assert refused.value.code == "tensor_map"
    assert "a multiple of 8 elements of fp16" in str(refused.value)


def test_maps_and_specific_code_are_refused_on_other_devices(rows):
    catalogue = rows("minimum_sm = 90", "minimum_sm = 90\narch_specific = true")
    assert plan(catalogue).templates == ("mapped", "plain")
    assert plan(catalogue, target="emulator:l4").templates == ("plain",)
    with pytest.raises(UsageError, match="needs sm_90, and l4 is sm_89") as refused:
        plan(catalogue, templates=("mapped",), target="emulator:l4")
    assert "emulator:h200" in str(refused.value)
    template = catalogue.kernel("rows").template("mapped")
    blackwell = replace(device("h200"), name="b200", sm=100)
    reason = Space(template, (), blackwell).why_not(())
    assert reason == (
        "template mapped is compiled for sm_90a, which runs on sm_90 only, and b200 is sm_100"
    )


SPECIFIC = "minimum_sm = 90", "minimum_sm = 90\narch_specific = true"
TOO_LARGE = 'box = ["width", "tile", "1"]', 'box = ["width", "tile * 16", "1"]'


@pytest.mark.parametrize(
    ("old", "new", "target", "code", "what", "would_work"),
    [
        (*SPECIFIC, "emulator:l4", "empty_space", "needs sm_90, and l4 is sm_89", "emulator:h200"),
        (
            "pointer_bytes = 16",
            "pointer_bytes = 8",
            "emulator:h200",
            "tensor_map",
            "tensors at multiples of 16 bytes",
            "pointer_bytes = 16",
        ),
        (
            "stride_elements = 8",
            "stride_elements = 1",
            "emulator:h200",
            "tensor_map",
            "the stride of axis 1 is 258 bytes",
            "multiples of 16 bytes below 2**40",
        ),
        (
            *TOO_LARGE,
            "emulator:h200",
            "empty_space",
            "the box has 1,024 elements along axis 1",
            "1 to 256 are possible",
        ),
    ],
    ids=["another architecture", "an unaligned tensor", "a stride", "a box"],
)
def test_bad_input_is_refused_at_submit_with_what_would_work(
    rows, old, new, target, code, what, would_work
):
    with pytest.raises(GreenfastError) as refused:
        plan(rows(old, new), templates=("mapped",), target=target)
    assert refused.value.code == code
    assert what in str(refused.value) and would_work in str(refused.value)


SUBMITTED = """minimum_sm = 90
[[launches]]
grid = ["R", "B"]
block = [128]
[[tensor_maps]]
name = "x_map"
tensor = "x"
box = [64, 64, 1]
"""


@pytest.mark.parametrize(
    ("old", "new", "target", "code", "words"),
    [
        ("minimum_sm = 90", "", "emulator:h200", "bad_spec", "minimum_sm = 90"),
        ("", "", "emulator:l4", "empty_space", "needs sm_90, and l4 is sm_89"),
        ("64, 64", "64, 512", "emulator:h200", "empty_space", "1 to 256 are possible"),
        (
            "box = [64, 64, 1]",
            'sizes = ["C", "R"]\nstrides = ["C + 1"]\nbox = [64, 64]',
            "emulator:h200",
            "tensor_map",
            "multiples of 16 bytes below 2**40",
        ),
    ],
)
def test_so_is_that_of_a_submitted_source(rows, tmp_path, old, new, target, code, words):
    catalogue = rows()
    files = kernel_files(catalogue.kernel("rows"), catalogue.include_dirs)

    def submit():
        launch = SUBMITTED.replace(old or "-", new)
        submission = Submission("rows", "int a;", launch, entry="mine").checked()
        frozen = frozen_catalogue(files_with(files, "rows", submission), tmp_path / "frozen")
        return plan(frozen, templates=(submission.candidate.template,), target=target)

    with pytest.raises(GreenfastError) as refused:
        submit()
    assert refused.value.code == code and words in str(refused.value)


FIELDS = """
struct alignas(64) Map { unsigned long long words[16]; };
extern "C" __global__ void k(const unsigned short* x, unsigned* out, int before,
                             const __grid_constant__ Map map, int behind) {
    const unsigned* words = reinterpret_cast<const unsigned*>(&map);
    if (threadIdx.x < 32) out[threadIdx.x] = words[threadIdx.x];
    if (threadIdx.x == 0) {
        out[32] = *reinterpret_cast<const unsigned short* const*>(&map) - x;
        out[33] = before, out[34] = behind;
        out[35] = reinterpret_cast<unsigned long long>(&map) % 64;
    }
}
"""


@pytest.fixture(scope="module")
def fields(artifacts):
    return Kernel(prepared(artifacts), FIELDS)


def words_of(fields, tensor_map):
    run = fields.job(
        {"x": np.zeros(8, np.uint16)},
        {"out": np.zeros(36, np.uint32)},
        (7, TensorMapArgument(tensor_map), -9),
        block=32,
    )
    (result,) = fields.run(run)
    assert result.status == "finished", result
    return result.outputs["out"].view(np.uint32)


def test_the_emulators_kernel_receives_the_numbers(fields):
    words = words_of(fields, replace(TILE, fill="nan"))
    longs = words[:32].view(np.uint64)
    assert (words[32], words[33], words[34].astype(np.int32), words[35]) == (0, 7, -9, 0)
    assert list(longs[1:6]) == [64, 100, 8, 1, 1]
    assert list(longs[6:10]) == [128, 12800, 0, 0]
    assert list(words[20:31]) == [64, 32, 1, 1, 1, 3, 2, 128, 1, 7, 0x544D4150]
    assert not words[31:32].any()


@pytest.mark.parametrize("change", [{"buffer": "z"}, {"box": (300, 1, 1)}])
def test_a_job_with_a_wrong_map_is_refused(fields, change):
    with pytest.raises(UsageError, match="the tensor map 'm'"):
        words_of(fields, replace(TILE, **change))


def test_a_laid_out_problem_becomes_a_job_with_its_maps(rows):
    run = emulated_run(problem_of(rows()), "forward", "run", device=device("h200"))
    assert [type(argument) for argument in run.arguments[-4:]] == [
        PointerArgument,
        *[TensorMapArgument] * 3,
    ]
    assert {buffer.name for buffer in run.buffers if isinstance(buffer, Buffer)} >= {
        argument.tensor_map.buffer for argument in run.arguments[-3:]
    }
