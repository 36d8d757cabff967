"""A `cupy` without a GPU: host memory, a clock that counts work, and kernels in Python.

As a program it is the real measuring child on this `cupy`. A "cubin" is the name of a kernel below,
perhaps with a factor on its times: `honest 1000`. Launches take as long as their work, and 1 us
more; from the host 6 us more. Each kernel computes
y = 2 x in float32, or behaves as if it did; `w` is its workspace.
"""

from __future__ import annotations

import ctypes
import sys
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

WORK_US, KEPT_US, SKIPPED_US = 30.0, 3.0, 1.0
DENSE_US = 2.0
STREAM = 1


class Clock:
    now_us = 0.0


class Call:
    """One launch: its arrays, the module's memory, and the time since the launch before."""

    def __init__(self, memory: dict[str, Any], arguments: tuple[Any, ...]) -> None:
        x, y, w, count = map(int, arguments)
        self.memory, self.address = memory, y
        self.x, self.y, self.w = (
            np.ctypeslib.as_array((ctypes.c_float * count).from_address(place))
            for place in (x, y, w)
        )
        self.count = memory["count"] = memory.get("count", 0) + 1
        self.gap_us = Clock.now_us - memory.get("end_us", -1e9)

    def work(self) -> float:
        self.y[:] = 2 * self.x
        return WORK_US

    def skip(self) -> float:
        return SKIPPED_US


def honest(call: Call) -> float:
    return call.work()


def adds(call: Call) -> float:
    call.y[:] += 2 * call.x
    return WORK_US


def honest_in_steps(call: Call) -> float:
    call.w[:] = call.x
    call.y[:] = call.w + call.w
    return WORK_US * (1 + call.count % 3 / 10)


def first_launches(call: Call) -> float:
    return call.work() if call.count <= 100 else call.skip()


def every_other(call: Call) -> float:
    return call.skip() if call.count % 2 else call.work()


def known_address(call: Call) -> float:
    known = call.memory.setdefault("known", {})
    if call.address in known:
        call.y[:] = known[call.address]
        return KEPT_US
    took_us = call.work()
    known[call.address] = call.y.copy()
    return took_us


def first_address(call: Call) -> float:
    first = call.memory.setdefault("first", call.address)
    return call.work() if call.address == first else call.skip()


def known_content(call: Call) -> float:
    key = call.x.tobytes()
    if call.memory.get("key") == key:
        call.y[:] = call.memory["answer"]
        return KEPT_US
    took_us = call.work()
    call.memory.update(key=key, answer=call.y.copy())
    return took_us


def some_content(call: Call) -> float:
    key = call.x[::7].tobytes()
    if call.memory.get("key") == key:
        call.y[:] = call.memory["answer"]
        return KEPT_US
    took_us = call.work()
    call.memory.update(key=key, answer=call.y.copy())
    return took_us


def in_the_workspace(call: Call) -> float:
    if not np.isnan(call.w).any():
        call.y[:] = call.w
        return KEPT_US
    took_us = call.work()
    call.w[:] = call.y
    return took_us


def there_already(call: Call) -> float:
    return call.skip() if (call.y == 2 * call.x).all() else call.work()


def in_a_row(call: Call) -> float:
    return call.skip() if call.gap_us < DENSE_US else call.work()


def in_a_row_at_one_address(call: Call) -> float:
    same = call.memory.get("last") == call.address
    call.memory["last"] = call.address
    return call.skip() if same and call.gap_us < DENSE_US else call.work()


def late_in_a_row_at_one_address(call: Call) -> float:
    """Works in the first launches of each row."""
    same = call.memory.get("last") == call.address and call.gap_us < 10
    call.memory["last"] = call.address
    call.memory["row"] = call.memory.get("row", 0) + 1 if same else 0
    return call.skip() if call.memory["row"] > 10 else call.work()


def late_one_by_one(call: Call) -> float:
    """Works in the first launches that come as a timing's do, and after every copy."""
    as_timed = call.gap_us < 11 or 15 < call.gap_us < 21
    call.memory["row"] = call.memory.get("row", 0) + 1 if as_timed else 0
    return call.skip() if call.memory["row"] > 10 else call.work()


def until_a_pause(call: Call) -> float:
    """Works until it has been launched often without a pause."""
    call.memory["row"] = call.memory.get("row", 0) + 1 if call.gap_us < 1500 else 0
    return call.skip() if call.memory["row"] > 100 else call.work()


def known_in_a_row(call: Call) -> float:
    if call.gap_us > DENSE_US:
        call.memory["known"] = set()
    if call.address in call.memory["known"]:
        return call.skip()
    call.memory["known"].add(call.address)
    return call.work()


def spoils_what_is_kept(call: Call) -> float:
    """Writes to memory that is not its own: the inputs that stay on the device for others."""
    for memory in Memory.all:
        if not memory.ptr <= call.address < memory.ptr + memory.size:
            ctypes.memset(memory.ptr, 0, memory.size)
    return call.work()


def writes_its_input(call: Call) -> float:
    took_us = call.work()
    call.x[0] = 7
    return took_us


def sampled(call: Call) -> float:
    call.y[::2] = 2 * call.x[::2]
    return WORK_US / 2


class Memory:
    all: ClassVar[weakref.WeakSet[Memory]] = weakref.WeakSet()

    def __init__(self, size: int) -> None:
        Memory.all.add(self)
        self.size = size
        self._room = ctypes.create_string_buffer(size + 256)
        self.ptr = -(-ctypes.addressof(self._room) // 256) * 256


class Pinned(bytearray):
    def size(self) -> int:
        return len(self)


class Graph:
    def __init__(self, nodes: list[Callable[[], None]]) -> None:
        self.nodes = nodes

    def upload(self, stream: Any) -> None:
        """Nothing to do."""

    def launch(self, stream: Any = None) -> None:
        Clock.now_us += 6.0
        for node in self.nodes:
            Clock.now_us += 1.0
            node()


class Stream:
    """The only stream; what is queued is done at once, or recorded."""

    ptr = STREAM
    recorded: list[Callable[[], None]] | None = None

    def __init__(self, non_blocking: bool = False) -> None:
        """One stream is as good as another."""

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to do."""

    def synchronize(self) -> None:
        """Everything is done."""

    def begin_capture(self) -> None:
        Stream.recorded = []

    def end_capture(self) -> Graph:
        nodes, Stream.recorded = Stream.recorded, None
        return Graph(nodes or [])


def queued(work: Callable[[], None]) -> None:
    if Stream.recorded is not None:
        Stream.recorded.append(work)
        return
    Clock.now_us += 6.0
    work()


class Event:
    at_us = 0.0

    def record(self, stream: Any) -> None:
        self.at_us = Clock.now_us


class RawModule:
    def __init__(self, path: str) -> None:
        name, _, factor = Path(path).read_text().partition(" ")
        self._kernel, self._factor = globals()[name], float(factor or 1)
        self._memory: dict[str, Any] = {}

    def get_function(self, entry: str) -> Any:
        def launch(grid: Any, block: Any, arguments: tuple[Any, ...], shared_mem: int) -> None:
            def work() -> None:
                Clock.now_us += self._factor * self._kernel(Call(self._memory, arguments))
                self._memory["end_us"] = Clock.now_us

            queued(work)

        return launch


class Health:
    version = "none"

    def __init__(self, number: int) -> None:
        """There is no GPU."""

    def quiet(self, deadline_s: float) -> dict[str, float]:
        return {}

    def now(self) -> dict[str, float]:
        Clock.now_us += 2000.0  # a pause that launches could notice
        return {}


def fake() -> types.ModuleType:
    def memset(address: int, value: int, size: int, stream: int) -> None:
        queued(lambda: ctypes.memset(address, value, size) and None)

    def memcpy(target: int, source: int, size: int, kind: int, stream: int = 0) -> None:
        queued(lambda: ctypes.memmove(target, source, size) and None)

    cupy, error = types.ModuleType("cupy"), type("CUDAError", (RuntimeError,), {})
    runtime = types.SimpleNamespace(
        CUDARuntimeError=error,
        memcpy=memcpy,
        memcpyAsync=memcpy,
        memsetAsync=memset,
        deviceSynchronize=lambda: None,
        hostRegister=lambda address, size, flags: None,
        streamQuery=lambda stream: 0,
        memGetInfo=lambda: (2**32, 2**32),
        runtimeGetVersion=lambda: 0,
    )
    cuda = types.ModuleType("cupy.cuda")
    vars(cuda).update(
        runtime=runtime,
        driver=types.SimpleNamespace(CUDADriverError=error),
        memory=types.SimpleNamespace(OutOfMemoryError=type("NoMemory", (MemoryError,), {})),
        Device=lambda number: types.SimpleNamespace(use=lambda: None),
        Memory=Memory,
        MemoryPointer=Memory,
        alloc=Memory,
        PinnedMemoryPointer=Pinned,
        alloc_pinned_memory=Pinned,
        Stream=Stream,
        Graph=Graph,
        Event=Event,
        get_elapsed_time=lambda begin, end: (end.at_us - begin.at_us) / 1000,
    )
    pool = types.SimpleNamespace(free_all_blocks=lambda: None)
    vars(cupy).update(
        cuda=cuda, RawModule=RawModule, get_default_memory_pool=lambda: pool, __version__="none"
    )
    sys.modules.update({"cupy": cupy, "cupy.cuda": cuda})
    return cupy


if __name__ == "__main__":
    fake()
    from greenfast.search.children import serve_requests
    from greenfast.search.targets.cuda import measurer
    from greenfast.search.targets.cuda.slots import Slots

    measurer.Health = Health
    measurer.WARM_UP_S = measurer.SHORT_WARM_UP_S = 0.001
    slots = Slots(int(sys.argv[2]))
    serve_requests(measurer.Measurer(0, slots).answer, int(sys.argv[1]), slots.reply_fd)
