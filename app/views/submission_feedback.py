"""Feedback on a judged source that its author can act on.

Each item names a fact of the evidence, the lines of the source that it is about, and what to try.
It claims no more than the evidence: a cause is named only where a counter or a finding shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from greenfast.db.rows import TrialDetail
from greenfast.search.loop.submitted import SOURCE
from greenfast.search.text import shortened, visible

JSON = dict[str, Any]
MOST_ITEMS = 12
MOST_LINES = 3  # of memory traffic
POOR_FACTOR = 1.5  # wavefronts or sectors over the ideal
SYSTEMATIC = 0.9  # of the sign bias, whose largest magnitude is 1
_MESSAGE = re.compile(r"^(?P<file>[^\s:(]+)[:(](?P<line>\d+)[^ ]*:? *(?P<text>.*error.*)$")
TRY = {
    "race": "order the two accesses: a barrier between them, another index, or an atomic",
    "uninitialised": "write this memory before it is read, on every path and by every thread",
    "in_flight_read": "wait for the copy (and pass a barrier) before reading its destination",
    "unwaited_copy": "wait for every copy before the kernel ends",
    "out_of_bounds": "mask the access with the tensor's size, which may not be a tile's multiple",
    "misaligned": "align the address to the size of the access, or use a narrower one",
    "deadlock": "let every thread of the block or warp reach the same barrier",
    "divergence": "let every thread of the block or warp reach the same barrier",
    "wrong_values": "compare the first wrong element by hand; start with the smallest failing case",
    "not_finite": "look for a division by zero, an overflow, or an infinity minus an infinity",
    "unwritten": "write every element of the output, even in the last, partial tile",
    "input_changed": "write to outputs and workspaces only",
    "timeout": "bound the loops; a wait for another block may never end",
    "spills": "keep fewer values in registers: smaller tiles, less unrolling, or more threads",
    "over_device_limit": "use fewer registers or less shared memory per block",
    "slower": "start from the counters below, which show where the time goes",
}


def feedback(trial: TrialDetail, text: str) -> list[JSON]:
    """Feedback for the author from a trial's evidence, the reason of the verdict first."""
    lines = text.split("\n")
    items = [
        *_verdict(trial),
        *_compiler(trial, lines),
        *_findings(trial.gates.get("safety", {}), lines),
        *_errors(trial.gates.get("correctness", {})),
        *_times(trial.gates.get("performance", {}), lines),
        *_assembler(trial.gates.get("ptxas", {})),
    ]
    return items[:MOST_ITEMS]


def _item(
    kind: str, sentence: str, lines: Iterable[JSON] = (), advice: str = "", **more: Any
) -> JSON:
    return {
        "kind": kind,
        "sentence": visible(sentence),
        "lines": [line for line in lines if line],
        "try": advice,
        **more,
    }


def _line(file: str, number: int, lines: list[str], role: str) -> JSON:
    """A place: in the submitted source by its own line, elsewhere by file and line."""
    own = file.endswith(f"/{SOURCE}") or file == SOURCE
    known = own and 0 < number <= len(lines)
    return {
        "role": role,
        "file": "source" if own else visible(file),
        "line": number,
        "text": visible(shortened(lines[number - 1].strip(), 200)) if known else "",
    }


def _verdict(trial: TrialDetail) -> Iterator[JSON]:
    if trial.verdict == "rejected":
        yield _item(
            "rejected",
            f"rejected at {trial.stage}: {trial.finding}",
            advice=TRY.get(trial.reason or "", ""),
        )
    if trial.verdict == "faulted":
        yield _item(
            "fault",
            f"a fault of greenfast or its machine, not of the source: {trial.finding}",
            advice="submit it again",
        )


def _compiler(trial: TrialDetail, lines: list[str]) -> Iterator[JSON]:
    """The compiler's first messages, with the line that each is about."""
    if trial.stage != "compile":
        return
    for message in trial.log.splitlines():
        if match := _MESSAGE.match(message.strip()):
            place = _line(match["file"], int(match["line"]), lines, "at")
            yield _item("compiler", shortened(match["text"], 300), [place])


def _findings(gate: Mapping[str, Any], lines: list[str]) -> Iterator[JSON]:
    for finding in gate.get("findings", ()):
        places = [
            _line(where[0], where[1], lines, role)
            for role, where in (("at", finding["where"]), ("against", finding["other_where"]))
            if where
        ]
        yield _item(
            finding["kind"],
            finding["sentence"],
            places,
            TRY.get(finding["kind"], ""),
            block=finding["block"],
            thread=finding["thread"],
            other_thread=finding["other_thread"],
            memory=visible(finding["memory"]),
            offset_bytes=finding["offset_bytes"],
            count=finding["count"],
        )


def _errors(gate: Mapping[str, Any]) -> Iterator[JSON]:
    """The first wrong case, and a character of the error where the numbers show one."""
    checks = gate.get("checks", ())
    wrong = [check for check in checks if not check["passed"]]
    if not wrong:
        return
    first = wrong[0]
    passed = sorted({check["shape"] for check in checks if check["passed"]})
    yield _item(
        "values",
        f"first wrong case {first['workload']} ({first['shape']}, inputs {first['inputs']}, "
        f"{first['order']} order), output {first['output']}: {first['sentence']}",
        character=list(_characters(first)),
        worst_index=first["worst_index"],
        worst_value=first["worst_value"],
        worst_expected=first["worst_expected"],
        max_abs_error=first["max_abs_error"],
        share_out_of_bound=first["share_out_of_bound"],
        wrong_cases=len(wrong),
        cases=len(checks),
        right_shapes=passed[:6],
    )


def _characters(check: Mapping[str, Any]) -> Iterator[str]:
    share, bias = check["share_out_of_bound"], check["sign_bias"]
    if check["max_abs_error"] is None:
        yield "a value is not finite or was not written"
    if isinstance(share, (int, float)) and 0 < share < 0.05:
        yield f"{100 * share:.2g} % of the elements are wrong: look at edges and special cases"
    if isinstance(share, (int, float)) and share > 0.9:
        yield "nearly every element is wrong: look at the formula or the indexing"
    if isinstance(bias, (int, float)) and abs(bias) > SYSTEMATIC:
        yield f"the error has one sign (bias {bias:+.2f}): a factor or a term is off"


def _times(gate: Mapping[str, Any], lines: list[str]) -> Iterator[JSON]:
    timings = gate.get("timings", ())
    if not timings:
        return
    ratio, interval = gate.get("ratio_to_baseline"), gate.get("ratio_interval")
    sentence = gate["sentence"]
    if isinstance(ratio, (int, float)):
        around = f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
        sentence += f"; {ratio:.3f}{around} of the baseline's time"
    yield _item(
        "time",
        sentence,
        limits={timing["workload"]: dict(list(timing["limits"].items())[:3]) for timing in timings},
        ratio=ratio,
        ratio_interval=interval,
    )
    costs = [cost for timing in timings for cost in timing["lines"]]
    for cost in sorted(costs, key=_waste, reverse=True)[:MOST_LINES]:
        shared = cost["kind"].startswith("shared")
        actual = cost["wavefronts" if shared else "sectors"]
        ideal = cost["wavefronts_ideal" if shared else "sectors_ideal"]
        if ideal and actual / ideal > POOR_FACTOR:
            what = "wavefronts (bank conflicts)" if shared else "sectors (not coalesced)"
            yield _item(
                "memory",
                f"{cost['kind']}: {actual} {what} where {ideal} would do",
                [_line(cost["file"], cost["line"], lines, "at")],
                "pad or swizzle the tile"
                if shared
                else "let neighbouring threads access neighbouring addresses",
                factor=round(actual / ideal, 2),
            )


def _waste(cost: Mapping[str, Any]) -> int:
    shared = cost["kind"].startswith("shared")
    pair = ("wavefronts", "wavefronts_ideal") if shared else ("sectors", "sectors_ideal")
    return int(cost[pair[0]] - cost[pair[1]])


def _assembler(gate: Mapping[str, Any]) -> Iterator[JSON]:
    if "registers" not in gate:
        return
    names = ("registers", "spill_bytes", "smem_static_bytes", "smem_dynamic_bytes", "blocks_per_sm")
    yield _item(
        "assembler",
        gate["sentence"],
        advice=TRY["spills"] if gate["spill_bytes"] else "",
        occupancy=gate["occupancy"],
        limited_by=gate["limited_by"],
        **{name: gate[name] for name in names},
    )
    for note in gate.get("notes", ()):
        yield _item("assembler", note["sentence"])
