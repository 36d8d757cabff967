"""Runs for the emulator, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from greenfast.search.devices.tensor_map import TensorMap
from greenfast.search.oracle.problem import POISON

Index3 = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    entry: str
    grid: Index3
    block: Index3
    smem_dynamic_bytes: int = 0
    cluster: Index3 = (1, 1, 1)  # in blocks; divides the grid
    arguments: tuple[Argument, ...] | None = None  # None: the run's
    sample: tuple[int, ...] = ()  # the clusters to execute, numbered x first; empty: all
    resident_blocks: int = 132  # that the GPU holds at once, for blocks that wait for each other


@dataclass(frozen=True, eq=False)
class Buffer:
    """Global memory of `image.nbytes` bytes.

    `fill` names its contents before the run: the image, the byte `poison`, or zeros. Of `reserved`
    ones there are only the addresses, which nothing may touch.
    """

    name: str
    role: str  # 'input' | 'output' | 'workspace'
    image: np.ndarray  # uint8
    # 'image' | 'poison' | 'zero' | 'reserved'; default: image for inputs, poison for the others
    fill: str = ""
    poison: int = POISON
    owned: np.ndarray | None = None  # bool, by byte: of an element, and in no gap; None: all are
    # Of a checked run: the buffer of which it is a copy at the start of each launch. Who reads the
    # copy has promised that these bytes are not written during the launch.
    copy_of: str = ""
    # It starts at a multiple of this power of two, and of no larger one below 256.
    alignment: int = 256

    @property
    def filled(self) -> str:
        if self.copy_of:
            return "copy"
        return self.fill or ("image" if self.role == "input" else "poison")


@dataclass(frozen=True)
class PointerArgument:
    buffer: str
    offset_bytes: int = 0


@dataclass(frozen=True)
class NullArgument:
    pass


@dataclass(frozen=True)
class PackedArgument:
    """A value of any type; `pointers` are the offsets at which addresses of buffers lie in it.

    The bytes there are added to the address. `maps` are the offsets of tensor maps in it.
    """

    data: bytes
    pointers: tuple[tuple[int, str], ...] = ()
    maps: tuple[tuple[int, TensorMap], ...] = ()


@dataclass(frozen=True)
class ScalarArgument:
    ctype: str  # 'int32' | 'uint32' | 'int64' | 'float32' | 'float64'
    value: int | float


@dataclass(frozen=True)
class TensorMapArgument:
    tensor_map: TensorMap


Argument = PointerArgument | NullArgument | ScalarArgument | PackedArgument | TensorMapArgument


@dataclass(frozen=True, eq=False)
class Run:
    """Launches in order over one set of buffers.

    `arguments` are used by launches that have none of their own.
    """

    name: str
    launches: tuple[Launch, ...]
    buffers: tuple[Buffer, ...]
    arguments: tuple[Argument, ...]
    order: str = "forward"  # 'forward' | 'reverse' | 'seeded:<n>'
    count: bool = False  # needs a module of flavour counted
    check: bool = False  # needs a module of flavour checked
    undefined: int = 2**64 - 1  # what a shuffle gives that reads a lane which takes no part in it


@dataclass(frozen=True)
class RunFault:
    """An error of a run, or a note.

    `kind` is deadlock, divergence, misaligned, out_of_bounds, device_fault, timeout or
    input_changed; a note may have other kinds. `where` is a line of the kernel's own source.
    """

    kind: str
    sentence: str
    block: Index3 | None = None
    thread: Index3 | None = None
    where: tuple[str, int] | None = None


@dataclass(frozen=True)
class Finding:
    """An error that the checks of a run report.

    `where` is the line of the later access, `other_where` of the earlier one.
    """

    # race, uninitialised, out_of_bounds, in_flight_read, divergence, misaligned, deadlock,
    # unwaited_copy, input_changed or device_fault
    kind: str
    sentence: str
    where: tuple[str, int] | None
    other_where: tuple[str, int] | None
    block: Index3 | None
    thread: Index3 | None
    other_thread: Index3 | None
    memory: str  # 'shared' | 'global:q' | 'device:table' | 'constant:table' | 'module'
    offset_bytes: int
    count: int


@dataclass(frozen=True)
class CanaryDamage:
    buffer: str
    side: str  # 'before' | 'behind'
    damaged_bytes: int
    first_offset_bytes: int  # distance of the nearest damaged byte from the buffer's edge


@dataclass(frozen=True)
class LineCounters:
    """One kind of access in one source line, summed over the executed blocks."""

    file: str
    line: int
    kind: str  # 'shared_read' | 'shared_write' | 'global_read' | 'global_write'
    count: int  # warp-wide instructions
    total_bytes: int
    wavefronts: int
    wavefronts_ideal: int
    sectors: int
    sectors_ideal: int


@dataclass(frozen=True)
class Counters:
    """Totals over the executed blocks."""

    blocks_total: int
    blocks_executed: int
    warps_per_block: int  # of the widest launch
    mma_flop: tuple[tuple[str, int], ...]  # by '<input>_<accumulator>': f16_f32, bf16_f32, f16_f16
    shared_bytes: int
    shared_wavefronts: int
    shared_wavefronts_ideal: int
    global_sectors: int  # of 32 bytes
    global_sectors_ideal: int
    global_load_bytes: int
    global_store_bytes: int
    async_copy_bytes: int
    warp_memory_instructions: int
    barriers: int  # one per block and __syncthreads
    warp_collectives: int  # shuffles, votes, reductions, __syncwarp
    special_function_ops: int  # one per lane
    atomics: int  # one per lane
    shared_float_additions: int  # warp-wide atomic ones, among the accesses to shared memory
    shared_float_addition_wavefronts: int
    per_line: tuple[LineCounters, ...] = ()
    wgmma_flop: tuple[tuple[str, int], ...] = ()  # of warpgroups, named as in mma_flop
    wgmma_operand_bytes: int = 0  # that warpgroups' products read of shared memory
    bulk_copy_bytes: int = 0  # of bulk and tensor copies, each destination by itself
    mbarrier_operations: int = 0
    # Of each block, the most phases of one mbarrier that waited for bytes: a ring's walks.
    copy_rounds: int = 0

    @property
    def bank_conflict_factor(self) -> float:
        """Shared memory wavefronts relative to the ideal; 1.0: no conflicts."""
        return (
            self.shared_wavefronts / self.shared_wavefronts_ideal
            if self.shared_wavefronts_ideal
            else 1.0
        )

    @property
    def float_addition_turns(self) -> float:
        """Turns that a warp's lanes take to add atomically to shared memory; 1.0: all at once."""
        if not self.shared_float_additions:
            return 1.0
        return self.shared_float_addition_wavefronts / self.shared_float_additions


@dataclass(frozen=True, eq=False)
class RunResult:
    """The result of a run.

    `status` is finished (no faults), fault (with faults), crash (its process died), timeout, or
    not_run (an earlier run of the batch timed out).
    """

    name: str
    status: str
    faults: tuple[RunFault, ...] = ()
    notes: tuple[RunFault, ...] = ()  # remarks that are no errors
    findings: tuple[Finding, ...] = ()  # of a checked run
    outputs: Mapping[str, np.ndarray] = field(default_factory=dict)  # uint8
    input_changed: tuple[str, ...] = ()
    canary: tuple[CanaryDamage, ...] = ()
    counters: Counters | None = None
    smem_static_bytes: int = 0
    printf_calls: int = 0
    keeps_state: bool = False  # of a checked run: it leaves `__device__` memory changed
    cpu_s: float = 0.0
    wall_s: float = 0.0
