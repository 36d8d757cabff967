"""`greenfast import` of kernels as people write them: names, attributes, sizes and their checks."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from test_import_kernel import (  # noqa: F401 (run is a fixture)
    ARGUMENTS,
    IN_OUT,
    SAXPY,
    SCALE,
    TUNE,
    outputs_of,
    run,
)

from greenfast.search.errors import SpecError
from greenfast.search.kernels.kernel_file import load_kernel


def test_attributes_and_a_declaration_before_the_entry_and_cub_are_as_a_launch_needs_them(run):  # noqa: F811
    parameters = "const float* x, float* y, int n, float a"
    sum_of_block = "cub::BlockReduce<float, block_size_x>::TempStorage place;"
    text = SAXPY.replace(
        "__global__ void saxpy(",
        f'#include <cub/cub.cuh>\nextern "C" __global__ void saxpy(\n{parameters});\n'
        "__launch_bounds__(block_size_x) __maxnreg__(64)\n__global__ void saxpy(",
        1,
    ).replace("    for", f"    __shared__ typename {sum_of_block}\n    for", 1)
    Path("saxpy.cu").write_text(text)
    code, _, err = run("import", "saxpy.cu", *TUNE, *ARGUMENTS)
    assert code == 0, err
    text = Path("kernels/saxpy/plain.cu.j2").read_text()
    assert "#include <cub/block/block_reduce.cuh>" in text and "cub.cuh>" not in text
    entry = "__launch_bounds__(block_size_x) __maxnreg__(64) void saxpy(const float*"
    assert f'extern "C" __global__ {entry}' in " ".join(text.split())
    assert text.count("saxpy(") == 1


def test_checks_go_beyond_a_tile_and_have_the_largest_number_at_the_end_of_a_row(run):  # noqa: F811
    assert run("import", "saxpy.cu", *TUNE, *ARGUMENTS)[0] == 0
    kernel = load_kernel(Path("kernels/saxpy"))
    checks = {check.name: dict(check.dims) for check in kernel.checks}
    tile = kernel.templates[0].tiles[0][1]({"block_size_x": 32, "per_thread": 4})
    assert checks["beyond_a_tile"]["n"]({"tile_of_n": tile}) == 257
    make_inputs = runpy.run_path("kernels/saxpy/reference.py")["make_inputs"]
    x, usual = (make_inputs({"n": 9}, {}, recipe, 1, {})["x"] for recipe in ("ends", "normal"))
    assert x.argmax() == 8 and x.argmin() == 0 and (x[1:-1] == usual[1:-1]).all()
    assert checks["ends"].keys() == {"n"}


def test_a_size_of_the_block_and_the_end_of_a_range_need_be_nowhere_else(run):  # noqa: F811
    Path("saxpy.cu").write_text(SAXPY.replace("int n, float a", "int n, float a, int most"))
    ranged = [text.replace("x:float32[n]", "x:float32[n]=range(0, most)") for text in ARGUMENTS]
    more = ("--arg", "most:int32=7", "--tune", "block_size_y=1,2")
    code, _, err = run("import", "saxpy.cu", *TUNE, *ranged, *more)
    assert code == 0, err
    reference = runpy.run_path("kernels/saxpy/reference.py")
    dims = dict(load_kernel(Path("kernels/saxpy")).workloads[0].dims)
    x = reference["make_inputs"](dims, {}, "normal", 1, {})["x"]
    assert x.min() > 0 and 5 < x.max() < 7


def test_a_size_that_an_argument_and_a_shape_both_are_is_not_changed(run):  # noqa: F811
    given = [text.replace("float32[n]", "float32[1000]") for text in ARGUMENTS]
    code, out, _ = run("import", "saxpy.cu", *TUNE, *given)
    assert code == 0 and "The size 1000 may be n." in out
    checks = [check.name for check in load_kernel(Path("kernels/saxpy")).checks]
    assert checks == ["imported", "ends", "other_constants"]


def test_parameters_may_have_the_names_of_a_copy_and_all_values_of_their_types(run):  # noqa: F811
    text = SCALE.replace("int n)", "int n, int step, unsigned long long seed, float first)")
    Path("scale.cu").write_text(text)
    more = ("step:int32=3", f"seed:uint64={2**64 - 1}", "first:float32=1e12", "n:int32=70")
    code, _, err = run(*IN_OUT, *(word for each in more for word in ("--arg", each)))
    assert code == 0, err
    kernel = load_kernel(Path("kernels/scale"))
    values = {each.name: each.value.text for each in kernel.arguments if each.value is not None}
    assert values == {"n": "n", "step": "step", "seed": "seed", "first": "first"}
    assert dict(kernel.constants)["seed"]({}) == -1
    assert outputs_of(kernel, {"n": 9})["x"]["value"].shape == (9,)


def test_a_bound_follows_the_change_of_a_tensor_and_the_step_of_its_type(run):  # noqa: F811
    Path("scale.cu").write_text(SCALE)
    assert run(*IN_OUT, "--arg", "n:int32=70")[0] == 0
    within = runpy.run_path("kernels/scale/reference.py")["within"]
    value = np.array([1.0, 1.001])
    whole, changed = within(value, "float32"), within(value, "float32", value - 1e-3)
    assert (whole["bound"] > 1e-4).all() and (changed["bound"] < 3e-6).all()
    assert (within(value, "fp16")["bound"] > np.spacing(np.float16(1.0))).all()
    assert (within(value, "int8")["bound"] == 0).all()


THREADS_OF_RACE = """#include <thrust/device_vector.h>
#define threads 64
__global__ void smooth(const float* w, float* x, int n) {
    __shared__ float s[threads];
    int i = blockIdx.x * threads + threadIdx.x;
    s[threadIdx.x] = i < n ? w[i] : 0;
    BARRIER
    if (i < n) x[i] = s[threads - 1 - threadIdx.x];
}
int main() { thrust::device_vector<float> v(5); }
"""


def test_a_plain_kernel_that_disagrees_with_itself_is_no_reference(run):  # noqa: F811
    """Headers that only the host code needed go with it."""
    given = [each.replace("]:inout", "]:output") for each in (*IN_OUT, "--arg", "n:int32=64")]
    for barrier in ("__syncthreads();", ""):
        Path("scale.cu").write_text(THREADS_OF_RACE.replace("BARRIER", barrier))
        assert run(*given, "--name", "race" if not barrier else "right")[0] == 0
    assert "//" in Path("kernels/race/plain.cu.j2").read_text().split("#include <thrust")[0][-3:]
    outputs = outputs_of(load_kernel(Path("kernels/right")), {"n": 64})
    assert np.isfinite(outputs["x"]["value"]).all()
    with pytest.raises(
        SpecError, match="is no reference, because x depends on the order"
    ) as failed:
        outputs_of(load_kernel(Path("kernels/race")), {"n": 64})
    assert "`greenfast check FILE.cu` finds races" in failed.value.mend


def test_a_launch_in_a_kernel_is_named(run):  # noqa: F811
    Path("scale.cu").write_text(
        SCALE.replace("if (i < n)", "if (n < 0) scale<<<1, 1>>>(x, w, n);\n")
    )
    code, _, err = run(*IN_OUT, "--arg", "n:int32=64")
    assert code == 2 and "scale.cu:4: a kernel is launched here" in err


INNER = """#define threads 64
#define first 1
__global__ void smooth(const float* w, float* x, int n) {
    int i = blockIdx.x * threads + threadIdx.x;
    if (i >= first && i < n - 1) x[i] = w[i - 1] + w[i + 1];
}
"""


@pytest.mark.slow
def test_a_kernel_that_writes_a_part_keeps_the_rest_and_a_candidate_has_to(run):  # noqa: F811
    Path("scale.cu").write_text(INNER)
    given = (*IN_OUT, "--tune", "first=1,0", "--arg", "n:int32=70")
    only_out = [each.replace("]:inout", "]:output") for each in given]
    assert run(*only_out, "--name", "all")[0] == 0
    code, out, _ = run("lint", "all")
    assert code == 2 and "leaves 2 of 70 elements of x unwritten, the first at [0]" in out
    assert "import again with --arg x:float32[...]:inout: the rest keeps its first values" in out
    assert run(*given)[0] == 0
    outputs = outputs_of(load_kernel(Path("kernels/scale")), {"n": 9})["x"]
    inputs = runpy.run_path("kernels/scale/reference.py")["make_inputs"]
    before = inputs({"n": 9}, {}, "normal", 1, {})["x_before"]
    assert (outputs["value"][[0, -1]] == before[[0, -1]]).all()
    assert run("trial", "scale", "--template", "plain", "--set", "threads=32")[0] == 0
    code, out, _ = run("trial", "scale", "--template", "plain", "--set", "first=0")
    assert code == 1 and "rejected" in out


# As a PyTorch extension has it: macros define host functions and launch, headers of PyTorch bring
# those of fp16 and <limits>, and defaults of template parameters are no constants.
EXTENSION = r"""
#include <torch/extension.h>
#define CHECK_TYPE(T) if ((T).dtype() != torch::kHalf) throw std::runtime_error("wrong type");
#define LAUNCH(threads) \
  { const int TILE = threads; clamp<TILE><<<n / TILE + 1, TILE>>>((half*)x.data_ptr(), n); }
#define BINDING(name) \
  void name(torch::Tensor x) { CHECK_TYPE(x) int n = x.numel(); LAUNCH(256) }
void elsewhere(torch::Tensor x);
template <const int TILE = 128, typename T = half> __global__ void clamp(T* x, int n) {
  int i = blockIdx.x * TILE + threadIdx.x;
  int half = n / 2;
  if (i < n && INT_MAX > half)
    x[i] = __hmul(x[i], __float2half(-std::numeric_limits<float>::infinity() < 0 ? 2.0f : 1.0f));
}
BINDING(clamp_half)
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("clamp", &clamp_half); m.def("e", elsewhere); }
"""


@pytest.mark.slow
def test_a_pytorch_extension_is_imported_without_its_host_code(run):  # noqa: F811
    Path("clamp.cu").write_text(EXTENSION)
    launch = ("--entry", "clamp<TILE>", "--tune", "TILE=128,64", "--grid", "ceil_div(n, TILE)")
    arguments = ("--arg", "x:fp16[n]:inout", "--arg", "n:int32=300", "--block", "TILE")
    code, out, err = run("import", "clamp.cu", *launch, *arguments)
    assert code == 0, err
    assert "left out, because they are host code: elsewhere, PYBIND11_MODULE" in out
    code, out, err = run("lint", "clamp")
    assert code == 0, out + err


def test_checks_have_multiples_of_the_steps_that_a_kernel_takes(run):  # noqa: F811
    steps = ("--multiple", "n=40")
    assert run("import", "saxpy.cu", *TUNE, *ARGUMENTS, *steps)[0] == 0
    kernel = load_kernel(Path("kernels/saxpy"))
    checks = {check.name: dict(check.dims)["n"]({"tile_of_n": 96}) for check in kernel.checks}
    imported = checks["imported"]
    assert checks["one_less"] == imported - 40 and checks["one_more"] == imported + 40
    assert checks["beyond_a_tile"] == 200  # of 2 * 96 + 1 = 193
    for wrong, sentence in (
        ("m=4", "there is no size 'm' (sizes: n)"),
        ("n=77", f"the import has n = {imported} (give a whole number that divides it)"),
        ("n=", f"the import has n = {imported} (give"),
    ):
        code, _, err = run("import", "saxpy.cu", *TUNE, *ARGUMENTS, "--multiple", wrong)
        assert code == 2 and f"--multiple {wrong}: {sentence}" in err
