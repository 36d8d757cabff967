"""Expected outputs in files, by what they follow from, so that several processes compute them once.

Candidates with other tiles have cases of other names and layouts, whose inputs are often the same
byte for byte. A reference follows from the sizes, the options and the inputs alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import Case

ALIGN = 64  # of each array in a file, in bytes
LENGTH_BYTES = 8  # of the number before the description

Fields = Mapping[str, Mapping[str, np.ndarray | None]]  # output -> the fields of Expected


class KnownOutputs:
    """Files in `folder`, written atomically.

    Each process removes the oldest that it wrote, beyond `kept_bytes`. A file that is missing or
    cut off costs a computation and nothing else.
    """

    def __init__(self, folder: Path, kept_bytes: int) -> None:
        self._folder, self._kept_bytes = folder, kept_bytes
        self._own: OrderedDict[Path, int] = OrderedDict()  # bytes of the files that it wrote

    def get(self, key: str) -> dict[str, dict[str, np.ndarray | None]] | None:
        """The fields of each output; None when they are not known."""
        try:
            memory = np.fromfile(self._folder / key, np.uint8)
            return _read(memory)
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def put(self, key: str, outputs: Fields) -> None:
        """Write the fields of each output. A full disk is no error."""
        size = sum(
            array.nbytes
            for fields in outputs.values()
            for array in fields.values()
            if array is not None
        )
        if size > self._kept_bytes:
            return
        path = self._folder / key
        with suppress(OSError):
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    for part in _parts(outputs):
                        file.write(part)
                os.replace(name, path)
            except BaseException:
                os.unlink(name)
                raise
            self._own[path] = size
        while sum(self._own.values()) > self._kept_bytes:
            self._own.popitem(last=False)[0].unlink(missing_ok=True)


def outputs_key(
    kernel: KernelSpec, case: Case, inputs: Mapping[str, np.ndarray], *more: Hashable
) -> str:
    """Names everything that the outputs follow from; `more`: beside a plain call of `reference`."""
    known = hashlib.sha256()
    for part in (kernel.reference_text, kernel.reference_uses, case.dims, case.options, more):
        known.update(repr(part).encode() + b"\0")
    for name, array in sorted(inputs.items()):
        known.update(f"{name} {array.dtype.name} {array.shape}\0".encode())
        known.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return known.hexdigest()


def _parts(outputs: Fields) -> list[bytes]:
    """The parts of a file: the length of the description, the description, and the arrays."""
    described, arrays = [], []
    for name, fields in outputs.items():
        for field, array in fields.items():
            kind = None if array is None else (array.dtype.str, array.shape)
            described.append((name, field, kind))
            if array is not None:
                arrays.append(np.ascontiguousarray(array))
    text = json.dumps(described).encode()
    parts = [len(text).to_bytes(LENGTH_BYTES, "little"), text, _padding(LENGTH_BYTES + len(text))]
    for array in arrays:
        parts += [array.tobytes(), _padding(array.nbytes)]
    return parts


def _padding(size: int) -> bytes:
    return bytes(-size % ALIGN)


def _read(memory: np.ndarray) -> dict[str, dict[str, np.ndarray | None]]:
    length = int.from_bytes(memory[:LENGTH_BYTES].tobytes(), "little")
    described = json.loads(memory[LENGTH_BYTES : LENGTH_BYTES + length].tobytes())
    position = LENGTH_BYTES + length
    outputs: dict[str, dict[str, np.ndarray | None]] = {}
    for name, field, kind in described:
        fields = outputs.setdefault(name, {})
        if kind is None:
            fields[field] = None
            continue
        dtype, shape = np.dtype(kind[0]), tuple(kind[1])
        position += -position % ALIGN
        size = dtype.itemsize * math.prod(shape)
        fields[field] = memory[position : position + size].view(dtype).reshape(shape)
        position += size
    return outputs
