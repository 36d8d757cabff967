"""`read_when` of kernel.toml: inputs that a kernel does not read are left out of calls."""

from __future__ import annotations

import dataclasses
import re
import subprocess

import ml_dtypes
import numpy as np
import pytest
from runtime_bundles import STUB, built_stub, files_of, sealed, use

from greenfast.runtime.calls import Call, Prepared, prepare
from greenfast.runtime.cpp_header import header, tvm_ffi_source
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.loaded import LoadedKernels
from greenfast.runtime.program import TensorFacts
from greenfast.runtime.read_bundle import kernel_set
from greenfast.search.devices.facts import device
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.identity import semantics_digest
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import Tensor, lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.recordings.contents import operation_digest
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import resolve
from greenfast.search.toolchain.toolkit import find_toolkit

SHAPES = {"a": (64, 4096), "b": (4096, 4096), "bias": (4096,), "residual": (64, 4096)}
ARRAYS = {name: np.zeros(shape, ml_dtypes.bfloat16) for name, shape in SHAPES.items()}
X = '[[arguments]]\nname = "x"\nkind = "input"\n'


@pytest.fixture(scope="module")
def kernels() -> KernelSet:
    """Two shipped kernels of gemm, one with a bias, and the kernel.toml of today."""
    files = files_of("gemm-h100.zip")
    text = files["kernel.toml"].decode()
    for name in ("bias", "residual"):
        row = f'name = "{name}"\nkind = "input"\n'
        assert row in text
        text = text.replace(row, f"{row}read_when = \"{name} == 'yes'\"\n")
    whole = kernel_set(sealed({**files, "kernel.toml": text.encode()}), "gemm-h100.zip")
    chosen = {}
    for bias in ("no", "yes"):
        form = {"dtype": "bf16", "activation": "none", "bias": bias, "residual": "no"}
        chosen[bias] = next(
            program
            for program in whole.programs.values()
            if form.items() <= program.compiled.items() and not program.scratch
        )
    return dataclasses.replace(whole, programs=chosen, groups=(), has_library=False)


def only(kernels: KernelSet, *names: str) -> LoadedKernels:
    programs = {name: kernels.programs[name] for name in names}
    return LoadedKernels(dataclasses.replace(kernels, programs=programs), "emulator")


def arrays(*names: str) -> list[np.ndarray]:
    return [ARRAYS[name] for name in names]


def test_the_inputs_of_a_call_choose_the_kernel(kernels):
    both = only(kernels, "no", "yes")
    for given, bias in ((("a", "b"), "no"), (("a", "b", "bias"), "yes")):
        explained = both.explain(*arrays(*given))
        assert explained.kernel == kernels.programs[bias].name
    assert both.explain(*arrays("a", "b"), None, None).kernel == kernels.programs["no"].name
    with pytest.raises(UsageError, match="residual is given, but these kernels do not read it"):
        both.explain(*arrays("a", "b"), residual=ARRAYS["residual"])


@pytest.mark.parametrize(
    ("form", "given", "code", "sentence"),
    [
        ("yes", ("a", "b"), "missing_input", "the input bias is missing"),
        ("yes", ("a",), "missing_input", "the inputs b, bias are missing"),
        ("no", ("a", "b", "bias"), "unread_input", "bias is given, but these kernels do not read"),
    ],
)
def test_one_form_asks_for_what_it_reads(kernels, form, given, code, sentence):
    with pytest.raises(UsageError, match=sentence) as error:
        only(kernels, form).explain(*arrays(*given))
    assert error.value.code == code


@pytest.mark.slow
def test_python_and_cpp_pass_null_pointers(kernels, tmp_path, monkeypatch):
    """The driver gets the same addresses from both; a form without a kernel is refused."""
    (tmp_path / "greenfast_gemm.h").write_text(header(kernels))
    stub = built_stub(tmp_path)
    include = find_toolkit().include_dirs[0]
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}", f"-I{include}"]
    command += ["-o", str(tmp_path / "call"), str(STUB.parent / "call_unread.cpp")]
    subprocess.run([*command, str(stub.path), f"-Wl,-rpath,{tmp_path}"], check=True)
    output = subprocess.run([tmp_path / "call"], capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == [
        f"0 {0x1000} {0x2000} 0 0 {0x5000}",
        f"0 {0x1000} {0x2000} {0x3000} 0 {0x5000}",
        "801 0 0 0 0 0",
    ]
    use(stub, monkeypatch)
    stub.reset(5)
    facts = {name: TensorFacts("bf16", SHAPES[name], (4096, 1)) for name in ("a", "b")}
    state = prepare(kernels, Call(facts, {"bias": "no", "residual": "no"}, {}), 0)
    assert isinstance(state, Prepared), state
    assert state.plan.names == ("a", "b", "c")
    state.plan.launch([0x1000, 0x2000, 0x5000], 0)
    assert stub.launches()[0]["arguments"][:5] == [0x1000, 0x2000, 0, 0, 0x5000]


def test_the_module_of_tvm_ffi_takes_none(kernels):
    source = tvm_ffi_source(kernels)
    assert "tvm::ffi::Optional<tvm::ffi::TensorView> bias" in source
    parameters = re.search(r"void run\((.*)\)", source)[1]
    assert "String bias" not in parameters and "String activation" in parameters
    assert 'set(call.K, call.A_columns, "K");' in source  # a size that no tensor has by its name


def test_a_candidate_is_checked_with_null_pointers(broken_kernel):
    """Reading one is an access through a null pointer; a bundle's examples pass memory."""
    kernel = broken_kernel("kernel.toml", X, f"{X}read_when = \"dtype == 'bf16'\"\n").kernel("axpy")
    template = kernel.template("right")
    for dtype, is_null in (("fp16", True), ("bf16", False)):
        workload = dataclasses.replace(kernel.workload("odd"), options=(("dtype", dtype),))
        case, parameters = workload_case(workload, 0), dict(template.presets[0].parameters)
        complete = complete_parameters(template, parameters, workload.compile_time(kernel))
        point = resolve(template, complete, workload.compile_time(kernel), device("h200"))
        data = case_data(kernel, case)
        assert (lay_out(kernel, template, point, case, data).arguments[0] is None) is is_null
        whole = lay_out(kernel, template, point, case, data, unread_inputs=True)
        assert isinstance(whole.arguments[0], Tensor)


def test_the_condition_is_part_of_a_kernels_identity_and_of_no_recordings(broken_kernel, album):
    """Verdicts from before are not reused; the operation that was timed is the same."""
    kernel = album.kernel("axpy")
    edited = broken_kernel("kernel.toml", X, f"{X}read_when = \"dtype == 'bf16'\"\n").kernel("axpy")
    assert semantics_digest(edited) != semantics_digest(kernel)
    workloads = kernel.workloads[:1]
    assert operation_digest(edited, workloads) == operation_digest(kernel, workloads)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ('read_when = "N > 1"', "N"),
        ('read_when = "dtype =="', "read_when"),
    ],
)
def test_a_condition_over_anything_but_options_is_refused(broken_kernel, row, sentence):
    with pytest.raises(SpecError, match=sentence):
        broken_kernel("kernel.toml", X, f"{X}{row}\n").kernel("axpy")
