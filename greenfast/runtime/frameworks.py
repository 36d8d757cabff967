"""Tensors of PyTorch, CuPy and NumPy under one interface; each is imported on first use."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import Any, Protocol

from greenfast.runtime.program import TensorFacts, bytes_of
from greenfast.search.errors import UsageError
from greenfast.search.text import one_line

HOST_DEVICE: int | None = None  # tests set it, with a driver that launches nothing
_TORCH_DTYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "float32",
    "float64": "float64",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
}
_NUMPY_DTYPES = {
    "float16": "fp16",
    **{name: name for name in ("float32", "float64", "int8", "int16", "int32", "int64", "uint8")},
}
_NUMPY_DTYPES["bfloat16"] = "bf16"


class Framework(Protocol):
    """The functions that a call needs for a library's tensors."""

    name: str

    def facts(self, tensor: Any) -> TensorFacts: ...

    def device(self, tensor: Any) -> int | None:
        """The CUDA device's ordinal; None for memory elsewhere."""

    def address(self, tensor: Any) -> int: ...

    def stream(self, device: int) -> int:
        """The handle of the caller's current stream on `device`."""

    def empty(self, facts: TensorFacts, like: Any) -> Any:
        """A new tensor on the device of `like`."""

    def copy(self, target: Any, source: Any) -> None:
        """Queue a copy of the elements of `source` on the caller's current stream."""

    def scratch(self, size: int, like: Any) -> Any:
        """`size` bytes that live until the launches queued on the current stream are done."""


class TorchTensors:
    name = "torch"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._names = {getattr(torch, name): ours for name, ours in _TORCH_DTYPES.items()}
        self._dtypes = {ours: dtype for dtype, ours in self._names.items()}
        self._raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def dtype(self, name: str) -> Any:
        return self._dtypes[name]

    def facts(self, tensor: Any) -> TensorFacts:
        name = self._names.get(tensor.dtype, str(tensor.dtype))
        return TensorFacts(name, tuple(tensor.shape), tuple(tensor.stride()))

    def device(self, tensor: Any) -> int | None:
        return tensor.get_device() if tensor.is_cuda else HOST_DEVICE

    def address(self, tensor: Any) -> int:
        return int(tensor.data_ptr())

    def stream(self, device: int) -> int:
        if HOST_DEVICE is not None:
            return 0
        if self._raw_stream is not None:
            return int(self._raw_stream(device))
        return int(self._torch.cuda.current_stream(device).cuda_stream)

    def empty(self, facts: TensorFacts, like: Any) -> Any:
        return self._torch.empty_strided(
            facts.shape, facts.strides, dtype=self._dtypes[facts.dtype], device=like.device
        )

    def copy(self, target: Any, source: Any) -> None:
        target.copy_(source)

    def scratch(self, size: int, like: Any) -> Any:
        return self._torch.empty(size, dtype=self._torch.uint8, device=like.device)


class CupyTensors:
    name = "cupy"

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def facts(self, tensor: Any) -> TensorFacts:
        return array_facts(tensor)

    def device(self, tensor: Any) -> int | None:
        return int(tensor.device.id)

    def address(self, tensor: Any) -> int:
        return int(tensor.data.ptr)

    def stream(self, device: int) -> int:
        with self._cupy.cuda.Device(device):
            return int(self._cupy.cuda.get_current_stream().ptr)

    def empty(self, facts: TensorFacts, like: Any) -> Any:
        with like.device:
            return strided_array(self._cupy, facts)

    def copy(self, target: Any, source: Any) -> None:
        with target.device:
            target[...] = source

    def scratch(self, size: int, like: Any) -> Any:
        with like.device:
            return self._cupy.empty(size, dtype="uint8")


class NumpyArrays:
    """Memory of this machine, for the emulator only."""

    name = "numpy"

    def facts(self, tensor: Any) -> TensorFacts:
        return array_facts(tensor)

    def device(self, tensor: Any) -> int | None:
        return None

    def address(self, tensor: Any) -> int:
        return int(tensor.ctypes.data)

    def stream(self, device: int) -> int:
        return 0

    def empty(self, facts: TensorFacts, like: Any) -> Any:
        import numpy

        return strided_array(numpy, facts)

    def copy(self, target: Any, source: Any) -> None:
        target[...] = source

    def scratch(self, size: int, like: Any) -> Any:
        import numpy

        return numpy.empty(size, "uint8")


def array_facts(array: Any) -> TensorFacts:
    item = int(array.dtype.itemsize)
    name = _NUMPY_DTYPES.get(str(array.dtype), str(array.dtype))
    if any(stride % item for stride in array.strides):
        raise UsageError(
            "an array's strides are not multiples of its elements",
            code="bad_strides",
            mend="copy it: array.copy()",
        )
    return TensorFacts(name, tuple(array.shape), tuple(stride // item for stride in array.strides))


def numpy_dtype(name: str) -> Any:
    import numpy

    if name == "bf16":
        try:
            return numpy.dtype(importlib.import_module("ml_dtypes").bfloat16)
        except ImportError:
            raise UsageError(
                "bfloat16 arrays need the package ml_dtypes", code="missing_package"
            ) from None
    return numpy.dtype("float16" if name == "fp16" else name)


def strided_array(library: Any, facts: TensorFacts) -> Any:
    """A new array of NumPy or CuPy with these strides, none of which is negative."""
    dtype = numpy_dtype(facts.dtype)
    memory = library.empty(bytes_of(facts) // dtype.itemsize, dtype)
    strides = tuple(stride * dtype.itemsize for stride in facts.strides)
    return library.lib.stride_tricks.as_strided(memory, facts.shape, strides)


_TENSORS = {"torch": "Tensor", "cupy": "ndarray", "numpy": "ndarray"}  # by their modules


@cache
def _named(name: str) -> Framework:
    if name == "torch":
        return TorchTensors(importlib.import_module("torch"))
    if name == "cupy":
        return CupyTensors(importlib.import_module("cupy"))
    return NumpyArrays()


def framework_of(tensor: Any) -> Framework | None:
    """The library of a tensor; None for those that are met through DLPack only."""
    for kind in type(tensor).__mro__:
        root = kind.__module__.partition(".")[0]
        if _TENSORS.get(root) == kind.__name__:
            return _named(root)
    return None


def through_dlpack(tensor: Any) -> Any:
    """The same memory as a tensor of PyTorch or CuPy, whichever is there; UsageError without both.

    The exporter makes its work visible to the current stream, as DLPack requires.
    """
    kind = type(tensor).__name__
    if not hasattr(type(tensor), "__dlpack__"):
        raise UsageError(f"{kind} is not a tensor: it has no __dlpack__", code="not_a_tensor")
    if framework_of(tensor) is not None and min(tensor.strides, default=0) < 0:
        # PyTorch 2.13 ends the process on one.
        raise UsageError(
            f"the {kind} has negative strides, which neither PyTorch nor the kernels take",
            code="bad_strides",
            mend="copy it: array.copy()",
        )
    for name in sorted(("torch", "cupy"), key=lambda name: name not in sys.modules):
        try:
            library = importlib.import_module(name)
        except ImportError:
            continue
        try:
            return library.from_dlpack(tensor)
        except Exception as error:  # of the exporter, or of the importing library
            raise UsageError(
                f"{name} cannot take the {kind} through DLPack: {one_line(str(error))}",
                code="not_a_tensor",
            ) from error
    raise UsageError(
        f"{kind} is converted through DLPack, which needs PyTorch or CuPy",
        code="missing_package",
    )


# Libraries whose arrays come from DLPack, and where the function is.
_HOMES = {"cupy": "cupy", "jax": "jax.dlpack", "jaxlib": "jax.dlpack", "numpy": "numpy"}


def returned_like(original: Any, result: Any) -> Any:
    """`result` in the library of `original`, through its own from_dlpack."""
    root = type(original).__module__.partition(".")[0]
    if root in _HOMES:
        return importlib.import_module(_HOMES[root]).from_dlpack(result)
    return result
