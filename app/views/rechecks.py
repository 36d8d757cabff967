"""Old negatives evaluated again, with today's files, toolchain and driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import Field

from greenfast.app.views.base_schemas import Output
from greenfast.app.wiring import Services
from greenfast.db import convert
from greenfast.db.ledger import NoteKind
from greenfast.search.errors import Fault, UsageError
from greenfast.search.kernels.identity import kernel_identity
from greenfast.search.loop.evaluate import evaluate, timings_of
from greenfast.search.loop.plan import NO_BASELINE
from greenfast.search.loop.start import baseline_candidate
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.verdict import (
    Faulted,
    Rejected,
    VerdictName,
    verdict_name,
)

if TYPE_CHECKING:
    from greenfast.db.store import Store


@dataclass(frozen=True)
class Recheck:
    """A trial's candidate, evaluated again."""

    verdict: str
    stage: str
    reason: str
    sentence: str
    kernel_digest: str
    environment: tuple[tuple[str, str], ...]


class RecheckOut(Output):
    """The result of evaluating an old negative again."""

    search_id: str
    number: int
    before: str = Field(description="stage: reason, as it was recorded")
    verdict: str = Field(description="today's: accepted, green or rejected")
    now: str = Field(description="stage: reason today; empty for a correct candidate")
    holds: bool = Field(description="rejected again, at the same stage for the same reason")
    sentence: str
    recorded_at: str


def recheck(
    services: Services, search_id: str, number: int, say: Callable[[str], None] = lambda text: None
) -> RecheckOut:
    """Evaluate one rejected trial again and store what came out. The record stays as it is.

    UsageError for a trial that is no negative, and for one whose values no longer exist.
    """
    store = services.store
    row = store.trial(search_id, number)
    trial = store.recorded(search_id, number)
    if trial is None or not isinstance(trial.verdict, Rejected):
        raise UsageError(
            f"trial {number} of search {search_id} is not a negative",
            code="no_negative",
            mend="`greenfast negatives` lists them",
        )
    plan = store.plan(search_id)
    kernel = services.catalogue.kernel(plan.kernel)
    template = kernel.template(trial.candidate.template)
    plan = replace(plan, kernel_digest=kernel_identity(kernel))
    context = replace(services.context(plan), mode=plan.mode)
    point = complete_parameters(template, trial.candidate.values(), plan.compiled)
    candidate = replace(trial.candidate, parameters=point)
    try:
        context.target.space(template, plan.compiled).require(point)
        context.target.prepare()
        times = None
        if plan.baseline != NO_BASELINE and row.stage == "performance":
            base = baseline_candidate(plan, context)
            times = timings_of(evaluate(base, context).verdict)
            context = replace(context, baseline=base, min_gain=plan.min_gain)
        done = evaluate(candidate, context, lambda: times)
        environment = services.environment(context)
    finally:
        services.give_back_gpus()
    verdict = done.verdict
    if isinstance(verdict, Faulted):
        raise Fault(verdict.message, code=verdict.code)
    result = Recheck(
        str(verdict_name(verdict)),
        str(verdict.stage) if isinstance(verdict, Rejected) else "",
        str(verdict.reason) if isinstance(verdict, Rejected) else "",
        verdict.sentence if isinstance(verdict, Rejected) else "correct today",
        plan.kernel_digest,
        tuple(sorted((name, str(value)) for name, value in environment.items())),
    )
    store.note(search_id, number, NoteKind.RECHECK, convert.value_json("recheck", result))
    say(f"{search_id}/{number}: {result.verdict} {result.stage} {result.reason}".rstrip())
    stored = stored_recheck(store, search_id, number)
    assert stored is not None
    return stored


def stored_recheck(store: Store, search_id: str, number: int) -> RecheckOut | None:
    """The newest recheck of a trial; None if there is none."""
    notes = store.notes(search_id, NoteKind.RECHECK, number)
    if not notes:
        return None
    result = convert.value_of("recheck", Recheck, notes[-1].note)
    row = store.trial(search_id, number)
    before = f"{row.stage}: {row.reason}"
    now = f"{result.stage}: {result.reason}" if result.verdict == VerdictName.REJECTED else ""
    return RecheckOut(
        search_id=search_id,
        number=number,
        before=before,
        verdict=result.verdict,
        now=now,
        holds=before == now,
        sentence=result.sentence,
        recorded_at=notes[-1].recorded_at,
    )
