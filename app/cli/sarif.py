"""A check's findings as SARIF 2.1.0 (OASIS), for editors and code hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from greenfast.app.cli.check_run import CheckOutcome
from greenfast.search.shipped import own_version
from greenfast.search.verdict import FINDING_REASONS, SafetyFinding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
RULES = {
    "race": "Two threads access the same bytes, one of them writes, and nothing orders them.",
    "uninitialised": "Memory is read that was never written.",
    "out_of_bounds": "An access lies outside the memory that it belongs to.",
    "in_flight_read": "The destination of an asynchronous copy is used before the copy ends.",
    "unwaited_copy": "An asynchronous copy is never waited for.",
    "divergence": "Threads that must arrive together at a barrier or collective do not.",
    "undefined_shuffle": "A shuffle reads a lane that takes no part in it.",
    "misaligned": "An access is not aligned to its size.",
    "deadlock": "Threads wait for each other without end.",
    "timeout": "The kernel does not end.",
    "input_changed": "The kernel writes to its input.",
    "out_of_memory": "The kernel needs more memory than is available.",
    "device_fault": "The kernel ends its run by a wild access or a trap.",
    "wrong_values": "An output differs from the expected values.",
    "undefined_operation": "An operation on numbers has no value in CUDA C++.",
    "carried_state": "A call can tell whether an earlier one has left its answer.",
    "unset_variable": "A result depends on a variable that is used before it is set.",
    "order_dependent": "The outputs depend on the order of the threads, though nothing races.",
    "same_value_write": "Several threads write the same value to the same bytes without an order.",
    "read_only_path": "The launch writes bytes that it loads through the read-only path (__ldg).",
}
assert RULES.keys() == FINDING_REASONS.keys()


def sarif_text(outcome: CheckOutcome) -> str:
    return json.dumps(sarif(outcome), indent=2, ensure_ascii=True) + "\n"


def sarif(outcome: CheckOutcome) -> dict[str, Any]:
    """One run with a rule for each kind and a result for each finding."""
    used = list(dict.fromkeys(finding.kind for finding in outcome.report.findings))
    rules = [
        {
            "id": kind,
            "shortDescription": {"text": RULES[kind]},
            "defaultConfiguration": {"level": "error"},
        }
        for kind in used
    ]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "greenfast", "version": own_version(), "rules": rules}},
                "invocations": [{"executionSuccessful": True}],
                "results": [
                    _result(finding, used.index(finding.kind), outcome)
                    for finding in outcome.report.findings
                ],
                "columnKind": "utf16CodeUnits",
            }
        ],
    }


def _result(finding: SafetyFinding, rule: int, outcome: CheckOutcome) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.kind,
        "ruleIndex": rule,
        "level": "error",
        "message": {"text": finding.sentence},
        "locations": [_location(finding.where, outcome)] if finding.where else [],
        "occurrenceCount": max(1, finding.count),
        "properties": {
            "memory": finding.memory,
            "offset_bytes": finding.offset_bytes,
            "block": finding.block,
            "thread": finding.thread,
            "other_thread": finding.other_thread,
        },
    }
    if finding.other_where:
        result["relatedLocations"] = [
            {
                "id": 1,
                "message": {"text": "the other access, which is not ordered with this one"},
                **_location(finding.other_where, outcome),
            }
        ]
    return result


def _location(where: tuple[str, int], outcome: CheckOutcome) -> dict[str, Any]:
    file, line = where
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(file, outcome.files.get(file))},
            "region": {"startLine": max(1, line)},
        }
    }


def _uri(name: str, path: Path | None) -> str:
    """Relative to the working directory where possible: editors and code hosts resolve that."""
    if path is None:
        return quote(name)
    try:
        return quote(path.resolve().relative_to(Path.cwd()).as_posix())
    except ValueError:
        return path.resolve().as_uri()
