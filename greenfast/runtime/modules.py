"""Machine code of programs on devices: chosen, loaded once, and looked up by name."""

from __future__ import annotations

import ctypes
import logging
import re
import threading
from collections.abc import Mapping

from greenfast.runtime.driver import DeviceFacts, Driver, ImageRefused
from greenfast.runtime.program import Program
from greenfast.search.errors import Fault, UsageError
from greenfast.search.text import one_line, shortened

_ARCH = re.compile(r"sm_(\d{1,2})(\d)([af]?)\Z")
LONGEST_REASON = 400
log = logging.getLogger("greenfast.runtime")


def fitting(cubins: Mapping[str, bytes], facts: DeviceFacts) -> list[str]:
    """The architectures among `cubins` that run on the device, the newest first.

    Machine code runs on GPUs of its major version and of the same or a higher minor one; with the
    suffix `a` on exactly its own.
    """
    usable = []
    for arch in cubins:
        match = _ARCH.match(arch)
        if not match:
            continue
        major, minor, suffix = int(match.group(1)), int(match.group(2)), match.group(3)
        own = (major, minor) == (facts.major, facts.minor)
        if own or (suffix != "a" and major == facts.major and minor <= facts.minor):
            usable.append((minor, suffix, arch))
    return [arch for _, _, arch in sorted(usable, reverse=True)]


class Modules:
    """Loaded functions by program, device, entry and shared memory."""

    def __init__(self) -> None:
        self._modules: dict[tuple[str, int], ctypes.c_void_p] = {}
        self._functions: dict[tuple[str, int, str], tuple[ctypes.c_void_p, int]] = {}
        self._lock = threading.Lock()

    def function(
        self, driver: Driver, program: Program, facts: DeviceFacts, entry: str, smem_bytes: int
    ) -> ctypes.c_void_p:
        """The entry's function on the device, with consent to `smem_bytes` of shared memory.

        UsageError if the device has less; Fault if no machine code can be had.
        """
        if smem_bytes > facts.smem_per_block_bytes:
            raise UsageError(
                f"the kernel needs {smem_bytes} bytes of shared memory a block, and "
                f"{facts.name} has {facts.smem_per_block_bytes}",
                code="other_gpu",
            )
        with self._lock, driver.on(facts.ordinal), driver.beside_captures():
            key = program.identity, facts.ordinal, entry
            if key not in self._functions:
                module = self._module(driver, program, facts)
                self._functions[key] = driver.function(module, entry, smem_bytes), smem_bytes
            function, allowed = self._functions[key]
            if smem_bytes > allowed:
                driver.allow_shared(function, smem_bytes)
                self._functions[key] = function, smem_bytes
            return function

    def _module(self, driver: Driver, program: Program, facts: DeviceFacts) -> ctypes.c_void_p:
        key = program.identity, facts.ordinal
        if key not in self._modules:
            self._modules[key] = _loaded(driver, program, facts)
        return self._modules[key]


def _loaded(driver: Driver, program: Program, facts: DeviceFacts) -> ctypes.c_void_p:
    refusals = []
    for arch in fitting(program.cubins, facts):
        try:
            return driver.load(program.cubins[arch])
        except ImageRefused as error:
            refusals.append(f"{arch}: {error}")
    if refusals:
        log.warning("%s: the driver refuses its machine code (%s)", program.name, refusals[0])
    from greenfast.runtime.nvrtc import compiled  # only here is a compiler needed

    arch = facts.arch
    if program.arch.endswith("a"):
        arch += "a"
        if program.arch != arch:
            raise UsageError(
                f"the kernel is written for {program.arch} alone, and {facts.name} is {facts.arch}",
                code="other_gpu",
            )
    try:
        return driver.load(compiled(program.source, arch))
    except Fault as error:
        built = ", ".join(sorted(program.cubins)) or "no GPU"
        raise Fault(
            f"{program.name} has machine code for {built}, {facts.name} is {facts.arch}, and its "
            f"source cannot be compiled for that: {shortened(one_line(error), LONGEST_REASON)}",
            code=error.code,
        ) from None
    except ImageRefused as error:
        raise Fault(
            f"the driver refuses the machine code that NVRTC made for {facts.arch}: {error}",
            code="no_machine_code",
            mend="update the driver, or set GREENFAST_CUDA to an older toolkit",
        ) from None


MODULES = Modules()
