"""Two trials side by side: parameters, times, figures, counters and sources."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from greenfast.app.views.compare_schemas import (
    CompareOut,
    FigureOut,
    SideOut,
    SourceDiffOut,
    WorkloadTimesOut,
)
from greenfast.app.views.compared_times import time_verdict
from greenfast.app.views.schemas import ChangeOut
from greenfast.app.views.trial_names import TrialName
from greenfast.db.rows import SearchRow, TrialDetail
from greenfast.search.errors import UsageError
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.verdict import VerdictName

if TYPE_CHECKING:
    from greenfast.db.store import Store

MOST_DIFF_LINES = 2000
CONTEXT_LINES = 3
MOST_ALIGNED_LINES = 4000  # between equal ends: aligning takes the cube of their number
# (key of the ptxas gate, name, unit)
PTXAS_FIGURES = (
    ("registers", "registers", "a thread"),
    ("spill_bytes", "spills", "bytes"),
    ("stack_bytes", "stack", "bytes"),
    ("smem_static_bytes", "static shared memory", "bytes"),
    ("smem_dynamic_bytes", "dynamic shared memory", "bytes"),
    ("threads_per_block", "threads", "a block"),
    ("blocks_per_sm", "blocks", "an SM"),
    ("occupancy", "occupancy", "share"),
    ("limited_by", "occupancy limited by", ""),
)


@dataclass(frozen=True)
class Side:
    """One of the trials, as it is stored."""

    search: SearchRow
    plan: SearchPlan
    trial: TrialDetail
    source: str | None

    @property
    def timings(self) -> dict[str, Mapping[str, Any]]:
        timings = self.trial.gates.get("performance", {}).get("timings", ())
        return {timing["workload"]: timing for timing in timings}


def compare(store: Store, a: TrialName, b: TrialName) -> CompareOut:
    """The comparison of two trials; UsageError `same_trial`, `unknown_trial`."""
    if a == b:
        raise UsageError(
            f"both names are trial {a}",
            code="same_trial",
            mend="name two trials, or two searches whose best are compared",
        )
    left, right = _side(store, a), _side(store, b)
    before, after = left.trial.parameters, right.trial.parameters
    names = list(dict.fromkeys((*before, *after)))
    changed = [name for name in names if _differ(before.get(name), after.get(name))]
    return CompareOut(
        a=_side_out(left),
        b=_side_out(right),
        time=time_verdict(
            (left.search, left.plan, left.trial),
            (right.search, right.plan, right.trial),
            store.confirmation(a.search_id) if a.search_id == b.search_id else None,
        ),
        parameters=[
            ChangeOut(name=name, before=before.get(name), after=after.get(name)) for name in changed
        ],
        same_parameters=len(names) - len(changed),
        figures=list(_figures(left, right)),
        workloads=_workloads(left, right),
        counters=list(_counters(left, right)),
        searches=_searches(store, left, right) if a.search_id != b.search_id else [],
        source=source_diff(left, right),
    )


def _side(store: Store, name: TrialName) -> Side:
    assert name.number is not None
    trial = store.trial(name.search_id, name.number)
    source = store.source(trial.source_digest).text if trial.source_digest else None
    return Side(store.search(name.search_id), store.plan(name.search_id), trial, source)


def _side_out(side: Side) -> SideOut:
    trial, search = side.trial, side.search
    return SideOut(
        search=search.name,
        target=search.target,
        workloads=list(search.workloads),
        **{
            name: getattr(trial, name)
            for name in SideOut.model_fields
            if name not in ("search", "target", "workloads")
        },
    )


def _differ(before: Any, after: Any) -> bool:
    return type(before) is not type(after) or before != after


def _figures(left: Side, right: Side) -> Iterator[FigureOut]:
    a, b = (side.trial.gates.get("ptxas", {}) for side in (left, right))
    for key, name, unit in PTXAS_FIGURES:
        if key in a or key in b:
            yield FigureOut(name=name, unit=unit, a=a.get(key), b=b.get(key))
    errors = left.trial.max_abs_error, right.trial.max_abs_error
    if errors != (None, None):
        yield FigureOut(name="largest absolute error", a=errors[0], b=errors[1])
    for gate in dict.fromkeys((*left.trial.gates, *right.trial.gates)):
        outcomes = [side.trial.gates.get(gate, {}).get("outcome") for side in (left, right)]
        yield FigureOut(name=f"gate {gate}", a=outcomes[0], b=outcomes[1])


def _workloads(left: Side, right: Side) -> list[WorkloadTimesOut]:
    a, b = left.timings, right.timings
    rows = []
    for workload in dict.fromkeys((*a, *b)):
        times = [each.get(workload, {}).get("time_median_us") for each in (a, b)]
        numbers = [time for time in times if isinstance(time, (int, float)) and time > 0]
        ratio = numbers[0] / numbers[1] if len(numbers) == 2 else None
        known = [time if time in numbers else None for time in times]
        rows.append(WorkloadTimesOut(workload=workload, a_us=known[0], b_us=known[1], ratio=ratio))
    return rows


def _counters(left: Side, right: Side) -> Iterator[FigureOut]:
    """Resources that take the time, and instructions by class, the largest differences first."""
    a, b = left.timings, right.timings
    for workload in dict.fromkeys((*a, *b)):
        for key, unit in (("limits", "us alone"), ("mix", "warp instructions")):
            before, after = (each.get(workload, {}).get(key, {}) for each in (a, b))
            names = sorted(
                dict.fromkeys((*before, *after)),
                key=lambda name: -max(before.get(name, 0.0), after.get(name, 0.0)),
            )
            for name in names:
                yield FigureOut(
                    name=name,
                    workload=workload,
                    unit=unit,
                    a=before.get(name),
                    b=after.get(name),
                )


def _searches(store: Store, left: Side, right: Side) -> list[FigureOut]:
    def pair(name: str, values: list[Any], unit: str = "") -> FigureOut:
        return FigureOut(name=name, unit=unit, a=values[0], b=values[1])

    rows = (left.search, right.search)
    counts = [store.counts(row.id) for row in rows]
    return [
        pair("kernel", [row.kernel for row in rows]),
        pair("workloads", [", ".join(row.workloads) for row in rows]),
        pair("target", [row.target for row in rows]),
        pair("strategy", [row.strategy for row in rows]),
        pair("templates", [", ".join(row.templates) for row in rows]),
        pair("baseline", [row.baseline for row in rows]),
        pair("seed", [str(row.seed) for row in rows]),
        pair("trials", [row.trials_done for row in rows]),
        *(
            pair(verdict, [count.by_verdict.get(verdict, 0) for count in counts])
            for verdict in VerdictName
        ),
        pair("spent", [round(row.spent_s, 1) for row in rows], "s"),
        pair("best", [row.best_time_us for row in rows], "us"),
    ]


def unified(before: list[str], after: list[str], *, names: tuple[str, str]) -> Iterator[str]:
    """A unified diff. Where much differs, all of it is one change."""
    shorter = min(len(before), len(after))
    head = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    rest = shorter - head
    tail = next((at for at in range(rest) if before[-1 - at] != after[-1 - at]), rest)
    if max(len(before), len(after)) - head - tail <= MOST_ALIGNED_LINES:
        yield from difflib.unified_diff(before, after, *names, lineterm="", n=CONTEXT_LINES)
        return
    first = max(0, head - CONTEXT_LINES)
    behind = max(0, tail - CONTEXT_LINES)
    counts = [len(lines) - first - behind for lines in (before, after)]
    yield from (f"--- {names[0]}", f"+++ {names[1]}")
    yield f"@@ -{first + 1},{counts[0]} +{first + 1},{counts[1]} @@"
    yield from (f" {line}" for line in before[first:head])
    yield from (f"-{line}" for line in before[head : len(before) - tail])
    yield from (f"+{line}" for line in after[head : len(after) - tail])
    yield from (f" {line}" for line in before[len(before) - tail : len(before) - behind])


def source_diff(left: Side, right: Side) -> SourceDiffOut:
    """The sources as a unified diff. A part of it where it is very long."""
    if left.source is None or right.source is None:
        return SourceDiffOut(same=False, added=0, removed=0, text="", is_cut=False)
    if left.source == right.source:
        return SourceDiffOut(same=True, added=0, removed=0, text="", is_cut=False)
    sources = left.source.splitlines(), right.source.splitlines()
    a, b = (f"{side.trial.search_id}/{side.trial.number}.cu" for side in (left, right))
    lines = list(unified(*sources, names=(a, b)))
    body = lines[2:]
    return SourceDiffOut(
        same=False,
        added=sum(line.startswith("+") for line in body),
        removed=sum(line.startswith("-") for line in body),
        text="\n".join(lines[:MOST_DIFF_LINES]),
        is_cut=len(lines) > MOST_DIFF_LINES,
    )
