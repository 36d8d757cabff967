"""The measuring child's memory: the span of runs, tensors kept on the device, and results."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from greenfast.search.oracle.problem import POISON
from greenfast.search.targets.cuda.arena import CANARY, Arena, head_bytes

TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3  # cudaMemcpyKind
KEPT_BYTES = 2**31  # of heads; a head larger than half of it is not kept
PINNED_BYTES = 2**29  # larger results are copied through pageable memory


class Span:
    """One growing allocation, so that jobs do not wait for cudaMalloc."""

    def __init__(self) -> None:
        self._held: cupy.cuda.Memory | None = None

    def take(self, size: int) -> int:
        """The device address of at least `size` bytes, aligned to 256.

        OutOfMemoryError when the device has no room; the host then need not lay the data out.
        """
        if self._held is None or self._held.size < size:
            self._held = None
            free = runtime.memGetInfo()[0]
            if size > free:
                raise cupy.cuda.memory.OutOfMemoryError(size, 0, 0)
            self._held = cupy.cuda.Memory(max(size, 2**20))
        return int(self._held.ptr)


@dataclass(frozen=True)
class Head:
    """Canaries and tensors before a run, on the host and (if kept) on the device."""

    host: np.ndarray
    device: cupy.cuda.MemoryPointer | None


class Heads:
    """Heads by content: candidates with the same tiles run on the same data."""

    def __init__(self) -> None:
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self._bytes = 0

    def get(self, described: Mapping[str, Any], arena: Arena) -> Head:
        key = Path(described["images"]).name  # its content, in whichever folder
        if key in self._heads:
            self._heads.move_to_end(key)
            return self._heads[key]
        host = head_bytes(described, arena)
        if host.nbytes > KEPT_BYTES // 2:
            return Head(host, None)
        while self._heads and self._bytes + host.nbytes > KEPT_BYTES:
            self._bytes -= self._heads.popitem(last=False)[1].host.nbytes
        device = cupy.cuda.alloc(host.nbytes)  # of CuPy's pool: cudaMalloc waits for the GPU
        runtime.memcpy(device.ptr, host.ctypes.data, host.nbytes, TO_DEVICE)
        runtime.deviceSynchronize()  # a pageable copy may return before the data has arrived
        self._heads[key], self._bytes = Head(host, device), self._bytes + host.nbytes
        return self._heads[key]

    def clear(self) -> None:
        self._heads.clear()
        self._bytes = 0
        cupy.get_default_memory_pool().free_all_blocks()


def start(base: int, head: Head, arena: Arena, stream: int) -> None:
    """Write the arena's bytes before a run to `base`, in the stream's order.

    Zeroed workspaces are left to `Loaded.launch`, which zeroes them before each pass.
    """
    start_tensors(base, head, arena, stream)
    if arena.total_bytes > arena.head_bytes:
        runtime.memsetAsync(
            base + arena.head_bytes, CANARY, arena.total_bytes - arena.head_bytes, stream
        )
        for offset, size in arena.offsets.values():
            if offset >= arena.head_bytes and size:
                runtime.memsetAsync(base + offset, POISON, size, stream)


def start_tensors(base: int, head: Head, arena: Arena, stream: int) -> None:
    """Like `start`, but workspaces keep their contents."""
    if head.device is not None:
        runtime.memcpyAsync(base, head.device.ptr, arena.head_bytes, ON_DEVICE, stream)
    else:
        runtime.memcpy(base, head.host.ctypes.data, arena.head_bytes, TO_DEVICE)
        runtime.deviceSynchronize()


def register(memory: np.ndarray) -> None:
    """Pin memory of others, so that copies to it are fast; it works without, too."""
    with suppress(runtime.CUDARuntimeError):
        runtime.hostRegister(memory.ctypes.data, memory.nbytes, 0)


def fetch(host: np.ndarray, base: int, stream: cupy.cuda.Stream) -> None:
    """Fill `host` with the bytes at `base`, in the stream's order, and wait for them."""
    runtime.memcpyAsync(host.ctypes.data, base, host.nbytes, TO_HOST, stream.ptr)
    stream.synchronize()


class Landing:
    """Host memory for results; valid until the next `fetch`."""

    def __init__(self) -> None:
        self._pinned: cupy.cuda.PinnedMemoryPointer | None = None

    def fetch(self, base: int, size: int, stream: cupy.cuda.Stream) -> np.ndarray:
        if size > PINNED_BYTES:
            host = np.empty(size, np.uint8)
            runtime.memcpy(host.ctypes.data, base, size, TO_HOST)
            return host
        if self._pinned is None or self._pinned.size() < size:
            self._pinned = None
            self._pinned = cupy.cuda.alloc_pinned_memory(max(size, 2**22))
        host = np.frombuffer(self._pinned, np.uint8, size)
        fetch(host, base, stream)
        return host
