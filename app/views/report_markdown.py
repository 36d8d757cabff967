"""A report as Markdown. Each number of a trial links to that trial's row at the end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from greenfast.app.views.confirmation_schemas import ComparisonOut
from greenfast.app.views.report_schemas import ReportOut, SearchReportOut, StageOut
from greenfast.app.views.report_state import faults_sentence
from greenfast.app.views.schemas import FunnelStep
from greenfast.search.text import visible, written

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def markdown(report: ReportOut) -> str:
    """The whole report; texts of candidates and people are escaped."""
    lines = [f"# {plain(report.title)}", ""]
    for search in report.searches:
        lines += _search(search, several=len(report.searches) > 1)
    lines.append(f"Written by greenfast {report.version} on {report.created_at}.")
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Text in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", visible(text)).replace("\n", " ")


def code(text: str) -> str:
    """Text as code; a bar would end a table's cell."""
    safe = visible(text).replace("`", "'").replace("\n", " ").replace("|", "\\|")
    return f"`{safe}`"


def anchor(search_id: str, number: int) -> str:
    return f"{search_id}-{number}"


def _link(search: SearchReportOut, number: int, text: str) -> str:
    return f"[{text}](#{anchor(search.id, number)})"


def _target(search: SearchReportOut, number: int) -> str:
    return f'<a id="{anchor(search.id, number)}"></a>{code(f"{search.id}/{number}")}'


def _search(search: SearchReportOut, *, several: bool) -> Iterator[str]:
    if several:
        yield from (f"## {plain(search.name)}", "")
    yield from _question(search)
    yield from ("### Set-up", "")
    yield from _table(("", ""), [(name, plain(value)) for name, value in search.setup])
    yield from _gates(search)
    yield from _stages(search)
    yield from _winner(search)
    yield from _compared(search)
    yield from _ablation(search)
    yield from _negatives(search)
    yield from _importances(search)
    yield from ("### What to try next", "")
    yield from (f"- {step}" for step in map(_commands, search.next_steps))
    yield ""
    yield from _trials(search)


def _question(search: SearchReportOut) -> Iterator[str]:
    question = search.question
    yield from (f"**Question.** {plain(question.sentence)}", "")
    if question.hypothesis:
        expected = (
            f" Expected gain: {question.expected_gain:.1%}."
            if question.expected_gain is not None
            else ""
        )
        cost = f" Cost: {plain(question.cost)}." if question.cost else ""
        hypothesis = plain(question.hypothesis.rstrip("."))
        yield from (f"**Hypothesis.** {hypothesis}.{expected}{cost}", "")
    if search.state:
        yield from (f"**State.** {plain(search.state)}", "")
    yield from (f"**Answer.** {plain(question.answer)}", "")


def _gates(search: SearchReportOut) -> Iterator[str]:
    yield from ("### Gates", "")
    yield from _table(
        ("gate", "reached", "passed"),
        [
            (step.stage, str(step.reached), str(step.passed) if judged else "not judged")
            for step, judged in _with_judged(search)
        ],
    )
    if search.by_reason:
        reasons = ", ".join(f"{count} {reason}" for reason, count in search.by_reason.items())
        yield from (f"Rejected: {reasons}.", "")
    if search.faulted:
        yield from (plain(faults_sentence(search.faulted)), "")
    if search.reused:
        yield from (
            f"{search.reused} of {search.trials} trials did not run and repeat an earlier trial.",
            "",
        )


def _stages(search: SearchReportOut) -> Iterator[str]:
    yield from ("### Stages", "")
    yield from _table(
        ("trial", "", "design", "time", "of baseline", "registers", "shared", "spills", "status"),
        [_stage(search, stage) for stage in search.stages],
    )


def _winner(search: SearchReportOut) -> Iterator[str]:
    name = (
        f"{_link(search, search.winner, f'trial {search.winner}')}. "
        if search.winner is not None
        else ""
    )
    yield from ("### Winner", "", f"{name}{plain(search.winner_sentence)}", "")


def _trials(search: SearchReportOut) -> Iterator[str]:
    yield from ("### Trials", "")
    yield from _table(
        ("trial", "verdict", "template", "values", "source"),
        [
            (
                _target(search, trial.number),
                trial.verdict + (f", repeats {trial.repeats}" if trial.repeats else ""),
                plain(trial.template),
                " ".join(
                    code(f"{name}={written(value)}") for name, value in trial.parameters.items()
                ),
                code((trial.source_digest or "-")[:16]),
            )
            for trial in search.cited
        ],
    )


def _with_judged(search: SearchReportOut) -> Iterator[tuple[FunnelStep, bool]]:
    """Each gate, and whether this target judges it: trials go on from one that it does not."""
    correct = int(search.winner is not None)  # a correct trial failed no gate, the last included
    following = [*(step.reached for step in search.funnel[1:]), correct]
    for step, beyond in zip(search.funnel, following, strict=True):
        yield step, bool(step.passed or not beyond)


def _commands(text: str) -> str:
    """Plain text in which the words between backticks stay code."""
    parts = text.split("`")
    return "".join(code(part) if at % 2 else plain(part) for at, part in enumerate(parts))


def _stage(search: SearchReportOut, stage: StageOut) -> Sequence[str]:
    time = f"{stage.time_us:.2f} us" if stage.time_us is not None else "-"
    return (
        _link(search, stage.number, str(stage.number)),
        stage.role,
        plain(stage.design),
        _link(search, stage.number, time) if stage.time_us is not None else "-",
        _link(search, stage.number, f"{stage.ratio:.3f}") if stage.ratio is not None else "-",
        _number(stage.registers),
        _number(stage.smem_bytes),
        _number(stage.spill_bytes),
        plain(stage.status) + (f": {plain(stage.finding)}" if stage.finding else ""),
    )


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _compared(search: SearchReportOut) -> Iterator[str]:
    rows = []
    if search.confirmation is not None:
        for comparison in search.confirmation.comparisons:
            other = comparison.other_trial
            against = plain(comparison.against)
            if other is not None:
                against += f", {_link(search, other, f'trial {other}')}"
            rows.append((against, "", *_ratio(comparison)))
        yield from (plain(search.confirmation.sentence), "")
    for peer in search.peers:
        if peer.comparison is not None:
            rows.append(
                (plain(f"{peer.name} {peer.version}"), peer.workload, *_ratio(peer.comparison))
            )
        else:
            rows.append((plain(peer.name), peer.workload, "-", plain(peer.why)))
    if rows:
        yield from _table(("against", "workload", "winner's time / its time", ""), rows)


def _ratio(comparison: ComparisonOut) -> tuple[str, str]:
    if comparison.ratio is None:
        return "-", comparison.decision
    interval = (
        f" [{comparison.ratio_low:.3f}, {comparison.ratio_high:.3f}]"
        if comparison.ratio_low is not None and comparison.ratio_high is not None
        else ""
    )
    return f"{comparison.ratio:.3f}{interval}", comparison.decision


def _ablation(search: SearchReportOut) -> Iterator[str]:
    yield from ("### The effect of each value of the winner", "")
    ablation = search.ablation
    if ablation is None:
        yield from ("No ablation is stored.", "")
        return
    trial = _link(search, ablation.number, f"trial {ablation.number}")
    yield from (f"Of {trial}. {plain(ablation.summary)}", "")
    yield from _table(
        ("value", "changed to", "effect", "time / winner's", "tuned again"),
        [
            (
                code(f"{each.parameter}={written(each.before)}"),
                " with ".join(
                    (
                        code(written(each.after)),
                        *(code(f"{name}={written(value)}") for name, value in each.along.items()),
                    )
                ),
                each.effect.replace("_", " "),
                _with_interval(each.ratio, each.ratio_low, each.ratio_high),
                _with_interval(each.best_ratio, each.best_low, each.best_high),
            )
            for each in ablation.findings
            if not each.refused
        ],
    )
    refused = [
        f"{each.parameter}={written(each.after)}" for each in ablation.findings if each.refused
    ]
    if refused:
        yield f"No valid point with the winner's other values: {', '.join(map(code, refused))}."
        yield ""
    for finding in ablation.findings:
        if finding.refused:
            continue
        if finding.effect != "unclear" or (finding.alone is not None and finding.alone.stage):
            yield f"- {plain(finding.sentence)}"
    yield ""
    yield from (f"> {plain(caveat)}" for caveat in ablation.caveats)
    yield ""


def _with_interval(ratio: float | None, low: float | None, high: float | None) -> str:
    if ratio is None:
        return "-"
    interval = f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else ""
    return f"{ratio:.3f}{interval}"


def _negatives(search: SearchReportOut) -> Iterator[str]:
    yield from ("### What did not help", "")
    if not search.themes:
        yield from ("No values stand out among the negatives.", "")
        return
    for theme in search.themes:
        example = _link(search, theme.example, f"trial {theme.example}")
        yield f"- {plain(theme.sentence)} ({example})"
    yield ""


def _importances(search: SearchReportOut) -> Iterator[str]:
    yield from ("### What the times depend on", "")
    for template in search.importances:
        yield from (f"{plain(template.template)}: {plain(template.sentence)}", "")
        rows = [
            (code(parameter.name), f"{parameter.share:.1%}")
            for parameter in template.parameters
            if parameter.share is not None
        ]
        if rows:
            yield from _table(("parameter", "share"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
