"""`greenfast explain`: why a trial is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import console, print_json, styled, table, text
from greenfast.app.cli.services import opened_services
from greenfast.app.views.trial_names import named
from greenfast.search.errors import UsageError

if TYPE_CHECKING:
    from greenfast.app.views.explanations import ExplanationOut


def explain(
    name: Annotated[
        str,
        typer.Argument(metavar="SEARCH/TRIAL", help="A rejected trial, such as s_abc/7 or last/3."),
    ],
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Explain it again, even if an answer is stored.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Explain a wrong trial: the first wrong stage, the first failing step, the error's pattern.

    Probes compare each stage of the computation with a reference. A ladder goes from the nearest
    correct preset to the trial, one parameter at a time. A checked run looks for races and bad
    accesses. The answer is stored, and shown on the trial's page.
    """
    from greenfast.app.views.explanations import explained

    with opened_services() as services:
        subject = named(services.store, name)
        if subject.number is None:
            raise UsageError(
                f"{name} is a search", code="bad_command_line", mend=f"name a trial: {name}/7"
            )
        explanation = explained(services, subject.search_id, subject.number, fresh=fresh)
    if as_json:
        print_json(explanation.model_dump())
    else:
        show(explanation)
    return 0


def show(explanation: ExplanationOut) -> None:
    """Print the conclusion, then its evidence."""
    out = console()
    out.print(text(f"{explanation.search_id}/{explanation.number}: {explanation.conclusion}"))
    out.print()
    if explanation.stages:
        rows = [(stage.name, styled(stage.outcome), stage.sentence) for stage in explanation.stages]
        out.print(table(("stage", "outcome", ""), rows))
        wrong = [each for each in explanation.stages if each.name == explanation.first_stage]
        if wrong and wrong[0].suspect:
            out.print(text(f"look at: {wrong[0].suspect}"))
    elif explanation.not_probed:
        out.print(text(f"not probed: {explanation.not_probed}"))
    if explanation.rungs:
        rungs = [
            (", ".join(rung.changed), styled(rung.outcome), rung.sentence)
            for rung in explanation.rungs
        ]
        out.print()
        out.print(table(("step", "outcome", ""), rungs, title=f"from {explanation.start}"))
    if explanation.ladder and explanation.ladder != explanation.conclusion:
        out.print(text(explanation.ladder))
    for sentence in (*explanation.error_sentences, explanation.lengths):
        if sentence:
            out.print(text(f"- {sentence}"))
    for finding in explanation.findings:
        out.print(text(f"- {explanation.findings_of}: {finding}"))
    for problem in explanation.problems:
        out.print(text(f"could not be explained: {problem}"))
