"""The shape of a fault's or finding's line in gf-emulate's report.

Such a line is written while candidate code runs, and carries a tag that the candidate could find
out. A line of another shape is therefore ignored, like one without the tag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from greenfast.search.targets.emulator.findings import NOUNS, VERBS

Event = Mapping[str, Any]
Shape = Callable[[object], bool]
LONGEST_TEXT = 4096
LARGEST = 2**63
MOST_WAITING = 65536  # of a cluster


def has_shape(event: Event) -> bool:
    """Whether every member that the parent reads is there, and of its type and size."""
    name = event.get("event")
    if name == "fault":
        return _members(event, _FAULT)
    if name == "finding":
        return _members(event, _FINDING)
    if name == "waiting_finding":
        return _members(event, _FINDING) and _is_number(event.get("reader"))
    if name == "explained":
        return _is_number(event.get("reader"))
    return name == "ours" and _is_text(event.get("why"))


def with_waiting(events: Iterable[Event]) -> list[Event]:
    """The faults and findings of a run that did not end by itself.

    A finding that waited for what its thread does next counts, unless a compare-and-swap has
    explained the reads at its line.
    """
    all_events = list(events)
    explained = {event["reader"] for event in all_events if event["event"] == "explained"}
    reported = {_pair(event) for event in all_events if event["event"] == "finding"}
    kept = []
    for event in all_events:
        if event["event"] in ("fault", "finding"):
            kept.append(event)
        elif event["event"] == "waiting_finding" and (
            event["reader"] not in explained and _pair(event) not in reported
        ):
            kept.append({**event, "event": "finding"})
    return kept


def _pair(event: Event) -> tuple[object, ...]:
    other = event["other"]
    return event["kind"], event["party"]["site"], other and other["site"]


def _members(event: object, shapes: Mapping[str, Shape]) -> bool:
    return isinstance(event, dict) and all(
        name in event and shape(event[name]) for name, shape in shapes.items()
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_index(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_number, value))


def _is_action(value: object) -> bool:
    return isinstance(value, str) and value in VERBS and value in NOUNS


def _is_party(value: object) -> bool:
    return _members(value, _PARTY)


def _is_other(value: object) -> bool:
    return value is None or _is_party(value)


def _is_waiting(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MOST_WAITING
        and all(_members(thread, _WAITING) for thread in value)
    )


_PARTY: Mapping[str, Shape] = {
    "action": _is_action,
    "site": _is_number,
    "block": _is_index,
    "thread": _is_index,
}
_WAITING: Mapping[str, Shape] = {
    "thread": _is_index,
    "operation": _is_text,
    "mask": _is_number,
    "site": _is_number,
}
_FAULT: Mapping[str, Shape] = {
    "kind": _is_text,
    "sentence": _is_text,
    "block": _is_index,
    "thread": _is_index,
    "site": _is_number,
    "note": lambda value: isinstance(value, bool),
    "waiting": _is_waiting,
}
_FINDING: Mapping[str, Shape] = {
    "kind": _is_text,
    "offset": _is_number,
    "bytes": _is_number,
    "memory": _is_text,
    "detail": _is_text,
    "party": _is_party,
    "other": _is_other,
}
