"""Values on their way to another machine: large arrays and texts travel once, by their digest.

A parcel is a pickle without its large arrays and texts. They are sent beside it, and a machine that
has one already needs no second copy. Only processes of greenfast exchange parcels: what a candidate
wrote is read by the child's own protocol first, and is bytes here.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

LARGE_BYTES = 16 * 1024  # below it an array or text travels in its parcel


@dataclass(frozen=True)
class Parcel:
    """A pickled value, and the digests of what is beside it, in the order of its arrival."""

    data: bytes
    digests: tuple[str, ...]


def packed(value: object) -> tuple[Parcel, dict[str, np.ndarray]]:
    """The value's parcel, and its large arrays by digest; a text or cubin is one of bytes."""
    arrays: dict[str, np.ndarray] = {}
    buffer = io.BytesIO()
    _Packer(buffer, arrays).dump(value)
    return Parcel(buffer.getvalue(), tuple(arrays)), arrays


def unpacked(parcel: Parcel, arrays: Mapping[str, np.ndarray]) -> Any:
    """The value; `arrays` holds at least the parcel's."""
    return _Unpacker(io.BytesIO(parcel.data), arrays).load()


def array_digest(array: np.ndarray) -> str:
    """SHA-256 of an array's bytes, type and shape."""
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, arrays: dict[str, np.ndarray]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._arrays = arrays
        self._digests: dict[int, str] = {}  # the same array is digested once

    def persistent_id(self, value: object) -> tuple[str, str] | None:
        if type(value) is np.ndarray:
            if _is_repeated(value):
                return None  # see reducer_override
            # Types of other packages (bfloat16) have no buffer that can be shared: they stay.
            is_shared = value.nbytes >= LARGE_BYTES and value.dtype.kind != "V"
            return ("array", self._sent(value, value)) if is_shared else None
        if type(value) is str and len(value) >= LARGE_BYTES:
            return "text", self._sent(value, np.frombuffer(value.encode(), np.uint8))
        if type(value) is bytes and len(value) >= LARGE_BYTES:
            return "bytes", self._sent(value, np.frombuffer(value, np.uint8))
        return None

    def reducer_override(self, value: Any) -> Any:
        """An array that repeats few elements travels as those: the gaps of an emulated buffer are
        gigabytes that are not read."""
        if type(value) is np.ndarray and _is_repeated(value):
            core = value[tuple(slice(0, 1 if step == 0 else None) for step in value.strides)]
            return np.broadcast_to, (core.copy(), value.shape)
        return NotImplemented

    def _sent(self, value: object, array: np.ndarray) -> str:
        digest = self._digests.get(id(value))
        if digest is None:
            digest = self._digests[id(value)] = array_digest(array)
            self._arrays[digest] = array
        return digest


def _is_repeated(array: np.ndarray) -> bool:
    """Whether the array is larger than the memory behind it."""
    pairs = zip(array.shape, array.strides, strict=True)
    return any(size > 1 and step == 0 for size, step in pairs)


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: Mapping[str, np.ndarray]) -> None:
        super().__init__(file)
        self._arrays = arrays

    def persistent_load(self, pid: Any) -> object:
        kind, digest = pid
        array = self._arrays[digest]
        if kind == "array":
            return array
        return array.tobytes().decode() if kind == "text" else array.tobytes()
