"""`greenfast compare`: two trials, or the best of two searches, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import console, microseconds, print_json, styled, table, text
from greenfast.app.cli.services import opened_services
from greenfast.app.views.trial_names import trial_named
from greenfast.search.text import visible, written

if TYPE_CHECKING:
    from greenfast.app.views.compare_schemas import CompareOut, FigureOut, SideOut, TimeVerdictOut

DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="SEARCH[/TRIAL]",
        help="A trial, such as s_abc/7 or last/baseline; a search means its best trial.",
    ),
]


def compare(
    a: NameArgument,
    b: NameArgument,
    with_source: Annotated[
        bool, typer.Option("--source/--no-source", help="Show how the two sources differ.")
    ] = True,
    as_json: AsJson = False,
) -> int:
    """Compare two trials: parameters, times, ptxas figures, counters and sources.

    Times are compared only if they were taken under the same conditions. A ratio has an interval
    only if both were measured against the same baseline, or against each other.
    """
    from greenfast.app.views.comparing import compare as compared

    with opened_services() as services:
        store = services.store
        report = compared(store, trial_named(store, a), trial_named(store, b))
    if as_json:
        print_json(report.model_dump())
    else:
        show(report, with_source=with_source)
    return 0


def show(report: CompareOut, *, with_source: bool) -> None:
    """Print the comparison, section by section."""
    out = console()
    names = [f"{side.search_id}/{side.number}" for side in (report.a, report.b)]
    out.print(table(("", *names), _heads(report.a, report.b)))
    out.print(text(time_sentence(report.time)))
    if len(report.workloads) > 1:
        out.print()
        rows = (
            (row.workload, microseconds(row.a_us), microseconds(row.b_us), _ratio(row.ratio))
            for row in report.workloads
        )
        out.print(table(("workload", *names, "ratio"), rows))
    out.print()
    rows_of_parameters = (
        (change.name, _value(change.before), _value(change.after)) for change in report.parameters
    )
    title = f"{len(report.parameters)} parameters differ, {report.same_parameters} are the same"
    out.print(table(("parameter", *names), rows_of_parameters, title=title))
    for title, figures in (
        ("figures", report.figures),
        ("counters", report.counters),
        ("searches", report.searches),
    ):
        if figures:
            out.print()
            out.print(table((title, *names, ""), map(_figure_row, figures)))
    out.print()
    for line in source_lines(report, with_source=with_source):
        out.print(line, soft_wrap=True)


def _heads(a: SideOut, b: SideOut) -> Iterator[tuple[object, ...]]:
    yield "search", a.search, b.search
    yield "target", a.target, b.target
    yield "template", a.template, b.template
    yield "verdict", styled(a.verdict or a.state), styled(b.verdict or b.state)
    if a.reason or b.reason:
        yield "reason", a.reason, b.reason
        yield "", a.sentence, b.sentence
    times = [microseconds(side.time_median_us, side.time_kind, side.time_mode) for side in (a, b)]
    yield "time", *times
    yield "ratio to its baseline", _ratio(a.ratio_to_baseline), _ratio(b.ratio_to_baseline)


def time_sentence(time: TimeVerdictOut) -> str:
    """`a / b = 0.912 [0.905, 0.919], faster. Timed in turns ...`"""
    if time.ratio is None:
        return time.sentence
    interval = ""
    if time.ratio_low is not None and time.ratio_high is not None:
        interval = f" [{time.ratio_low:.3f}, {time.ratio_high:.3f}]"
    decision = time.decision.replace("_", " ")
    return f"a / b = {time.ratio:.3f}{interval}: {decision}. {time.sentence}"


def source_lines(report: CompareOut, *, with_source: bool) -> Iterator[Text]:
    """How the sources differ; colours only where the console has them."""
    source = report.source
    if source.same:
        yield text("Both have the same source.")
        return
    if not source.text:
        yield text("One of the two has no source: its template did not render.")
        return
    yield text(f"sources: {source.removed} lines only in a, {source.added} only in b")
    if not with_source:
        return
    for line in source.text.splitlines():
        yield Text(visible(line), style=DIFF_STYLES.get(line[:1], ""))
    if source.is_cut:
        yield text("The diff is longer; `greenfast source DIGEST` prints each source.")


def _figure_row(figure: FigureOut) -> tuple[object, ...]:
    name = f"{figure.workload}: {figure.name}" if figure.workload else figure.name
    return name, _value(figure.a), _value(figure.b), figure.unit


def _value(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else written(value)


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"
