"""The record of a CUDA program's launches (host_include/gf_recorder.h), as steps of a check.

The steps are what the host did to the device's memory, and runs of the emulator. A run begins with
the memory as it is before the run's first launch, so it ends where the host writes to memory, or
copies from memory, that one of its launches had.

Of a large launch, only some blocks run, and what they write is not used any further.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.devices.clusters import shape_text
from greenfast.search.diagnose.brought_buffers import BUFFER_DTYPES, MOST_BYTES
from greenfast.search.diagnose.host_names import entry_of
from greenfast.search.diagnose.host_steps import (
    LARGE,
    POINTER_BYTES,
    Allocation,
    Copy,
    LaunchRun,
    Recorded,
    RecordedLaunch,
    Step,
    Write,
    numbers_of,
)
from greenfast.search.diagnose.launch_file import ENTRY, check_launch
from greenfast.search.errors import UsageError
from greenfast.search.oracle.problem import LaunchPlan
from greenfast.search.text import shortened, visible

RECORD = "record"
# The program's process can write any record. gf_recorder.h ends after 400 launches.
MOST_RECORD_BYTES, LONGEST_LINE_BYTES, MOST_LAUNCHES = 64 * 2**20, 16 * 2**20, 400
MOST_COPIED_BYTES = 2**36  # copies within the device's memory, which take a second for 8 GiB
MOST_UNSUPPORTED = 20
CUT_OFF = f"what the program did after the first {MOST_RECORD_BYTES >> 20} MiB of its record"
LARGEST_ARGUMENT_BYTES, MOST_ARGUMENTS = 4096, 4096
LONGEST_FUNCTION = 20_000  # characters of a kernel with its types
KINDS_OF_ARGUMENT = (
    {"pointer", "offset", "type"},
    {"bytes", "pointers", "type"},
    {"null", "type"},
    {"host", "type"},
)
_CONTENT = re.compile(r"content\d{1,9}")
_SYMBOL = re.compile(r"[A-Za-z_]\w{0,200}")
_VALUE = re.compile(r"[-+.\w{}, ]*")
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


@dataclass
class _Reader:
    folder: Path
    sizes: dict[int, int] = field(default_factory=dict)
    names: dict[int, tuple[str, str]] = field(default_factory=dict)  # and a type
    pending: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # begins and ends
    data: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    launches: list[RecordedLaunch] = field(default_factory=list)
    unsupported: dict[str, None] = field(default_factory=dict)
    contents: set[str] = field(default_factory=set)  # files that were read
    launched: int = 0
    copied_bytes: int = 0
    addresses: dict[int, set[int]] = field(default_factory=dict)  # of allocations, in others

    def behind(self, numbers: set[int]) -> frozenset[int]:
        """The allocations whose addresses are in these, or in those, and so on."""
        found: set[int] = set()
        while (
            new := {each for it in numbers | found for each in self.addresses.get(it, ())} - found
        ):
            found |= new
        return frozenset(found)

    def end_run(self) -> None:
        if self.launches:
            self.steps.append(LaunchRun(tuple(self.launches), dict(self.data)))
            self.launches = []

    def end_run_with(self, *numbers: int) -> None:
        """End the run if one of its launches has one of the allocations."""
        if any(launch.used & set(numbers) for launch in self.launches):
            self.end_run()


def read_record(folder: Path, program: str, ending: str) -> Recorded:
    """What the program in `folder` recorded. UsageError if it launched nothing.

    `ending` tells how the program ended.
    """
    reader = _Reader(folder)
    try:
        for event in _events(folder / RECORD):
            _HANDLERS[event["event"]](reader, event)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise UsageError(
            f"{program} has damaged the record of its launches",
            code="bad_record",
            mend="name a kernel with --entry, --grid, --block and --arg",
        ) from None
    reader.end_run()
    runs = [step for step in reader.steps if isinstance(step, LaunchRun)]
    left_out = dict.fromkeys(run.left_out for run in runs if run.left_out)
    if all(run.left_out for run in runs):
        reader.unsupported |= left_out
        unsupported = f" (it uses {', '.join(reader.unsupported)})" if reader.unsupported else ""
        raise UsageError(
            f"{program} launched no kernel that can be checked{unsupported}; {ending}",
            code="no_launch",
            mend="name the files that it reads with --file PATH, and the words of its main with "
            "--args; or name a kernel with --entry, --grid, --block and --arg",
        )
    limits = [f"what depends on {what}" for what in reader.unsupported]
    if any(run.is_large for run in runs):
        limits.append(LARGE)
    limits += [f"{reason}; what they write is not used any further" for reason in left_out]
    if (folder / RECORD).stat().st_size > MOST_RECORD_BYTES:
        limits.append(CUT_OFF)
    return Recorded(tuple(reader.steps), _allocations(reader), tuple(limits))


def _events(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    left = MOST_RECORD_BYTES
    with open(path, "rb") as record:
        while line := record.readline(min(left, LONGEST_LINE_BYTES)):
            left -= len(line)
            try:
                yield json.loads(line.decode(errors="replace"))
            except ValueError:
                return  # the program was stopped while it wrote


def _whole(event: Mapping[str, Any], key: str, most: int = 2**40) -> int:
    value = event[key]
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(key)
    return value


def _three(event: Mapping[str, Any], key: str) -> tuple[int, int, int]:
    x, y, z = (_whole({key: value}, key) for value in event[key])
    return x, y, z


def _allocate(reader: _Reader, event: Mapping[str, Any]) -> None:
    reader.sizes[_whole(event, "number")] = _whole(event, "bytes")


def _part(reader: _Reader, event: Mapping[str, Any], number: str, offset: str) -> tuple[int, int]:
    """The number of an allocation, and an offset at which the bytes of the event lie in it."""
    size = reader.sizes[_whole(event, number)]
    return event[number], _whole(event, offset, size - _whole(event, "bytes", size))


def _write(reader: _Reader, event: Mapping[str, Any]) -> None:
    number, offset = _part(reader, event, "number", "offset")
    reader.end_run_with(number)
    reader.pending.setdefault(number, []).append((offset, offset + event["bytes"]))


def _copy(reader: _Reader, event: Mapping[str, Any]) -> None:
    to, source = (
        _part(reader, event, "number", "offset"),
        _part(reader, event, "from", "from_offset"),
    )
    reader.end_run_with(to[0], source[0])
    reader.copied_bytes += event["bytes"]
    if reader.copied_bytes > MOST_COPIED_BYTES:
        raise ValueError("bytes")
    reader.steps.append(Copy(*to, *source, event["bytes"]))


def _content(reader: _Reader, event: Mapping[str, Any]) -> None:
    number = _whole(event, "number")
    file = reader.folder / event["file"]
    is_own = _CONTENT.fullmatch(event["file"]) and not file.is_symlink() and file.is_file()
    if not is_own or file.stat().st_size != reader.sizes[number]:
        raise ValueError("file")
    if event["file"] in reader.contents:
        raise ValueError("file")
    reader.contents.add(event["file"])
    if parts := _joined(reader.pending.pop(number, ())):
        reader.steps.append(Write(number, parts, file))


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The ranges in order, those that overlap or touch as one."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return tuple(joined)


def _address(reader: _Reader, event: Mapping[str, Any]) -> None:
    number, of = _whole(event, "number"), _whole(event, "of")
    if not reader.sizes.keys() >= {number, of}:
        raise ValueError("number")
    reader.addresses.setdefault(number, set()).add(of)


def _symbol(reader: _Reader, event: Mapping[str, Any]) -> None:
    reader.end_run()
    name, value = event["name"], event["value"]
    if _VALUE.fullmatch(value) is None:
        raise ValueError("value")
    if value and _SYMBOL.fullmatch(name):
        reader.data[name] = _in_cpp(value, name)


def _in_cpp(value: str, name: str) -> str:
    """An initialiser of the record as C++: `x` and the bytes of a struct, inf and nan."""

    def word(match: re.Match[str]) -> str:
        if match[0] in ("inf", "nan"):
            return {"inf": "INFINITY", "nan": "NAN"}[match[0]]
        if (match[0][0], len(match[0]) % 2) != ("x", 1):
            return match[0]
        content = bytes.fromhex(match[0][1:])
        depth = value.count("{", 0, match.start()) - value.count("}", 0, match.start())
        return (
            f"[]{{ struct Bytes {{ unsigned char of[{len(content)}]; }}; return __builtin_bit_cast("
            f"__typeof__({name}{'[0]' * depth}), Bytes{{{{{', '.join(map(str, content))}}}}}); }}()"
        )

    return re.sub(r"[A-Za-z_]\w*", word, value)


def _unsupported(reader: _Reader, event: Mapping[str, Any]) -> None:
    if len(reader.unsupported) < MOST_UNSUPPORTED:
        reader.unsupported[visible(shortened(event["what"], 200))] = None


def _launch(reader: _Reader, event: Mapping[str, Any]) -> None:
    reader.launched += 1
    if reader.launched > MOST_LAUNCHES:
        raise ValueError("launches")
    if len(event["function"]) > LONGEST_FUNCTION or len(event["arguments"]) > MOST_ARGUMENTS:
        raise ValueError("launch")
    entry = entry_of(event["function"], _whole(event, "template_parameters", 1000))
    if not ENTRY.match(entry):
        raise ValueError("function")
    for argument in event["arguments"]:
        _require_argument(reader, argument)
    names = re.findall(r"\w+", event["names"])
    for name, argument in zip(names, event["arguments"], strict=False):
        if "host" in argument:
            raise UsageError(
                f"the program passes {entry} an address of the host's memory for {name}, or of a "
                "__device__ variable",
                code="host_address",
                mend="allocate it with cudaMalloc or cudaMallocManaged; a kernel can use the "
                "variable by its name",
            )
        for number in numbers_of(argument):
            kind = argument["type"] if "pointer" in argument else ""
            reader.names.setdefault(number, (name, kind))
    launch = RecordedLaunch(
        entry,
        _three(event, "grid"),
        _three(event, "block"),
        _three(event, "cluster"),
        _whole(event, "shared_bytes"),
        tuple(event["arguments"]),
    )
    _require_launchable(launch)
    launch = replace(launch, behind=reader.behind(launch.used))
    if launch.is_alone or (reader.launches and reader.launches[0].is_alone):
        reader.end_run()
    reader.launches.append(launch)


def _require_argument(reader: _Reader, argument: Mapping[str, Any]) -> None:
    """ValueError for what gf_recorder.h does not write about an argument."""
    if argument.keys() not in KINDS_OF_ARGUMENT:
        raise ValueError("argument")
    if "pointer" in argument:
        str.removesuffix(argument["type"], "")
        _require_place(reader, argument)
    if "bytes" in argument:
        size = len(bytes.fromhex(argument["bytes"]))
        if not 1 <= size <= LARGEST_ARGUMENT_BYTES:
            raise ValueError("bytes")
        for place in argument["pointers"]:
            _require_place(reader, place)
            _whole(place, "at", size - POINTER_BYTES)


def _require_place(reader: _Reader, place: Mapping[str, Any]) -> None:
    _whole(place, "offset", reader.sizes[_whole(place, "pointer")])


def _require_launchable(launch: RecordedLaunch) -> None:
    if 0 in (*launch.grid, *launch.block):
        raise UsageError(
            f"the program launches {launch.entry} with a grid of {shape_text(launch.grid)} blocks "
            f"of {shape_text(launch.block)} threads; each size is at least 1",
            code="bad_launch",
        )
    sizes = (launch.grid, launch.block, launch.smem_dynamic_bytes)
    check_launch(
        LaunchPlan(launch.entry, *sizes, (), launch.cluster), f"the program launches {launch.entry}"
    )


def _repeated(reader: _Reader, event: Mapping[str, Any]) -> None:
    """A launch like two before; it is not run again."""


_HANDLERS = {
    "allocate": _allocate,
    "write": _write,
    "copy": _copy,
    "content": _content,
    "address": _address,
    "symbol": _symbol,
    "unsupported": _unsupported,
    "repeated": _repeated,
    "launch": _launch,
}


def _allocations(reader: _Reader) -> dict[int, Allocation]:
    """With names of their own: of the first parameter that gets each."""
    allocations, taken, counts = {}, set[str](), Counter[str]()
    copies = [step for step in reader.steps if isinstance(step, Copy)]
    used = {*reader.names, *(step.number for step in copies), *(step.source for step in copies)}
    for number, size in reader.sizes.items():
        name, kind = reader.names.get(number, ("", ""))
        free = name or f"memory_{number}"
        while free in taken:
            counts[name] += 1
            free = f"{name}_{counts[name] + 1}"
        taken.add(free)
        dtype = np.dtype(BUFFER_DTYPES[_DTYPES.get(kind.removesuffix(" const"), "uint8")])
        if size % dtype.itemsize:
            dtype = np.dtype(np.uint8)
        allocations[number] = Allocation(size, free, dtype)
    if sum(allocations[number].bytes for number in used) > MOST_BYTES:
        raise UsageError(
            f"the program's launches have more than {MOST_BYTES >> 30} GiB of memory",
            code="too_much_memory",
            mend="let the program take smaller sizes",
        )
    return allocations
