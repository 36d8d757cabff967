"""The job that gf-emulate reads, and the checks on runs before it is written.

It is lines of words: the secret and the tag of reports, `module`, then for each run `run`, `order`,
`count`, `undefined`, `check`, `outputs`, its `buffer`s, `argument`s and `launch`es.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence

from greenfast.search.devices.tensor_map import MAP_BYTES, TensorMap, misfit
from greenfast.search.errors import UsageError
from greenfast.search.targets.emulator.build import Module
from greenfast.search.targets.emulator.job_files import JobFiles
from greenfast.search.targets.emulator.runs import (
    Argument,
    Buffer,
    Index3,
    Launch,
    NullArgument,
    PackedArgument,
    PointerArgument,
    Run,
    ScalarArgument,
    TensorMapArgument,
)

SCALAR_FORMATS = {"int32": "<i", "uint32": "<I", "int64": "<q", "float32": "<f", "float64": "<d"}
# native/: AtomicType, by the types that reductions of the copy engine know.
_ATOMIC_TYPES = {
    "int32": 0,
    "uint32": 1,
    "int64": 2,
    "uint64": 3,
    "float32": 4,
    "float64": 5,
    "fp16": 7,
    "bf16": 8,
}
ROLES = ("input", "output", "workspace")
FILLS = ("image", "poison", "zero", "reserved", "copy")
LARGEST_DYNAMIC_SHARED_BYTES = 1 << 20
LARGEST_CLUSTER_BLOCKS = 16  # sm_90; more than 8 need the kernel's consent there
LARGEST_ARGUMENT_BYTES = 4096  # native/run.cpp has room for them
MOST_THREADS = 1024  # of a block
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_ORDER = re.compile(r"forward|reverse|seeded:\d+")


def job_lines(
    module: Module, runs: Sequence[Run], files: JobFiles, deadline_s: float
) -> Iterator[str]:
    """The lines of the job, apart from the first. The runs' images are written to `files`."""
    yield f"module {module.path}"
    for index, run in enumerate(runs):
        yield f"run {index}"
        yield f"order {run.order.replace(':', ' ')}"
        yield f"count {int(run.count)}"
        yield f"deadline_s {deadline_s:g}"
        yield f"undefined {run.undefined}"
        if run.check:
            yield "check 1"
        yield f"outputs {files.add_outputs(index, run)}"
        for buffer in run.buffers:
            fill = buffer.filled
            if fill == "image":
                fill += f" {files.add_image(buffer.image)}"
            if fill == "poison":
                fill += f" {buffer.poison}"
            if buffer.copy_of:
                fill += f" {[each.name for each in run.buffers].index(buffer.copy_of)}"
            if run.check and buffer.owned is not None:
                fill += f" {files.add_mask(buffer.owned)}"
            name = buffer.copy_of or buffer.name
            yield f"buffer {name} {buffer.role} {buffer.image.nbytes} {fill}"
            yield f"align {buffer.alignment}"
        for argument in run.arguments:
            yield f"argument {_argument_words(argument, run.buffers)}"
        for launch in run.launches:
            yield from _launch_lines(module, run, launch)


def _launch_lines(module: Module, run: Run, launch: Launch) -> Iterator[str]:
    sizes = (*launch.grid, *launch.block, launch.smem_dynamic_bytes, *_cluster(module, launch))
    yield f"launch {launch.entry} {' '.join(map(str, sizes))}"
    yield f"resident {launch.resident_blocks}"
    if launch.sample:
        yield f"sample {' '.join(map(str, _sample(module, launch)))}"
    if launch.arguments is not None:
        yield "own_arguments"
    for argument in launch.arguments or ():
        yield f"launch_argument {_argument_words(argument, run.buffers)}"


def _cluster(module: Module, launch: Launch) -> Index3:
    """The cluster that the kernel's text declares, else the launch's."""
    return dict(module.clusters).get(launch.entry, launch.cluster)


def _sample(module: Module, launch: Launch) -> list[int]:
    """The launch's sample, without numbers beyond the clusters that the kernel's text makes."""
    clusters = math.prod(launch.grid) // math.prod(_cluster(module, launch))
    return [number for number in launch.sample if number < clusters]


def _argument_words(argument: Argument, buffers: Sequence[Buffer]) -> str:
    if isinstance(argument, NullArgument):
        return "null"
    if isinstance(argument, TensorMapArgument):
        return f"tensor_map {_map_numbers(argument.tensor_map, buffers)}"
    if isinstance(argument, PointerArgument):
        names = [buffer.name for buffer in buffers]
        return f"pointer {names.index(argument.buffer)} {argument.offset_bytes}"
    if isinstance(argument, PackedArgument):
        names = [buffer.name for buffer in buffers]
        pointers = [f"{offset} {names.index(name)}" for offset, name in argument.pointers]
        maps = [f"{offset} {_map_numbers(each, buffers)}" for offset, each in argument.maps]
        counted = (str(len(pointers)), *pointers, str(len(maps)), *maps)
        return " ".join((f"packed {argument.data.hex()}", *counted))
    raw = struct.pack(SCALAR_FORMATS[argument.ctype], argument.value)
    return f"scalar {int.from_bytes(raw, 'little')}"


def _map_numbers(tensor_map: TensorMap, buffers: Sequence[Buffer]) -> str:
    numbers = (
        [buffer.name for buffer in buffers].index(tensor_map.buffer),
        tensor_map.rank,
        tensor_map.element_bytes,
        tensor_map.swizzle_bytes,
        int(tensor_map.fill == "nan"),
        _ATOMIC_TYPES.get(tensor_map.dtype, -1),
        int(tensor_map.in_local_memory),
        *tensor_map.sizes,
        *tensor_map.strides_bytes,
        *tensor_map.box,
    )
    return " ".join(map(str, numbers))


def check_run(module: Module, run: Run) -> None:
    """UsageError for a run that gf-emulate cannot execute."""
    _check_buffers(run)
    if not _ORDER.fullmatch(run.order):
        raise _refusal(run, f"unknown order {run.order!r}; known: forward, reverse, seeded:<n>")
    if run.count and module.flavour != "counted":
        raise _refusal(run, "counters need a module of flavour counted")
    if run.check and module.flavour != "checked":
        raise _refusal(run, "checks need a module of flavour checked")
    _check_arguments(run)
    for launch in run.launches:
        problem = _misfit(module, launch)
        if problem:
            raise _refusal(run, problem)


def _refusal(run: Run, message: str) -> UsageError:
    return UsageError(f"run {run.name!r}: {message}", code="emulator_run")


def _check_buffers(run: Run) -> None:
    names = [buffer.name for buffer in run.buffers]
    if len(set(names)) != len(names) or not all(_NAME.fullmatch(name) for name in names):
        raise _refusal(
            run,
            "buffer names must be different words of letters, digits, '_', '.' and '-', "
            f"not {names}",
        )
    for buffer in run.buffers:
        if buffer.role not in ROLES or buffer.filled not in FILLS:
            raise _refusal(
                run, f"buffer {buffer.name!r} has role {buffer.role!r} and fill {buffer.fill!r}"
            )


def _check_arguments(run: Run) -> None:
    names = [buffer.name for buffer in run.buffers]
    launches = (argument for launch in run.launches for argument in launch.arguments or ())
    for argument in (*run.arguments, *launches):
        if isinstance(argument, TensorMapArgument):
            _check_tensor_map(run, argument.tensor_map, names)
        if isinstance(argument, PackedArgument):
            _check_packed(run, argument, names)
        if isinstance(argument, PointerArgument) and argument.buffer not in names:
            raise _refusal(
                run, f"a pointer names the buffer {argument.buffer!r}; known: {', '.join(names)}"
            )
        if isinstance(argument, ScalarArgument) and argument.ctype not in SCALAR_FORMATS:
            known = ", ".join(SCALAR_FORMATS)
            raise _refusal(run, f"unknown scalar type {argument.ctype!r}; known: {known}")


def _check_packed(run: Run, argument: PackedArgument, names: Sequence[str]) -> None:
    size = len(argument.data)
    if not 1 <= size <= LARGEST_ARGUMENT_BYTES:
        raise _refusal(
            run, f"an argument of {size} bytes; it has 1 to {LARGEST_ARGUMENT_BYTES} bytes"
        )
    for offset, name in argument.pointers:
        if name not in names or not 0 <= offset <= size - 8:
            raise _refusal(run, f"a value of {size} bytes with a pointer to {name!r} at {offset}")
    for offset, tensor_map in argument.maps:
        _check_tensor_map(run, tensor_map, names)
        if not 0 <= offset <= size - MAP_BYTES:
            raise _refusal(
                run, f"a value of {size} bytes with the map {tensor_map.name!r} at {offset}"
            )


def _check_tensor_map(run: Run, tensor_map: TensorMap, names: Sequence[str]) -> None:
    if tensor_map.buffer not in names:
        raise _refusal(
            run,
            f"the tensor map {tensor_map.name!r} names the buffer {tensor_map.buffer!r}; "
            f"known: {', '.join(names)}",
        )
    if reason := misfit(tensor_map):
        raise _refusal(run, f"the tensor map {tensor_map.name!r}: {reason}")


def _misfit(module: Module, launch: Launch) -> str:
    """Why a launch is impossible; empty when it is possible."""
    if launch.entry not in module.entries:
        return f"unknown entry {launch.entry!r}; known: {', '.join(module.entries)}"
    threads = math.prod(launch.block)
    if not 1 <= threads <= MOST_THREADS or min(*launch.grid, *launch.block) < 1:
        return (
            f"{launch.entry}: grid {launch.grid}, block {launch.block}; "
            f"a block has 1 to {MOST_THREADS} threads"
        )
    cluster = _cluster(module, launch)
    if launch.cluster not in ((1, 1, 1), cluster):
        return (
            f"{launch.entry}: a cluster {launch.cluster}, "
            f"but the kernel's __cluster_dims__ are {cluster}"
        )
    if min(cluster) < 1 or math.prod(cluster) > LARGEST_CLUSTER_BLOCKS:
        return f"{launch.entry}: a cluster {cluster}; it has 1 to {LARGEST_CLUSTER_BLOCKS} blocks"
    if any(blocks % size for blocks, size in zip(launch.grid, cluster, strict=True)):
        return f"{launch.entry}: the cluster {cluster} does not divide the grid {launch.grid}"
    if not 0 <= launch.smem_dynamic_bytes <= LARGEST_DYNAMIC_SHARED_BYTES:
        return f"{launch.entry} asks for {launch.smem_dynamic_bytes} bytes of dynamic shared memory"
    return ""
