"""Champions: the confirmed best of each scope, and those that were before."""

from __future__ import annotations

from sqlalchemy import insert, or_, select, update
from sqlalchemy.orm import Session

from greenfast.db import convert
from greenfast.db.base import Part, found_search, utc
from greenfast.db.confirmations import (
    Checks,
    checks_json,
    confirmation_row,
    passed_checks_of,
    peers_of,
)
from greenfast.db.dialects import now_s, one_at_a_time
from greenfast.db.models import ChampionRecord, ConfirmationRecord, SearchRecord, TrialRecord
from greenfast.db.paging import after, check_limit, page_of, values_of
from greenfast.db.rows import ChampionRow, Page
from greenfast.db.trials import found_trial, trial_row
from greenfast.search.errors import UsageError
from greenfast.search.loop.scope import Scope, scope_of


class Champions(Part):
    """The part of the store that knows what was promoted."""

    def promote(self, search_id: str, number: int, *, replace: bool = False) -> ChampionRow:
        """Make a confirmed winner the champion of its search's scope. The one before stays, with when it ended.

        UsageError `not_confirmed` with what is missing, and `not_compared` when the scope has a champion that the
        winner was not timed against; `replace` does it nevertheless.
        """
        with self._database.writing() as session:
            one_at_a_time(session, "champions")
            search, trial = (
                found_search(session, search_id),
                found_trial(session, search_id, number),
            )
            confirmation = _confirmed(session, search, trial)
            environment = confirmation_row(session, confirmation, search_id).environment
            scope = scope_of(convert.plan_of(search.plan), environment)
            standing = _standing(session, scope)
            earlier = None
            if standing is not None:
                if (standing.search_key, standing.number) == (trial.search_key, number):
                    return _row(session, standing)
                scope, earlier = (
                    convert.value_of("scope", Scope, standing.scope),
                    standing.earlier_digest,
                )
                if not replace:
                    _check_compared(session, search, trial, standing)
                session.execute(
                    update(ChampionRecord)
                    .where(ChampionRecord.key == standing.key)
                    .values(replaced_at=now_s()),
                    execution_options={"synchronize_session": False},
                )
            key = session.scalar(
                insert(ChampionRecord)
                .values(
                    scope_digest=scope.digest,
                    kernel=scope.kernel,
                    scope=convert.value_json("scope", scope),
                    search_key=trial.search_key,
                    number=number,
                    confirmation_key=confirmation.key,
                    promoted_at=now_s(),
                    checks=checks_json(passed_checks_of(confirmation)),
                    earlier_digest=earlier,
                )
                .returning(ChampionRecord.key)
            )
            return _row(session, session.get(ChampionRecord, key))

    def champion(self, scope: Scope) -> ChampionRow | None:
        """The scope's champion, if one was promoted."""
        with self._database.reading() as session:
            record = _standing(session, scope)
            return _row(session, record) if record else None

    def earlier_scopes(self) -> tuple[Scope, ...]:
        """Of the champions that an earlier version promoted and nobody has adopted: scopes without workloads' values."""
        query = select(ChampionRecord.scope).where(
            ChampionRecord.replaced_at.is_(None), ChampionRecord.earlier_digest.is_(None)
        )
        with self._database.reading() as session:
            scopes = [convert.value_of("scope", Scope, scalar) for scalar in session.scalars(query)]
        return tuple(scope for scope in scopes if not scope.shapes)

    def adopt(self, earlier: Scope, scope: Scope, checks: Checks) -> None:
        """Write the champion of an `earlier` version's scope down under its `scope` of today, with the checks that it
        passed. Both digests name it from now on. Where today's scope has a champion already, nothing is changed."""
        with self._database.writing() as session:
            one_at_a_time(session, "champions")
            standing = _standing(session, earlier)
            if standing is None or _standing(session, scope) is not None:
                return
            known = standing.checks or checks_json(
                passed_checks_of(session.get(ConfirmationRecord, standing.confirmation_key))
            )
            session.execute(
                update(ChampionRecord)
                .where(ChampionRecord.key == standing.key)
                .values(
                    scope_digest=scope.digest,
                    scope=convert.value_json("scope", scope),
                    earlier_digest=earlier.digest,
                    checks=known or checks_json(checks),
                ),
                execution_options={"synchronize_session": False},
            )

    def champions(
        self,
        *,
        kernel: str | None = None,
        replaced: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ChampionRow]:
        """The newest first; with `replaced`, also those that are champions no more."""
        check_limit(limit)
        order = f"champions/{kernel}/{replaced}"
        query = select(ChampionRecord).where(
            after((ChampionRecord.key,), values_of(cursor, order, (int,)), descending=True)
        )
        if kernel is not None:
            query = query.where(ChampionRecord.kernel == convert.storable(kernel))
        if not replaced:
            query = query.where(ChampionRecord.replaced_at.is_(None))
        with self._database.reading() as session:
            rows = session.scalars(query.order_by(ChampionRecord.key.desc()).limit(limit + 1)).all()
            return page_of(
                rows, limit, order, lambda row: (row.key,), lambda row: _row(session, row)
            )


def _standing(session: Session, scope: Scope) -> ChampionRecord | None:
    named = or_(
        ChampionRecord.scope_digest == scope.digest, ChampionRecord.earlier_digest == scope.digest
    )
    return session.scalars(
        select(ChampionRecord).where(named, ChampionRecord.replaced_at.is_(None))
    ).first()


def _confirmed(session: Session, search: SearchRecord, trial: TrialRecord) -> ConfirmationRecord:
    """The newest confirmation of the trial; UsageError `not_confirmed` that says what is missing."""
    newest = session.scalars(
        select(ConfirmationRecord)
        .where(
            ConfirmationRecord.search_key == search.key, ConfirmationRecord.number == trial.number
        )
        .order_by(ConfirmationRecord.key.desc())
        .limit(1)
    ).first()
    missing = ""
    if trial.verdict != "accepted":
        missing = _why_not_accepted(trial)
    elif newest is None:
        missing = "it was not timed again in fresh processes"
    elif not newest.confirmed:
        missing = "fresh processes did not confirm that it is faster than the baseline"
    if missing:
        raise UsageError(
            f"trial {trial.number} of search {search.id} cannot be promoted: {missing}",
            code="not_confirmed",
            mend="only the confirmed winner of a search can become champion",
        )
    return newest


def _why_not_accepted(trial: TrialRecord) -> str:
    if trial.verdict is None:
        return "it has no verdict yet"
    open_gates = [
        gate
        for gate, outcome in (word.split("=") for word in (trial.outcomes or "").split())
        if outcome == "unavailable"
    ]
    why = (
        f": {' and '.join(open_gates)} could not be judged where it ran"
        if trial.verdict == "green"
        else ""
    )
    return f"its verdict is {trial.verdict}, not accepted{why}"


def _check_compared(
    session: Session, search: SearchRecord, trial: TrialRecord, standing: ChampionRecord
) -> None:
    """The confirmed winner beat its search's baseline: that has to be the champion it replaces."""
    baseline = session.scalar(
        select(TrialRecord.candidate_digest).where(
            TrialRecord.search_key == search.key, TrialRecord.number == 0, TrialRecord.is_baseline
        )
    )
    champion = session.scalar(
        select(TrialRecord.candidate_digest).where(
            TrialRecord.search_key == standing.search_key, TrialRecord.number == standing.number
        )
    )
    if champion in (baseline, trial.candidate_digest):
        return
    name = session.scalar(select(SearchRecord.id).where(SearchRecord.key == standing.search_key))
    raise UsageError(
        f"trial {trial.number} of search {search.id} was not timed against the champion of its scope, trial "
        f"{standing.number} of search {name}",
        code="not_compared",
        mend="start a search with the baseline champion, or say that it is to be replaced all the same",
    )


def _row(session: Session, record: ChampionRecord) -> ChampionRow:
    search_id = session.scalar(select(SearchRecord.id).where(SearchRecord.key == record.search_key))
    trial = session.get(TrialRecord, (record.search_key, record.number))
    confirmation = session.get(ConfirmationRecord, record.confirmation_key)
    return ChampionRow(
        convert.value_of("scope", Scope, record.scope),
        record.scope_digest,
        trial_row(trial, search_id),
        convert.candidate_of(trial.candidate),
        confirmation_row(session, confirmation, search_id),
        peers_of(session, record.search_key, search_id),
        utc(record.promoted_at),
        utc(record.replaced_at),
        convert.pairs_of("checks", record.checks) if record.checks is not None else None,
    )
