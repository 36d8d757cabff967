"""Valid negatives: rejected trials of all searches, each with its scope."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from greenfast.db import convert
from greenfast.db.base import Part, check_name, search_key, utc
from greenfast.db.models import IS_REJECTED, EnvironmentRecord, SearchRecord, TrialRecord
from greenfast.db.paging import after, check_limit, page_of, values_of
from greenfast.db.rows import NegativeRow, Page
from greenfast.db.trial_filters import ParameterFilter, conditions
from greenfast.db.trials import changed_of, environment_of
from greenfast.search.verdict import Reason


class Negatives(Part):
    """The part of the store that reads rejected trials."""

    def negatives(
        self,
        *,
        kernel: str | None = None,
        search_id: str | None = None,
        reason: str | None = None,
        feature: str | None = None,
        parameters: Sequence[ParameterFilter] = (),
        device: str | None = None,
        dtype: str | None = None,
        workload: str | None = None,
        text: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[NegativeRow]:
        """Rejected trials, newest first.

        `feature`: a parameter that differs from the baseline's. `workload`: one of the search's.
        """
        check_limit(limit)
        reason = check_name("reason", reason, Reason)
        behind = values_of(cursor, "negatives", (float, int, int))
        keys = (TrialRecord.recorded_at, TrialRecord.search_key, TrialRecord.number)
        query = (
            select(TrialRecord, SearchRecord, EnvironmentRecord)
            .join(SearchRecord, SearchRecord.key == TrialRecord.search_key)
            .outerjoin(
                EnvironmentRecord, EnvironmentRecord.digest == TrialRecord.environment_digest
            )
            .where(IS_REJECTED, after(keys, behind, descending=True))
        )
        if reason is not None:
            query = query.where(TrialRecord.reason == reason)
        if kernel is not None:
            query = query.where(TrialRecord.kernel == convert.storable(kernel))
        query = query.where(*conditions(parameters, text))
        if feature is not None:
            query = query.where(_changes(feature))
        with self._database.reading() as session:
            if device is not None or dtype is not None or workload is not None:
                keys_of_searches = _searches(session, device, dtype, workload)
                query = query.where(TrialRecord.search_key.in_(keys_of_searches))
            if search_id is not None:
                query = query.where(TrialRecord.search_key == search_key(session, search_id))
            rows = session.execute(
                query.order_by(*(key.desc() for key in keys)).limit(limit + 1)
            ).all()
            return page_of(
                rows,
                limit,
                "negatives",
                lambda row: (row[0].recorded_at, row[0].search_key, row[0].number),
                lambda row: _row(*row),
            )


def _changes(feature: str) -> Any:
    """The stored changes against the baseline hold a row that begins with this name."""
    name = json.dumps(convert.storable(feature))
    return TrialRecord.changed.contains(f"[{name},", autoescape=True)


def _searches(
    session: Session, device: str | None, dtype: str | None, workload: str | None
) -> list[int]:
    """The searches on a device, of a type, with a workload; names are compared as a whole."""
    rows = session.execute(
        select(SearchRecord.key, SearchRecord.plan, EnvironmentRecord).outerjoin(
            EnvironmentRecord, EnvironmentRecord.digest == SearchRecord.environment_digest
        )
    )
    keys = []
    for key, document, environment in rows:
        plan = convert.plan_of(document)
        on = environment_of(environment).get("device", plan.target.partition(":")[2])
        types = {str(value) for name, value in plan.compiled if name == "dtype"}
        types |= {str(value) for shape in plan.shapes for name, value in shape if name == "dtype"}
        if (
            device in (None, on)
            and (dtype is None or dtype in types)
            and (workload is None or workload in plan.workloads)
        ):
            keys.append(key)
    return keys


def _row(
    trial: TrialRecord, search: SearchRecord, environment: EnvironmentRecord | None
) -> NegativeRow:
    assert trial.stage is not None and trial.reason is not None and trial.recorded_at is not None
    plan = convert.plan_of(search.plan)
    entries = environment_of(environment)
    return NegativeRow(
        search_id=search.id,
        number=trial.number,
        kernel=trial.kernel,
        workloads=plan.workloads,
        target=plan.target,
        device=entries.get("device", plan.target),
        toolchain=entries.get("toolchain", ""),
        driver=entries.get("driver", ""),
        template=trial.template,
        parameters=convert.candidate_of(trial.candidate).values(),
        baseline=plan.baseline,
        changed=", ".join(map(str, changed_of(trial))),
        stage=trial.stage,
        reason=trial.reason,
        sentence=trial.sentence,
        finding=trial.finding,
        ratio_to_baseline=trial.ratio_to_baseline,
        candidate_digest=trial.candidate_digest,
        source_digest=trial.source_digest,
        recorded_at=utc(trial.recorded_at),
    )
