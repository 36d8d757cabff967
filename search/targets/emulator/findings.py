"""From gf-emulate's findings to Finding: one sentence each, and each pair of lines once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from greenfast.search.targets.emulator.runs import Finding, Index3, RunFault
from greenfast.search.targets.emulator.symbols import Frame, callers, kernel_line
from greenfast.search.text import file_line

HEAP_NAME = "device-heap"  # the buffer of `new` and `malloc`; native/device_heap.cpp knows the name

Event = Mapping[str, Any]
Frames = Mapping[int, tuple[Frame, ...]]
Key = tuple[str, Frame | None, Frame | None]  # kind, where, other_where
KINDS_OF_FAULTS = ("deadlock", "divergence", "misaligned", "out_of_bounds")
MOST_FINDINGS = 32
MOST_CALLERS = 4  # that a sentence names
NO_READING_FENCE = "no fence on the reading side"  # the texts in native/findings.h
CARRIED = "carried from call to call"
ASYNC = "async:"  # what follows is the sentence's end; {other} stands for the other party
VERBS = {
    "read": "reads",
    "write": "writes",
    "atomic": "updates atomically",
    "copy": "starts to copy",
    "matrix_read": "loads",
    "matrix_write": "stores",
    "volatile_read": "reads",
    "volatile_write": "writes",
    "block_atomic": "updates atomically for its block",
    "bulk_write": "starts to copy",
    "bulk_read": "starts to store",
    "wgmma_read": "starts a matrix product with",
    "barrier": "uses",
    "block_volatile_read": "reads for its block",
    "block_volatile_write": "writes for its block",
    "bulk_load": "starts to load",
}
NOUNS = {
    "read": "read",
    "write": "write",
    "atomic": "atomic",
    "copy": "asynchronous copy",
    "matrix_read": "matrix load",
    "matrix_write": "matrix store",
    "volatile_read": "volatile read",
    "volatile_write": "volatile write",
    "block_atomic": "atomic of its block's scope",
    "bulk_write": "bulk copy",
    "bulk_read": "bulk store",
    "wgmma_read": "matrix product",
    "barrier": "mbarrier_init",
    "block_volatile_read": "read of its block's scope",
    "block_volatile_write": "write of its block's scope",
    "bulk_load": "bulk load",
}


def addresses(events: Sequence[Event]) -> Iterator[int]:
    for event in events:
        yield event["party"]["site"]
        if event["other"]:
            yield event["other"]["site"]


def findings_of(
    events: Sequence[Event], counts: Sequence[int], faults: Sequence[RunFault], frames: Frames
) -> tuple[Finding, ...]:
    """The findings of a run. A fault that stopped it is a finding, too.

    `counts` has the number of occurrences of each event, and is empty when the run's process died.
    """
    merged: dict[Key, Finding] = {}
    for number, event in enumerate(events):
        _add(merged, _finding(event, counts[number] if number < len(counts) else 1, frames))
    for fault in faults:
        known = any((kind, where) == (fault.kind, fault.where) for kind, where, _ in merged)
        if fault.kind in KINDS_OF_FAULTS and not known:
            stopped = Finding(
                fault.kind,
                fault.sentence,
                fault.where,
                None,
                fault.block,
                fault.thread,
                None,
                "",
                0,
                1,
            )
            _add(merged, stopped)
    return tuple(merged.values())[:MOST_FINDINGS]


def _add(merged: dict[Key, Finding], finding: Finding) -> None:
    key = (finding.kind, finding.where, finding.other_where)
    first = merged.setdefault(key, replace(finding, count=0))
    merged[key] = replace(first, count=first.count + finding.count)


def _finding(event: Event, count: int, frames: Frames) -> Finding:
    party, other = event["party"], event["other"]
    where = kernel_line(frames.get(party["site"], ()))
    other_where = kernel_line(frames.get(other["site"], ())) if other else None
    sentence = _sentence(
        event,
        _thread(party),
        _place(where, frames.get(party["site"], ())),
        _thread(other, party) if other else "",
        _place(other_where, frames.get(other["site"], ()) if other else ()),
    )
    return Finding(
        "carried_state" if event["detail"] == CARRIED else event["kind"],
        sentence,
        where,
        other_where,
        tuple(party["block"]),
        tuple(party["thread"]),
        tuple(other["thread"]) if other else None,
        event["memory"],
        event["offset"],
        count,
    )


def _sentence(event: Event, thread: str, place: str, other_thread: str, other_place: str) -> str:
    if event["kind"] == "undefined_shuffle":
        return (
            f"{thread} reads lane {event['detail']} in a shuffle ({place}), but that lane takes no "
            "part in it; the value is undefined"
        )
    memory, name = event["memory"], _memory_name(event)
    access = _access(event, thread, place)
    if event["detail"].startswith(ASYNC):
        other = f"{other_thread}'s {_noun(event)} ({other_place})"
        return f"{access} {str(event['detail']).removeprefix(ASYNC).replace('{other}', other)}"
    if memory == "module":
        verb = VERBS[event["party"]["action"]]
        return f"{thread} {verb} {event['bytes']} bytes ({place}) {event['detail']}"
    if event["kind"] in ("out_of_bounds", "device_fault"):
        return f"{access}: {event['detail']}"
    if event["kind"] == "input_changed":
        return f"{access}, which is an input"
    if event["detail"] == CARRIED:
        return (
            f"{thread} reads {name} at {event['offset']:+d} ({place}) before this call has written "
            "there, and the call leaves it changed: the next call will find another value"
        )
    if event["kind"] == "carried_state":
        return (
            f"{thread} reads {name} at {event['offset']:+d} ({place}), which the call leaves "
            "changed together with other bytes of `__device__` memory, or of the heap of `malloc`: "
            "a later call can tell that an earlier one has left its answer; keep results in "
            f"outputs or workspaces, free what was allocated, or reset {name} at the end"
        )
    if event["kind"] == "uninitialised":
        is_heap = name == f"'{HEAP_NAME}'"
        return f"{access}, which was never written" + (", or was freed" if is_heap else "")
    if event["kind"] == "unwaited_copy":
        return (
            f"{thread} ends without having waited for its asynchronous copy of "
            f"{event['bytes']} bytes ({place})"
        )
    return f"{access} while {_unordered(event, other_thread, other_place)}"


def _access(event: Event, thread: str, place: str) -> str:
    action = event["party"]["action"]
    into = "into" if action in ("copy", "bulk_write") else "of"
    return (
        f"{thread} {VERBS[action]} {event['bytes']} bytes {into} {_memory_name(event)} at "
        f"{event['offset']:+d} ({place})"
    )


def _memory_name(event: Event) -> str:
    memory = event["memory"]
    return "shared memory" if memory == "shared" else f"'{memory.partition(':')[2]}'"


def _noun(event: Event) -> str:
    """The other party's access; empty without one."""
    return NOUNS[event["other"]["action"]] if event["other"] else ""


def _unordered(event: Event, other_thread: str, other_place: str) -> str:
    """The other access, and the operation that is missing between it and this one."""
    if event["detail"] == "in flight":
        whose = (
            f"{other_thread}'s asynchronous copy ({other_place})"
            if other_thread
            else "an asynchronous copy"
        )
        return f"{whose} to it is under way: it has not been waited for"
    if event["kind"] == "in_flight_read":
        return (
            f"{other_thread}'s asynchronous copy ({other_place}) is not ordered "
            "before it: no barrier between that thread's wait and this read"
        )
    noun = _noun(event)
    unordered = f"{other_thread}'s {noun} ({other_place}) is not ordered before it"
    if event["detail"] == NO_READING_FENCE:
        return (
            f"{unordered}: the reading side has no fence between the atomic by which it learnt of "
            f"that {noun} and this access"
        )
    return f"{unordered}: no {_missing(event)} between them"


def _missing(event: Event) -> str:
    """The operations that could have ordered the two accesses."""
    if event["memory"] == "shared" or event["party"]["block"] == event["other"]["block"]:
        return "barrier"
    return "fence and atomic"


def _thread(party: Event, beside: Event | None = None) -> str:
    """A thread's name, with its block when that is not the block of `beside`."""
    x, y, z = party["thread"]
    name = f"thread {x}" if y == z == 0 else f"thread ({x}, {y}, {z})"
    if beside is not None and party["block"] != beside["block"]:
        name += f" of block {_index(tuple(party['block']))}"
    return name


def _index(index: Index3) -> str:
    return "(" + ", ".join(map(str, index)) + ")"


def _place(where: Frame | None, frames: tuple[Frame, ...] = ()) -> str:
    """A line, and the lines that called the function it is in."""
    if where is None:
        return "an unknown line"
    calls = [file_line(*frame) for frame in callers(frames)[:MOST_CALLERS]]
    return ", called from ".join((file_line(*where), *calls))
