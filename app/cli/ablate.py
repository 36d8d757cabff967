"""`greenfast ablate`: the effect of each feature and each number of a winner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import console, print_json, table, text
from greenfast.app.cli.services import opened_services
from greenfast.app.views.terminal import say
from greenfast.app.views.trial_names import TrialName, trial_named
from greenfast.search.diagnose.defaults import RETUNED
from greenfast.search.errors import UsageError
from greenfast.search.text import written

if TYPE_CHECKING:
    from greenfast.app.views.ablation_schemas import AblationOut, FindingOut
    from greenfast.db.store import Store


def ablate(
    name: Annotated[
        str,
        typer.Argument(
            metavar="SEARCH[/TRIAL]",
            help="A trial, such as s_abc/7 or last/baseline; a search means its best trial.",
        ),
    ],
    retune: Annotated[
        int,
        typer.Option(
            "--retune",
            metavar="N",
            min=0,
            max=50,
            help="Trials that tune again after a change that matters; 0: only the change itself.",
        ),
    ] = RETUNED,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Measure every change again, even if its result is stored."),
    ] = False,
    stored: Annotated[
        bool, typer.Option("--stored", help="Show stored results, and measure nothing.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Switch each feature of a winner off, and step each of its numbers, one at a time.

    Every change goes through all gates. On a GPU it is timed in turns with the winner, and the
    intervals are corrected for the number of changes. If a change matters, a few trials tune the
    other values again. On an emulator or a recording, changes smaller than the error of the times
    stay unclear.

    Each result is stored at once, so the same command continues after an interruption.
    """
    from greenfast.app.views.ablations import run_ablation

    with opened_services() as services:
        subject = trial_named(services.store, name)
        search_id, number = subject.search_id, subject.number
        ablation = (
            _stored(services.store, subject)
            if stored
            else run_ablation(services, search_id, number, retune=retune, fresh=fresh, say=say)
        )
    if as_json:
        print_json(ablation.model_dump())
    else:
        show(ablation)
    return 0


def _stored(store: Store, subject: TrialName) -> AblationOut:
    """The stored results; UsageError without any."""
    from greenfast.app.views.ablations import stored_ablation

    ablation = stored_ablation(store, subject.search_id, subject.number)
    if ablation is None:
        raise UsageError(
            f"there is no ablation of {subject}",
            code="no_ablation",
            mend=f"`greenfast ablate {subject}` makes it",
        )
    return ablation


def show(ablation: AblationOut) -> None:
    """Print a row for each change, then the summary and its caveats."""
    out = console()
    title = f"ablation of {ablation.search_id}/{ablation.number}, {ablation.time_kind} times"
    out.print(
        table(
            ("winner's value", "changed to", "effect", "time / winner's", "tuned again"),
            map(_row, ablation.findings),
            title=title,
        )
    )
    out.print()
    for finding in ablation.findings:
        if finding.effect != "unclear" or finding.alone is None or finding.alone.stage:
            out.print(text(f"- {finding.sentence}"))
    out.print()
    out.print(text(ablation.summary))
    for caveat in ablation.caveats:
        out.print(text(caveat))


def _row(finding: FindingOut) -> tuple[object, ...]:
    return (
        f"{finding.parameter}={written(finding.before)}",
        " ".join(
            (written(finding.after), *(f"{n}={written(v)}" for n, v in finding.along.items()))
        ),
        finding.effect.replace("_", " "),
        _ratio(finding.ratio, finding.ratio_low, finding.ratio_high),
        _ratio(finding.best_ratio, finding.best_low, finding.best_high),
    )


def _ratio(ratio: float | None, low: float | None, high: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.3f}" + (f" [{low:.3f}, {high:.3f}]" if low and high else "")
