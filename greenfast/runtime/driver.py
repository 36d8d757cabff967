"""The CUDA driver through ctypes: contexts, modules, functions and launches.

Everything here works on the primary contexts, which PyTorch, CuPy and JAX use, too.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from greenfast.search.errors import Fault

LIBRARY_VARIABLE = "GREENFAST_LIBCUDA"  # another libcuda, for tests
LIBRARIES = ("libcuda.so.1", "libcuda.so")
MULTIPROCESSORS, MAJOR, MINOR, SHARED_OPT_IN = 16, 75, 76, 97  # CUdevice_attribute
MAX_DYNAMIC_SHARED = 8  # CUfunction_attribute
RELAXED = 2  # CUstreamCaptureMode
NO_BINARY = (200, 209, 218, 222)  # invalid image, no binary, invalid PTX, unsupported PTX version


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem_dynamic_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


@dataclass(frozen=True)
class DeviceFacts:
    ordinal: int
    name: str
    major: int
    minor: int
    multiprocessors: int
    smem_per_block_bytes: int

    @property
    def arch(self) -> str:
        return f"sm_{self.major}{self.minor}"


class ImageRefused(Exception):
    """The driver cannot load this machine code: it is of another GPU, or of a newer toolkit."""


class Driver:
    """The loaded libcuda. `launch` is the raw cuLaunchKernelEx."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self._check("cuInit", self.library.cuInit(0))
        self.launch: Callable[..., int] = self.library.cuLaunchKernelEx
        self.memset = self.library.cuMemsetD8Async
        self.memset.argtypes = (
            ctypes.c_uint64,
            ctypes.c_ubyte,
            ctypes.c_size_t,
            ctypes.c_void_p,
        )
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._lock = threading.Lock()

    def count(self) -> int:
        number = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(number))
        return number.value

    def facts(self, ordinal: int) -> DeviceFacts:
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, 256, self._device(ordinal))
        return DeviceFacts(
            ordinal,
            name.value.decode(errors="replace"),
            self._attribute(ordinal, MAJOR),
            self._attribute(ordinal, MINOR),
            self._attribute(ordinal, MULTIPROCESSORS),
            self._attribute(ordinal, SHARED_OPT_IN),
        )

    def current_device(self) -> int | None:
        """The device of this thread's context; None without a context."""
        context = ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(context))
        if not context.value:
            return None
        device = ctypes.c_int()
        self._call("cuCtxGetDevice", ctypes.byref(device))
        return device.value

    @contextmanager
    def on(self, ordinal: int) -> Iterator[None]:
        """Make the device's primary context current; restore the previous one afterwards."""
        if self.current_device() == ordinal:
            yield
            return
        with self._lock:
            if ordinal not in self._contexts:
                context = ctypes.c_void_p()
                self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device(ordinal))
                self._contexts[ordinal] = context
        self._call("cuCtxPushCurrent_v2", self._contexts[ordinal])
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    @contextmanager
    def beside_captures(self) -> Iterator[None]:
        """Loading memory for a kernel would break a capture of this thread in the global mode."""
        mode = ctypes.c_int(RELAXED)
        self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def load(self, image: bytes) -> ctypes.c_void_p:
        """A module in the current context; it is never unloaded."""
        module = ctypes.c_void_p()
        status = self.library.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(image))
        if status in NO_BINARY:
            raise ImageRefused(self.error_name(status))
        self._check("cuModuleLoadData", status)
        return module

    def function(
        self, module: ctypes.c_void_p, entry: str, smem_dynamic_bytes: int
    ) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        if smem_dynamic_bytes:  # even a little is too much beside what the kernel declares
            self.allow_shared(function, smem_dynamic_bytes)
        return function

    def allow_shared(self, function: ctypes.c_void_p, smem_dynamic_bytes: int) -> None:
        self._call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, smem_dynamic_bytes)

    def zero(self, address: int, size: int, stream: int) -> None:
        self._check("cuMemsetD8Async", self.memset(address, 0, size, stream))

    def failed(self, status: int, what: str) -> Fault:
        name = self.error_name(status)
        return Fault(f"{what} failed with {name}", code="cuda_error")

    def error_name(self, status: int) -> str:
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(status, ctypes.byref(text))
        return text.value.decode() if text.value else f"error {status}"

    def _device(self, ordinal: int) -> ctypes.c_int:
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        return device

    def _attribute(self, ordinal: int, attribute: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self._device(ordinal))
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        self._check(name, getattr(self.library, name)(*arguments))

    def _check(self, what: str, status: int) -> None:
        if status != 0:
            raise self.failed(status, what)


@cache
def driver() -> Driver:
    """The driver of this machine; Fault `no_driver` if there is none."""
    reasons = []
    for name in filter(None, (os.environ.get(LIBRARY_VARIABLE), *LIBRARIES)):
        try:
            return Driver(name)
        except OSError as error:
            reasons.append(str(error))
    raise Fault(
        f"the NVIDIA driver's library cannot be loaded: {reasons[0]}",
        code="no_driver",
        mend="install the driver, or load the bundle with device='emulator'",
    )


@cache
def device_facts(ordinal: int) -> DeviceFacts:
    return driver().facts(ordinal)
