"""`greenfast export`: the trials of a search as a file, or as Optuna studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from greenfast.app.cli.csv_text import csv_text
from greenfast.app.cli.export_recording import PREFIX, RecordedTrial, recorded_trials
from greenfast.app.cli.files import require_folder, write_output
from greenfast.app.cli.options import AsJson, Output
from greenfast.app.cli.output import print_json
from greenfast.app.cli.services import opened_services
from greenfast.app.views.stage_times import STAGE_TIMES
from greenfast.app.views.terminal import say
from greenfast.app.views.trial_names import search_named
from greenfast.search.errors import UsageError
from greenfast.search.json_values import json_text
from greenfast.search.verdict import VerdictName

if TYPE_CHECKING:
    from greenfast.app.cli.export_originals import Originals
    from greenfast.db.rows import TrialRow
    from greenfast.db.store import Store

FIRST = ("number", "template", "preset", "origin")
LAST = ("attempts", "created_at", "recorded_at", "candidate_digest", "source_digest")


class Format(StrEnum):
    JSON = "json"
    CSV = "csv"
    T4 = "t4"
    CACHE = "kernel-tuner"


def export(
    search: Annotated[
        str,
        typer.Argument(
            metavar="SEARCH",
            help="A search: its id, a unique beginning of it, or `last`. Or a recording: "
            "`replay:NAME`.",
        ),
    ],
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="json: everything; csv: one row per trial; t4 and kernel-tuner: for other tuners.",
        ),
    ] = Format.JSON,
    evidence: Annotated[
        bool, typer.Option("--evidence", help="In JSON, include the gates' evidence of each trial.")
    ] = False,
    optuna: Annotated[
        str | None,
        typer.Option(
            "--optuna",
            metavar="URL",
            help="Write an Optuna storage instead, such as sqlite:///study.db, with one study "
            "per template; optuna-dashboard opens it.",
        ),
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> int:
    """Save the trials of a search: JSON or CSV on stdout or in a file, or an Optuna storage.

    A recording can be saved for other tuners: as t4, kernel-tuner or Optuna studies.
    """
    require_folder(output)
    make = _of_recording if search.startswith(PREFIX) else _of_search
    made = make(search, form, evidence, optuna)
    if isinstance(made.content, dict):
        for name, number in made.content.items():
            say(f"study {name}: {number} trials")
        if as_json:
            print_json({"id": made.id, "studies": made.content})
    elif output is not None:
        write_output(output, made.content)
        say(f"written to {output}")
        if as_json:
            print_json({"id": made.id, "path": str(output), "trials": made.trials})
    else:
        print(made.content, end="")
    return 0


@dataclass(frozen=True)
class _Made:
    id: str
    trials: int
    content: str | dict[str, int]  # a file's text, or the sizes of studies by name


def _of_search(search: str, form: Format, evidence: bool, optuna: str | None) -> _Made:
    from greenfast.app.cli.export_originals import originals_of
    from greenfast.app.cli.export_space import cache_document, t4_document
    from greenfast.app.cli.trials import selected

    with opened_services() as services:
        store = services.store
        search_id = search_named(store, search)
        rows = selected(store, search_id)
        content: str | dict[str, int]
        if optuna is not None:
            originals = originals_of(store.search(search_id).target)
            content = _studies(optuna, search_id, rows, originals)
        elif form is Format.CSV:
            content = as_csv(rows)
        elif form is Format.T4:
            row = store.search(search_id)
            originals = originals_of(row.target)
            results = t4_document(rows, originals, kernel=row.kernel, device=row.target)
            content = json_text(results) + "\n"
        elif form is Format.CACHE:
            row = store.search(search_id)
            originals = originals_of(row.target)
            content = json_text(cache_document(rows, row.kernel, row.target, originals)) + "\n"
        else:
            content = json_text(document(store, search_id, rows, evidence)) + "\n"
    return _Made(search_id, len(rows), content)


def _of_recording(target: str, form: Format, evidence: bool, optuna: str | None) -> _Made:
    from greenfast.app.cli.export_originals import originals_of
    from greenfast.app.cli.export_space import cache_document, t4_document

    recording, rows = recorded_trials(target)
    heading, originals = recording.heading, originals_of(target)
    device = heading.device.title
    content: str | dict[str, int]
    if optuna is not None:
        content = _studies(optuna, heading.name, rows, originals)
    elif form is Format.T4:
        results = t4_document(rows, originals, kernel=heading.kernel, device=device)
        content = json_text(results) + "\n"
    elif form is Format.CACHE:
        content = json_text(cache_document(rows, heading.kernel, device, originals)) + "\n"
    else:
        raise UsageError(
            f"a recording cannot be exported as {form}",
            code="bad_format",
            mend=f"give --format t4, --format kernel-tuner or --optuna, or search {heading.kernel} "
            f"with --target {target} --strategy exhaustive and export that",
        )
    return _Made(target, len(rows), content)


def document(
    store: Store, search_id: str, rows: Sequence[TrialRow], evidence: bool
) -> dict[str, Any]:
    """The search and its trials as REST has them."""
    from greenfast.app.views.progress import search_detail
    from greenfast.app.views.schemas import TrialDetailOut, TrialOut

    trials = [
        TrialDetailOut.model_validate(store.trial(search_id, row.number)).model_dump()
        if evidence
        else TrialOut.model_validate(row).model_dump()
        for row in rows
    ]
    return {"search": search_detail(store, search_id).model_dump(), "trials": trials}


def as_csv(rows: Sequence[TrialRow]) -> str:
    """One row a trial; a parameter's column is `parameter.NAME`."""
    from greenfast.db.figures import FIGURES

    parameters = list(dict.fromkeys(name for row in rows for name in row.parameters))
    stages = (f"{stage}_s" for stage in STAGE_TIMES)
    titles = [*FIRST, *(f"parameter.{name}" for name in parameters), *FIGURES, *stages, *LAST]
    return csv_text(
        titles,
        (
            [
                *(getattr(row, name) for name in FIRST),
                *(row.parameters.get(name) for name in parameters),
                *(getattr(row, name) for name in FIGURES),
                *((row.stage_seconds or {}).get(stage) for stage in STAGE_TIMES),
                *(getattr(row, name) for name in LAST),
            ]
            for row in rows
        ),
    )


def _studies(
    url: str,
    search_id: str,
    rows: Sequence[TrialRow] | Sequence[RecordedTrial],
    originals: Originals,
) -> dict[str, int]:
    from greenfast.app.cli.export_space import time_us_of
    from greenfast.search.strategies.optuna_export import ExportedTrial, export_study

    written = {}
    for template in dict.fromkeys(row.template for row in rows):
        trials = [
            ExportedTrial(
                row.number,
                originals(row.parameters),
                time_us_of(row),
                {
                    "verdict": row.verdict,
                    "reason": row.reason or "",
                    "sentence": row.finding,
                    "ratio_to_baseline": row.ratio_to_baseline,
                    "time_kind": row.time_kind,
                    "source_digest": row.source_digest,
                },
            )
            for row in rows
            if row.template == template and row.verdict not in (None, VerdictName.FAULTED)
        ]
        name = f"{search_id}/{template}"
        written[name] = export_study(url, name, trials)
    return written
