"""Tensor maps in the C++ header: the same numbers as the runtime encodes for the same call."""

from __future__ import annotations

import dataclasses
import subprocess

import pytest
from runtime_bundles import SETS, STUB, built_stub, use

import greenfast
from greenfast.runtime.calls import Prepared, prepare
from greenfast.runtime.cpp_header import header
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.program import TensorFacts
from greenfast.runtime.signatures import attention_call
from greenfast.search.toolchain.toolkit import find_toolkit

CALL = STUB.parent / "call_maps.cpp"
NOT_SUPPORTED = "801"  # CUDA_ERROR_NOT_SUPPORTED


@pytest.fixture(scope="module")
def mapped() -> KernelSet:
    """A shipped kernel that takes three tensor maps, alone."""
    kernels = greenfast.load(SETS / "attention-h200.zip").kernels
    compiled = {"D": 64, "dtype": "bf16", "mask": "none"}
    name, program = next(
        (name, program)
        for name, program in kernels.programs.items()
        if program.compiled == compiled and len(program.tensor_maps) == 3 and not program.scratch
    )
    return dataclasses.replace(kernels, programs={name: program}, groups=(), has_library=False)


@pytest.mark.slow
def test_cpp_encodes_the_maps_that_python_encodes(mapped, tmp_path, monkeypatch):
    (tmp_path / "greenfast_attention.h").write_text(header(mapped))
    stub = built_stub(tmp_path)
    include = find_toolkit().include_dirs[0]
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}", f"-I{include}"]
    command += ["-o", str(tmp_path / "call"), str(CALL), str(stub.path), f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(command, check=True)
    output = subprocess.run([tmp_path / "call"], capture_output=True, text=True, check=True).stdout
    lines = output.splitlines()

    use(stub, monkeypatch)
    facts, address, addresses = {}, 0x1000, []
    for name, heads, rows in (("q", 8, 256), ("k", 4, 200), ("v", 4, 200), ("o", 8, 256)):
        facts[name] = TensorFacts("bf16", (1, heads, rows, 64), (8, 64, 64 * heads, 1))
        addresses.append(address)
        address += 64 * heads * rows * 2
    stub.reset(22)
    inputs = {name: facts[name] for name in "qkv"}
    state = prepare(mapped, attention_call(inputs, "none", None, grouped=True, lse=False), 0)
    assert isinstance(state, Prepared), state
    for number in range(3):
        stub.reset(22)
        stub.library.stub_show_map(22 + number)
        state.plan.launch(addresses, 0)
        words = stub.launches()[0]["arguments"][22:38]
        assert words[1] == 4 and words[0] in addresses
        assert lines[2 * number].split() == ["0", *map(str, words)]
        assert lines[2 * number + 1] == NOT_SUPPORTED
