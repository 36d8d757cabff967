"""Logs of AutoTVM, read as T4 documents: a line of JSON for each measurement, of one task.

A knob's value may be a list, as of the lengths of a split loop. It is a value like any other, by
its text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from greenfast.search.recordings.foreign_forms import Converted, NotReadable, document_of, row_of

# AutoTVM's MeasureErrorNo, in T4's words. 0: no error.
ERRORS = {
    1: "constraints",
    2: "compile",
    3: "compile",
    4: "runtime",
    5: "correctness",
    6: "timeout",
    7: "timeout",
}
OTHER_ERROR = "runtime"
UNIT = "s"


def converted_log(text: str) -> Converted | None:
    """A log of AutoTVM; None for any other text."""
    lines = [each for each in text.splitlines() if each.strip() and not each.startswith("#")]
    if not lines or _record(lines[0]) is None:
        return None
    rows = []
    tasks: dict[str, Sequence[Any]] = {}
    for number, line in enumerate(lines, start=1):
        record = _record(line)
        if record is None:
            raise NotReadable(f"measurement {number} is none of AutoTVM")
        task, knobs, (costs, error, *_) = record
        tasks.setdefault(json.dumps(task), task)
        configuration = {str(name): _value(value) for name, _, value in knobs}
        failure = ERRORS.get(error, OTHER_ERROR) if error else ""
        rows.append(row_of(configuration, costs if not failure else None, UNIT, failure))
    if len(tasks) > 1:
        raise NotReadable(
            f"it holds {len(tasks):,} tasks of AutoTVM, each with a space of its own: keep the "
            "lines of one"
        )
    target, kernel = next(iter(tasks.values()))[:2]
    facts = {"kernel_name": str(kernel), "device": str(target)}
    return Converted("AutoTVM log", document_of(facts, rows))


def _record(line: str) -> tuple[Sequence[Any], Sequence[Sequence[Any]], Sequence[Any]] | None:
    """Task, knobs and result of a line, of either form that AutoTVM has had."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    task, result = content.get("input", content.get("i")), content.get("result", content.get("r"))
    if not isinstance(task, list) or len(task) < 2 or not isinstance(result, list):
        return None
    config = content["config"] if "config" in content else task[-1]
    knobs = _knobs(config)
    is_result = len(result) >= 2 and isinstance(result[0], list) and isinstance(result[1], int)
    return (task[:4], knobs, result) if knobs and is_result else None


def _knobs(config: Any) -> Sequence[Sequence[Any]] | None:
    if not isinstance(config, Mapping):
        return None
    knobs = config.get("entity", config.get("e"))
    is_list = isinstance(knobs, list) and all(isinstance(e, list) and len(e) == 3 for e in knobs)
    return knobs if is_list else None


def _value(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value
