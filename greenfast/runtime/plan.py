"""A call prepared once: everything but addresses is packed, and each later call fills those in."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from greenfast.runtime.driver import Driver, LaunchConfig
from greenfast.runtime.program import Geometry, Launch, Program
from greenfast.runtime.tensor_maps import EncodedMaps
from greenfast.search.devices.tensor_map import TensorMap

WORD = 8
INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
CONFIG_WORDS = ctypes.sizeof(LaunchConfig) // WORD
STREAM_WORD = LaunchConfig.stream.offset // WORD


class Frame:
    """The memory of one call in flight: argument slots, the list of their addresses, configs.

    `memory` is all of it as 64-bit words; the slots of tensors come first, in order. `maps` are
    the places of the tensor maps' addresses, each with its tensor's place among the addresses.
    `first` is what a plan's only launch needs: the memory, the maps, the place of its stream, and
    the driver's call.
    """

    __slots__ = ("calls", "first", "maps", "memory")

    def __init__(self, plan: CudaPlan) -> None:
        slots, count = plan.packed, len(plan.packed)
        configs_at = 2 * count
        self.memory = (ctypes.c_uint64 * (configs_at + CONFIG_WORDS * len(plan.launches)))()
        base = ctypes.addressof(self.memory)
        for number, data in enumerate(slots):
            self.memory[number] = int.from_bytes(data.ljust(WORD, b"\0"), "little")
            self.memory[count + number] = base + WORD * number
        self.maps = tuple(
            (count + argument, at, EncodedMaps(plan.driver, item))
            for item, argument, at in plan.maps
        )
        params = ctypes.c_void_p(base + WORD * count)
        calls: list[tuple[int, tuple[Any, ...]]] = []
        for number, launch in enumerate(plan.launches):
            at = configs_at + CONFIG_WORDS * number
            config = LaunchConfig.from_buffer(self.memory, WORD * at)
            config.grid[:] = launch.grid
            config.block[:] = launch.block
            config.smem_dynamic_bytes = launch.smem_dynamic_bytes
            call = ctypes.c_void_p(base + WORD * at), plan.functions[number], params, None
            calls.append((at + STREAM_WORD, call))
        self.calls = tuple(calls)  # each with the place of its stream
        self.first = self.memory, self.maps, *calls[0]


def _slots(places: Sequence[int]) -> slice | tuple[int, ...]:
    """The places of addresses: a slice, or a list if scalars lie between them."""
    if list(places) == list(range(len(places))):
        return slice(0, len(places))
    return tuple(places)


class CudaPlan:
    """One signature of one program on one device.

    `launch` takes the addresses in the order of `names`: tensors, then scratch memory.
    """

    def __init__(
        self,
        driver: Driver,
        program: Program,
        geometry: Geometry,
        functions: Sequence[ctypes.c_void_p],
        device: int,
    ) -> None:
        self.driver, self.program, self.geometry, self.device = driver, program, geometry, device
        self.launches: tuple[Launch, ...] = geometry.launches
        self.functions = tuple(functions)
        self.packed = [item if isinstance(item, bytes) else b"" for item in geometry.arguments]
        places = [
            (item, number)
            for number, item in enumerate(geometry.arguments)
            if isinstance(item, str)
        ]
        self.names = tuple(name for name, _ in places)
        self._slots = _slots([number for _, number in places])
        # Each tensor map, its argument's number, and the place of its tensor among the addresses.
        self.maps = tuple(
            (item, number, self.names.index(item.buffer))
            for number, item in enumerate(geometry.arguments)
            if isinstance(item, TensorMap)
        )
        self.scratch = geometry.scratch_bytes
        self._free: list[Frame] = []
        self._launch: Callable[..., int] = driver.launch
        # Queues every launch on a stream; nothing waits.
        self.launch = self._single() if len(self.launches) == 1 else self._each

    def _single(self) -> Callable[[Sequence[int], int], None]:
        """The launch of a plan that has one: `_each` without its loops and attributes."""
        free, launch, again = self._free, self._launch, self._again
        slots = self._slots
        if not isinstance(slots, slice):
            return self._each

        def single(addresses: Sequence[int], stream: int) -> None:
            try:
                frame = free.pop()
            except IndexError:
                frame = Frame(self)
            memory, maps, place, call = frame.first
            memory[slots] = addresses  # type: ignore[call-overload]
            for slot, at, encoded in maps:
                memory[slot] = encoded[addresses[at]]
            memory[place] = stream
            status = launch(*call)
            free.append(frame)
            if status:
                again(status, addresses, stream)

        return single

    def _each(self, addresses: Sequence[int], stream: int) -> None:
        try:
            frame = self._free.pop()  # of this thread until it is given back
        except IndexError:
            frame = Frame(self)
        memory, launch, status = frame.memory, self._launch, 0
        if isinstance(self._slots, slice):
            memory[self._slots] = addresses  # type: ignore[call-overload]
        else:
            for place, address in zip(self._slots, addresses, strict=True):
                memory[place] = address
        for slot, at, encoded in frame.maps:
            memory[slot] = encoded[addresses[at]]
        for place, call in frame.calls:
            memory[place] = stream
            status = status or launch(*call)
        self._free.append(frame)
        if status:
            self._again(status, addresses, stream)

    def _again(self, status: int, addresses: Sequence[int], stream: int) -> None:
        """A new thread has no context yet; any other failure is final."""
        if status != INVALID_CONTEXT or self.driver.current_device() is not None:
            raise self.driver.failed(status, f"launching {self.program.name}")
        with self.driver.on(self.device):
            self.launch(addresses, stream)
