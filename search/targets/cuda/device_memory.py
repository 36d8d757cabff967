"""The measuring child's memory: the span of runs, tensors kept on the device, and results."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from greenfast.search.oracle.problem import POISON
from greenfast.search.targets.cuda.arena import CANARY, Arena, head_bytes, write_head

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


class Head:
    """Canaries and tensors before a run, on the device (if kept), and on the host when needed."""

    def __init__(
        self,
        size: int,
        device: cupy.cuda.MemoryPointer | None = None,
        host: np.ndarray | None = None,
    ) -> None:
        self.bytes, self.device, self._host = size, device, host

    def copy_to(self, place: int, stream: int) -> None:
        """Write it to the device's address `place`, in the stream's order."""
        if self.device is not None:
            runtime.memcpyAsync(place, self.device.ptr, self.bytes, ON_DEVICE, stream)
            return
        assert self._host is not None, "one that is not on the device was read at once"
        runtime.memcpy(place, self._host.ctypes.data, self.bytes, TO_DEVICE)
        runtime.deviceSynchronize()

    def host(self, described: Mapping[str, Any], arena: Arena) -> np.ndarray:
        """Read from the file of the problem's images, which the parent keeps during its request."""
        if self._host is None:
            self._host = head_bytes(described, arena)
        return self._host


class Heads:
    """Heads by content: candidates with the same tiles run on the same data."""

    def __init__(self) -> None:
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self._bytes = 0
        self._staging = Landing()

    def get(self, described: Mapping[str, Any], arena: Arena) -> Head:
        key, size = Path(described["images"]).name, arena.head_bytes  # its content
        if key in self._heads:
            self._heads.move_to_end(key)
            return self._heads[key]
        if size > KEPT_BYTES // 2:
            return Head(size, host=head_bytes(described, arena))
        while self._heads and self._bytes + size > KEPT_BYTES:
            self._bytes -= self._heads.popitem(last=False)[1].bytes
        # New memory of the host would cost more than to read the file.
        staged = self._staging.room(size)
        write_head(described, arena, staged)
        device = cupy.cuda.alloc(size)  # of CuPy's pool: cudaMalloc waits for the GPU
        runtime.memcpy(device.ptr, staged.ctypes.data, size, TO_DEVICE)
        runtime.deviceSynchronize()  # a pageable copy may return before the data has arrived
        self._heads[key], self._bytes = Head(size, device), self._bytes + size
        return self._heads[key]

    def clear(self) -> None:
        self._heads.clear()
        self._bytes = 0
        cupy.get_default_memory_pool().free_all_blocks()


def start(base: int, head: Head, arena: Arena, stream: int) -> None:
    """Write the arena's bytes before a run to `base`, in the stream's order.

    Zeroed workspaces are left to `Loaded.launch`, which zeroes them before each pass.
    """
    head.copy_to(base, stream)
    if arena.total_bytes > arena.head_bytes:
        runtime.memsetAsync(
            base + arena.head_bytes, CANARY, arena.total_bytes - arena.head_bytes, stream
        )
        for offset, size in arena.offsets.values():
            if offset >= arena.head_bytes and size:
                runtime.memsetAsync(base + offset, POISON, size, stream)


def register(memory: np.ndarray) -> None:
    """Pin memory of others, so that copies to it are fast; it works without, too."""
    with suppress(runtime.CUDARuntimeError):
        runtime.hostRegister(memory.ctypes.data, memory.nbytes, 0)


def fetch(host: np.ndarray, base: int, stream: cupy.cuda.Stream) -> None:
    """Fill `host` with the bytes at `base`, in the stream's order, and wait for them."""
    runtime.memcpyAsync(host.ctypes.data, base, host.nbytes, TO_HOST, stream.ptr)
    stream.synchronize()


class Landing:
    """Pinned memory of the host; valid until the next use."""

    def __init__(self) -> None:
        self._pinned: cupy.cuda.PinnedMemoryPointer | None = None

    def fetch(self, base: int, size: int, stream: cupy.cuda.Stream) -> np.ndarray:
        """The bytes at the device's address `base`."""
        host = self.room(size)
        if size > PINNED_BYTES:
            runtime.memcpy(host.ctypes.data, base, size, TO_HOST)
        else:
            fetch(host, base, stream)
        return host

    def room(self, size: int) -> np.ndarray:
        """So many bytes, whatever they hold; pageable ones if there are very many."""
        if size > PINNED_BYTES:
            return np.empty(size, np.uint8)
        if self._pinned is None or self._pinned.size() < size:
            self._pinned = None
            self._pinned = cupy.cuda.alloc_pinned_memory(max(size, 2**22))
        return np.frombuffer(self._pinned, np.uint8, size)
