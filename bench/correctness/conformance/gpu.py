"""Cases on a GPU: compiled side by side, and launched by the driver in a child that can be killed.

Only cuda-bindings and NVRTC are needed, which every installation of greenfast has.
"""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from bench.correctness.conformance.case import POISON, Case
from bench.results import ROOT
from greenfast.search.cores import usable_cores
from greenfast.search.digest import text_digest
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource
from greenfast.search.toolchain import CompileFailed, Cubin, Toolchain

HEADERS = ROOT / "kernel_templates" / "include"
LAUNCH_DEADLINE_S = 20.0
START_DEADLINE_S = 120.0


def flattened(source: str) -> str:
    """The source with the device form of its `gf/` headers in place of their first includes."""
    done: set[str] = set()

    def lines(text: str) -> Iterator[str]:
        for line in text.splitlines():
            include = re.match(r'\s*#\s*include\s+"(gf/[\w./-]+)"', line)
            if include and include.group(1) not in done:
                done.add(include.group(1))
                yield from lines((HEADERS / include.group(1)).read_text())
            elif not include and not re.match(r"\s*#\s*pragma\s+once", line):
                yield line

    return "\n".join(lines(source)) + "\n"


def device_source(case: Case) -> RenderedSource:
    """The text that NVRTC compiles."""
    text = flattened(case.source)
    lines = tuple(Line(case.name, number) for number, _ in enumerate(text.splitlines(), 1))
    return RenderedSource(text, text_digest(text), lines, text, ("k",), False)


def runs_on(case: Case, architecture: int) -> bool:
    if case.arch_specific:
        return architecture == case.architecture
    return architecture >= case.architecture


def arch_of(case: Case, architecture: int) -> str:
    return f"sm_{architecture}{'a' if case.arch_specific else ''}"


def compiled(
    cases: Sequence[Case], architecture: int, cache_folder: Path
) -> dict[str, Cubin | CompileFailed]:
    """Each case's machine code, by its name. Equal texts are compiled once."""
    texts = {(case.source, case.arch_specific): case for case in cases}
    cores = usable_cores()
    toolchain = Toolchain(cache_folder, cores, deadline_s=300)

    def compile_text(case: Case) -> Cubin | CompileFailed:
        return toolchain.compile(device_source(case), arch_of(case, architecture))

    try:
        with ThreadPoolExecutor(cores) as pool:
            codes = dict(zip(texts, pool.map(compile_text, texts.values()), strict=True))
    finally:
        toolchain.close()
    return {case.name: codes[case.source, case.arch_specific] for case in cases}


class Launcher:
    """Launches cases one after the other; a case that crashes or hangs costs no other case."""

    def __init__(self) -> None:
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def facts(self) -> dict[str, Any]:
        """The device's name, its architecture and its driver's version."""
        return self._asked(None, b"")

    def outputs(self, case: Case, code: bytes) -> dict[str, np.ndarray]:
        """RuntimeError with the reason when the case fails; the next one gets a new child."""
        return self._asked(case, code)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def _asked(self, case: Case | None, code: bytes) -> Any:
        pipe, deadline_s = self._pipe, LAUNCH_DEADLINE_S
        if pipe is None:
            pipe, deadline_s = self._start(), START_DEADLINE_S
        try:
            pipe.send((case, code))
            if not pipe.poll(deadline_s):
                raise RuntimeError(f"no end within {deadline_s:g} s")
            reply = pipe.recv()
        except (EOFError, OSError) as lost:
            self.close()
            raise RuntimeError("the launching process ended without a reply") from lost
        except RuntimeError:
            self.close()
            raise
        if isinstance(reply, str):
            self.close()  # an error of a launch stays with the process
            raise RuntimeError(reply)
        return reply

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        self._pipe, end = context.Pipe()
        self._process = context.Process(target=_serve, args=(end,), daemon=True)
        self._process.start()
        end.close()
        return self._pipe


def _serve(pipe: Connection) -> None:
    """The child: a reply to each (case, code), and the device's facts to (None, b"")."""
    device = _device()
    while True:
        try:
            case, code = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_facts(device) if case is None else launched(case, code))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")


def _done(answer: tuple[Any, ...]) -> Any:
    """The result of a call of the driver, apart from its status."""
    status, *results = answer
    if status.value:
        raise RuntimeError(f"the driver answers {status.name}")
    return results[0] if results else None


def _device() -> Any:
    """The first GPU, whose primary context becomes this thread's."""
    from cuda.bindings import driver

    _done(driver.cuInit(0))
    device = _done(driver.cuDeviceGet(0))
    _done(driver.cuCtxSetCurrent(_done(driver.cuDevicePrimaryCtxRetain(device))))
    return device


def _facts(device: Any) -> dict[str, Any]:
    from cuda.bindings import driver

    attributes = driver.CUdevice_attribute
    major, minor = (
        _done(driver.cuDeviceGetAttribute(attribute, device))
        for attribute in (
            attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    return {
        "device": _done(driver.cuDeviceGetName(256, device)).split(b"\0")[0].decode(),
        "architecture": 10 * major + minor,
        "driver": _done(driver.cuDriverGetVersion()),
    }


def launched(case: Case, code: bytes) -> dict[str, np.ndarray]:
    """The outputs of one launch in the current context; RuntimeError with the driver's error."""
    from cuda.bindings import driver

    image = np.frombuffer(code, np.uint8)
    module = _done(driver.cuModuleLoadData(image.ctypes.data))
    function = _done(driver.cuModuleGetFunction(module, b"k"))
    if case.smem_dynamic_bytes:
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _done(driver.cuFuncSetAttribute(function, attribute, case.smem_dynamic_bytes))
    addresses = {}
    for name, value in (*case.inputs.items(), *case.outputs.items()):
        addresses[name] = int(_done(driver.cuMemAlloc(max(value.nbytes, 1))))
    for name, value in case.inputs.items():
        host = np.ascontiguousarray(value)
        _done(driver.cuMemcpyHtoD(addresses[name], host.ctypes.data, host.nbytes))
    for name, value in case.outputs.items():
        # As on the emulator: bytes that the kernel does not write must agree, too.
        _done(driver.cuMemsetD8(addresses[name], POISON, value.nbytes))
    parameters = [np.array(address, np.uint64) for address in addresses.values()]
    parameters += [_encoded(each.numbers(), addresses) for each in case.maps]
    places = np.array([each.ctypes.data for each in parameters], np.uint64)
    _done(
        driver.cuLaunchKernel(
            function, *case.grid, *case.block, case.smem_dynamic_bytes, 0, places.ctypes.data, 0
        )
    )
    _done(driver.cuCtxSynchronize())
    outputs = {}
    for name, value in case.outputs.items():
        outputs[name] = np.empty_like(value, order="C")
        host = outputs[name].ctypes.data
        _done(driver.cuMemcpyDtoH(host, addresses[name], value.nbytes))
    for address in addresses.values():
        _done(driver.cuMemFree(address))
    _done(driver.cuModuleUnload(module))
    return outputs


def _encoded(numbers: Mapping[str, Any], addresses: Mapping[str, int]) -> np.ndarray:
    """The 128 bytes of a map, by the code that the GPU target uses."""
    from greenfast.search.targets.cuda.tensor_maps import encoded

    encoded_map = encoded(numbers, addresses[numbers["buffer"]])
    return np.frombuffer(encoded_map.tobytes(), np.uint8)
