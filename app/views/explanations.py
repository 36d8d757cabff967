"""Explanations of wrong trials: made once, stored, and read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from greenfast.app.views.base_schemas import Output
from greenfast.app.wiring import Services
from greenfast.db import convert
from greenfast.db.ledger import NoteKind
from greenfast.search.diagnose.explanation import (
    EXPLAINED,
    Explanation,
    explain,
    finding_words,
)
from greenfast.search.errors import UsageError
from greenfast.search.verdict import Rejected, VerdictName

if TYPE_CHECKING:
    from greenfast.db.rows import SearchRow, TrialRow
    from greenfast.db.store import Store


class StageOut(Output):
    name: str
    outcome: str = Field(description="right, wrong, missing (not in this template) or failed")
    sentence: str
    suspect: str


class RungOut(Output):
    """One step of the ladder."""

    changed: list[str] = Field(description="the values that this step sets, as name=value")
    outcome: str = Field(description="right or wrong")
    stage: str
    reason: str
    sentence: str


class ErrorOut(Output):
    """The wrong elements of one output in one run."""

    case: str
    shape: str
    seed: int
    order: str
    output: str
    elements: int
    wrong: int
    share: float
    bias: float | None = Field(description="mean signed error / mean absolute error; -1 to 1")
    max_error: float | None
    where: str


class ExplanationOut(Output):
    """Why a trial is wrong, as far as probes, a ladder of features and checked runs show it."""

    search_id: str
    number: int
    stage: str
    reason: str
    conclusion: str
    first_stage: str = Field(description="the first wrong stage of the computation, or empty")
    shown_by: str = Field(description="the source of that finding: probes, safety or access")
    stages: list[StageOut]
    not_probed: str = Field(description="why there are no stages")
    start: str = Field(description="the correct preset that the ladder begins with, or empty")
    rungs: list[RungOut]
    ladder: str = Field(description="the finding of the ladder")
    errors: list[ErrorOut]
    error_sentences: list[str]
    lengths: str = Field(description="how the failures depend on sizes")
    findings: list[str]
    findings_of: str
    problems: list[str] = Field(description="parts that a fault of greenfast prevented")
    recorded_at: str


def can_explain(search: SearchRow, trial: TrialRow) -> bool:
    """Whether the trial is wrong in a way that probes, ladders and checked runs look into."""
    return (
        trial.verdict == VerdictName.REJECTED
        and trial.stage in EXPLAINED
        and not search.target.startswith("replay:")
    )


def explained(
    services: Services, search_id: str, number: int, *, fresh: bool = False
) -> ExplanationOut:
    """The stored explanation of a trial, made now if there is none."""
    store = services.store
    stored = None if fresh else stored_explanation(store, search_id, number)
    if stored is not None:
        return stored
    search, row = store.search(search_id), store.trial(search_id, number)
    trial = store.recorded(search_id, number)
    if trial is None or not isinstance(trial.verdict, Rejected):
        raise UsageError(
            f"trial {number} of search {search_id} is {row.verdict or row.state}, not rejected",
            code="nothing_to_explain",
            mend="`greenfast show` has its evidence",
        )
    if search.target.startswith("replay:"):
        raise UsageError(
            f"{search.target} runs nothing, so there is nothing to explain",
            code="cannot_explain",
            mend="take the candidate to an emulator with `greenfast trial`",
        )
    plan = store.plan(search_id)
    context = services.context(plan, services.catalogue_of(search_id))
    try:
        context.target.prepare()
        explanation = explain(context, trial.candidate, trial.verdict)
    finally:
        services.give_back_gpus()
    note = convert.value_json("explanation", explanation)
    store.note(search_id, number, NoteKind.EXPLANATION, note)
    done = stored_explanation(store, search_id, number)
    assert done is not None
    return done


def stored_explanation(store: Store, search_id: str, number: int) -> ExplanationOut | None:
    """None if the trial has not been explained yet."""
    notes = store.notes(search_id, NoteKind.EXPLANATION, number)
    if not notes:
        return None
    explanation = convert.value_of("explanation", Explanation, notes[0].note)
    return _out(explanation, search_id, number, notes[0].recorded_at)


def _out(explanation: Explanation, search_id: str, number: int, recorded_at: str) -> ExplanationOut:
    ladder, error = explanation.ladder, explanation.error
    return ExplanationOut(
        search_id=search_id,
        number=number,
        stage=explanation.stage,
        reason=explanation.reason,
        conclusion=explanation.conclusion,
        first_stage=explanation.first_stage,
        shown_by=explanation.shown_by,
        stages=[StageOut.model_validate(stage) for stage in explanation.stages],
        not_probed=explanation.not_probed,
        start=ladder.start if ladder else "",
        rungs=[
            RungOut(
                changed=list(rung.changed),
                outcome=rung.outcome,
                stage=rung.stage,
                reason=rung.reason,
                sentence=rung.sentence,
            )
            for rung in (ladder.rungs if ladder else ())
        ],
        ladder=ladder.sentence if ladder else "",
        errors=[ErrorOut.model_validate(each) for each in (error.cases if error else ())],
        error_sentences=list(error.sentences if error else ()),
        lengths=explanation.lengths,
        findings=[finding_words(finding) for finding in explanation.findings],
        findings_of=explanation.findings_of,
        problems=list(explanation.problems),
        recorded_at=recorded_at,
    )
