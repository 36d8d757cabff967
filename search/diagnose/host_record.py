"""The record of a CUDA program's launches (host_include/gf_recorder.h), as launches to check.

A run of the emulator begins with the memory as it was before the run's first launch. So a run ends
where the host writes into memory that one of its launches had. What the run left in other memory is
then unknown, and a launch that gets unknown memory is not checked.

Of a large launch, only some blocks run. It has a run of its own, in which memory that earlier
launches wrote holds zeros.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.devices.clusters import shape_text
from greenfast.search.diagnose.brought_buffers import BUFFER_DTYPES, MOST_BYTES, contiguous_tensor
from greenfast.search.diagnose.launch_file import LaunchFile, check_launch
from greenfast.search.errors import UsageError
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import (
    GivenArgument,
    LaunchPlan,
    Packed,
    Problem,
    Tensor,
)

RECORD = "record"
MOST_RUNS = 12
# Of a launch with more, only the first and the last block run.
MOST_THREADS = 2**17
LARGE = (
    f"launches with more than {MOST_THREADS:,} threads, but for their first and last block; "
    "what earlier launches wrote is 0 there"
)
POINTER_BYTES = 8
_UNWRITTEN, _HOST, _KERNEL, _UNKNOWN = "unwritten", "host", "kernel", "unknown"
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "unsigned int": "uint32",
    "short": "int16",
    "unsigned short": "uint16",
    "signed char": "int8",
    "char": "int8",
    "unsigned char": "uint8",
    "bool": "uint8",
    "long": "int64",
    "long long": "int64",
    "unsigned long": "uint64",
    "unsigned long long": "uint64",
    "__half": "fp16",
    "__nv_bfloat16": "bf16",
    "float2": "float32",
    "float3": "float32",
    "float4": "float32",
    "double2": "float64",
    "int2": "int32",
    "int4": "int32",
    "uint4": "uint32",
    "__half2": "fp16",
}


@dataclass(frozen=True)
class Recorded:
    """What is to be checked of a program, and what of it cannot be."""

    runs: tuple[LaunchFile, ...]
    limits: tuple[str, ...]


@dataclass
class _Memory:
    """An allocation of the device's memory."""

    bytes: int
    state: str = _UNWRITTEN
    file: Path | None = None  # its content, where the host has written it
    name: str = ""
    dtype: str = "uint8"


@dataclass
class _Run:
    launches: list[LaunchPlan] = field(default_factory=list)
    tensors: dict[int, Tensor] = field(default_factory=dict)  # by the number of the allocation
    is_large: bool = False


@dataclass
class _Reader:
    folder: Path
    memory: dict[int, _Memory] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)  # of device variables: initialisers
    runs: list[tuple[_Run, dict[str, str]]] = field(default_factory=list)
    run: _Run = field(default_factory=_Run)
    limits: dict[str, None] = field(default_factory=dict)
    unsupported: dict[str, None] = field(default_factory=dict)
    unknown: int = 0
    names: set[str] = field(default_factory=set)
    kinds: set[tuple[LaunchPlan, ...]] = field(default_factory=set)

    def end_run(self) -> None:
        """A run like an earlier one, as in a loop that measures times, is left out."""
        kind = tuple(replace(launch, arguments=None) for launch in self.run.launches)
        if kind and kind not in self.kinds:
            self.kinds.add(kind)
            self.runs.append((self.run, dict(self.data)))
        self.run = _Run()

    def forget(self) -> None:
        """End the run: what its launches wrote is not known to the next."""
        self.end_run()
        for memory in self.memory.values():
            if memory.state == _KERNEL:
                memory.state = _UNKNOWN


def read_record(folder: Path, program: str, ending: str) -> Recorded:
    """The launches that the program in `folder` recorded. UsageError if there is none.

    `ending` tells how the program ended.
    """
    reader = _Reader(folder)
    for event in _events(folder / RECORD):
        _HANDLERS[event["event"]](reader, event)
    reader.end_run()
    if not reader.runs:
        unsupported = f" (it uses {', '.join(reader.unsupported)})" if reader.unsupported else ""
        raise UsageError(
            f"{program} launched no kernel that can be checked{unsupported}; {ending}",
            code="no_launch",
            mend="name a kernel with --entry, --grid, --block and --arg",
        )
    if reader.unknown:
        reader.limits[
            f"{reader.unknown} launches that need results of earlier ones, after the host wrote to "
            "the same memory"
        ] = None
    if len(reader.runs) > MOST_RUNS:
        left = len(reader.runs) - MOST_RUNS
        reader.limits[f"the last {left} of {len(reader.runs)} groups of launches"] = None
    runs = tuple(_launch_file(run, data) for run, data in reader.runs[:MOST_RUNS])
    return Recorded(runs, tuple(reader.limits))


def _events(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    for line in path.read_text(errors="replace").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return  # the program was stopped while it wrote


def _allocate(reader: _Reader, event: Mapping[str, Any]) -> None:
    reader.memory[event["number"]] = _Memory(event["bytes"])


def _write(reader: _Reader, event: Mapping[str, Any]) -> None:
    memory = reader.memory[event["number"]]
    if memory.state == _KERNEL:
        reader.forget()
    if memory.state != _UNKNOWN or event["whole"]:
        memory.state = _HOST


def _copy(reader: _Reader, event: Mapping[str, Any]) -> None:
    state = reader.memory[event["from"]].state
    _write(reader, event)
    if state in (_KERNEL, _UNKNOWN):
        reader.memory[event["number"]].state = _UNKNOWN


def _content(reader: _Reader, event: Mapping[str, Any]) -> None:
    reader.memory[event["number"]].file = reader.folder / event["file"]


def _symbol(reader: _Reader, event: Mapping[str, Any]) -> None:
    if reader.run.launches:
        reader.forget()
    if event["value"]:
        reader.data[event["name"]] = event["value"]


def _unsupported(reader: _Reader, event: Mapping[str, Any]) -> None:
    reader.unsupported[event["what"]] = None
    reader.limits[f"what depends on {event['what']}"] = None


def _repeated(reader: _Reader, event: Mapping[str, Any]) -> None:
    """A launch like two before; it is not run again."""


def _launch(reader: _Reader, event: Mapping[str, Any]) -> None:
    entry = entry_of(event["function"])
    names = [name.strip() for name in event["names"].split(",")]
    for name, argument in zip(names, event["arguments"], strict=False):
        if "host" in argument:
            raise UsageError(
                f"the program passes {entry} an address of the host's memory for {name}",
                code="host_address",
                mend="allocate it with cudaMalloc or cudaMallocManaged",
            )
    used = {number for argument in event["arguments"] for number in _numbers(argument)}
    grid, block = tuple(event["grid"]), tuple(event["block"])
    is_large = math.prod(grid) * math.prod(block) > MOST_THREADS
    if is_large:
        reader.forget()
        reader.limits[LARGE] = None
    elif any(reader.memory[number].state == _UNKNOWN for number in used):
        reader.unknown += 1
        for number in used:
            reader.memory[number].state = _UNKNOWN
        return
    for name, argument in zip(names, event["arguments"], strict=False):
        _take(reader, name, argument)
    plan = LaunchPlan(
        entry,
        grid,
        block,
        event["shared_bytes"],
        tuple(_argument(reader, argument) for argument in event["arguments"]),
        tuple(event["cluster"]),
    )
    check_launch(plan, f"the program launches {entry}")
    if 0 in (*grid, *block):
        raise UsageError(
            f"the program launches {entry} with a grid of {shape_text(grid)} blocks of "
            f"{shape_text(block)} threads; each size is at least 1",
            code="bad_launch",
        )
    reader.run.launches.append(plan)
    reader.run.is_large = is_large
    for number in _written_numbers(event["arguments"]):
        reader.memory[number].state = _KERNEL
    if is_large:
        reader.forget()


_HANDLERS = {
    "allocate": _allocate,
    "write": _write,
    "copy": _copy,
    "content": _content,
    "symbol": _symbol,
    "unsupported": _unsupported,
    "repeated": _repeated,
    "launch": _launch,
}


def _numbers(argument: Mapping[str, Any]) -> list[int]:
    own = [argument["pointer"]] if "pointer" in argument else []
    return own + [each["pointer"] for each in argument.get("pointers", ())]


def _written_numbers(arguments: Iterable[Mapping[str, Any]]) -> Iterator[int]:
    """Of memory that a kernel may write: it has a pointer to what is not `const`."""
    for argument in arguments:
        if "pointer" not in argument or not re.search(r"\bconst\b", argument["type"]):
            yield from _numbers(argument)


def _take(reader: _Reader, name: str, argument: Mapping[str, Any]) -> None:
    """Make buffers of what an argument points to, if the run has none of it yet."""
    for number in _numbers(argument):
        if number in reader.run.tensors:
            continue
        memory = reader.memory[number]
        if not memory.name:
            memory.name = _free_name(name.removesuffix("..."), reader.names)
            is_own = "pointer" in argument
            memory.dtype = (
                _DTYPES.get(argument["type"].removesuffix(" const"), "uint8") if is_own else "uint8"
            )
        dtype = np.dtype(BUFFER_DTYPES[memory.dtype])
        if memory.bytes % dtype.itemsize:
            dtype = np.dtype(np.uint8)
        elements = max(1, memory.bytes // dtype.itemsize)
        values = None
        if memory.state == _HOST and memory.file is not None:
            values = np.frombuffer(memory.file.read_bytes(), np.uint8).view(dtype)
        elif memory.state == _UNKNOWN:  # of a large launch
            values = np.zeros(elements, dtype)
        reader.run.tensors[number] = contiguous_tensor(
            memory.name, "output", dtype, (elements,), values
        )


def _free_name(name: str, taken: set[str]) -> str:
    name = re.sub(r"\W", "_", name) or "memory"
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    taken.add(free)
    return free


def _argument(reader: _Reader, argument: Mapping[str, Any]) -> GivenArgument:
    if "null" in argument:
        return None
    if "pointer" in argument:
        tensor, offset = reader.run.tensors[argument["pointer"]], argument["offset"]
        if not offset:
            return tensor
        return Packed(offset.to_bytes(POINTER_BYTES, "little"), ((0, tensor.name),))
    data = bytearray.fromhex(argument["bytes"])
    pointers = []
    for each in argument["pointers"]:
        at, tensor = each["at"], reader.run.tensors[each["pointer"]]
        data[at : at + POINTER_BYTES] = each["offset"].to_bytes(POINTER_BYTES, "little")
        pointers.append((at, tensor.name))
    return Packed(bytes(data), tuple(pointers))


def _launch_file(run: _Run, data: Mapping[str, str]) -> LaunchFile:
    tensors = tuple(run.tensors.values())
    if sum(tensor.image.nbytes for tensor in tensors) > MOST_BYTES:
        raise UsageError(
            f"the program's launches have more than {MOST_BYTES >> 30} GiB of memory",
            code="too_much_memory",
            mend="let the program take smaller sizes",
        )
    case = Case("launch", (), (), "", "contiguous", 0, ())
    problem = Problem(
        case, tensors, (), run.launches[0].arguments or (), tuple(run.launches), 0.0, 0.0
    )
    return LaunchFile(replace(problem, ends_only=run.is_large), (), False, (), data)


# ---- names ----

_WITH = re.compile(r"\s*\[with (.*)\]\s*\Z", re.DOTALL)


def entry_of(function: str) -> str:
    """The name of a kernel as --entry takes it, from g++'s __PRETTY_FUNCTION__.

    `void ns::foo(T*) [with T = float; int n = 4]` is `ns::foo<float, 4>`.
    """
    match = _WITH.search(function)
    plain = function[: match.start()] if match else function
    head = plain[: _parameters_begin(plain)]
    name = head.split()[-1] if head.split() else plain
    name = re.sub(r"\{anonymous\}::|\(anonymous namespace\)::", "", name)
    if match is None:
        return name
    values = []
    for part in _split(match[1]):
        _, equals, value = part.partition(" = ")
        if equals:
            values.append(_literal(value.strip()))
    return f"{name}<{', '.join(values)}>"


def _parameters_begin(text: str) -> int:
    depth = 0
    for at, character in enumerate(text):
        if character == "(" and depth == 0 and not text.startswith("(anonymous", at):
            return at
        depth += (character == "<") - (character == ">")
    return len(text)


def _split(text: str) -> list[str]:
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "(<[{") - (character in ")>]}")
        if character == ";" and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def _literal(value: str) -> str:
    """A template's argument as source text; g++ writes the types of a pack as `{int, float}`."""
    return value[1:-1] if value.startswith("{") and value.endswith("}") else value
