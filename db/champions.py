"""Champions: the confirmed best of each scope, and their predecessors."""

from __future__ import annotations

from sqlalchemy import insert, or_, select, update
from sqlalchemy.orm import Session

from greenfast.db import convert
from greenfast.db.base import Part, search_record, utc, utc_or_none
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
from greenfast.db.rows import ChampionRow, ConfirmationRow, Page
from greenfast.db.trials import trial_record, trial_row
from greenfast.search.errors import UsageError
from greenfast.search.loop.scope import Scope, scope_of
from greenfast.search.verdict import VerdictName

_WITHOUT_SESSION = {"synchronize_session": False}


class Champions(Part):
    """The part of the store that holds promoted trials."""

    def promote(self, search_id: str, number: int, *, replace: bool = False) -> ChampionRow:
        """Make a confirmed winner the champion of its search's scope. Its predecessor is kept.

        UsageError `not_confirmed` with the missing step, and `not_compared` when the scope has a
        champion that the winner was not timed against, unless `replace` is set.
        """
        with self._database.writing() as session:
            one_at_a_time(session, "champions")
            search = search_record(session, search_id)
            trial = trial_record(session, search_id, number)
            confirmation = _confirmed(session, search, trial)
            environment = confirmation_row(session, confirmation, search_id).environment
            scope = scope_of(convert.plan_of(search.plan), environment)
            champion = _champion(session, scope)
            earlier = None
            if champion is not None:
                if (champion.search_key, champion.number) == (trial.search_key, number):
                    return _row(session, champion)
                scope = convert.value_of("scope", Scope, champion.scope)
                earlier = champion.earlier_digest
                if not replace:
                    _check_compared(session, search, trial, champion)
                session.execute(
                    update(ChampionRecord)
                    .where(ChampionRecord.key == champion.key)
                    .values(replaced_at=now_s()),
                    execution_options=_WITHOUT_SESSION,
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
            return _row(session, session.get_one(ChampionRecord, key))

    def champion(self, scope: Scope) -> ChampionRow | None:
        """The scope's champion, if one was promoted."""
        with self._database.reading() as session:
            record = _champion(session, scope)
            return _row(session, record) if record else None

    def earlier_scopes(self) -> tuple[Scope, ...]:
        """The scopes, without workloads' values, of champions that an earlier version promoted.

        Adopted champions are left out.
        """
        query = select(ChampionRecord.scope).where(
            ChampionRecord.replaced_at.is_(None), ChampionRecord.earlier_digest.is_(None)
        )
        with self._database.reading() as session:
            scopes = [convert.value_of("scope", Scope, scalar) for scalar in session.scalars(query)]
        return tuple(scope for scope in scopes if not scope.shapes)

    def adopt(self, earlier: Scope, scope: Scope, checks: Checks) -> None:
        """Rewrite the champion of an `earlier` version's scope under today's `scope`.

        It keeps the checks that it passed, and both digests name it from now on. Nothing changes
        where today's scope has a champion already.
        """
        with self._database.writing() as session:
            one_at_a_time(session, "champions")
            champion = _champion(session, earlier)
            if champion is None or _champion(session, scope) is not None:
                return
            known = champion.checks or checks_json(
                passed_checks_of(session.get_one(ConfirmationRecord, champion.confirmation_key))
            )
            session.execute(
                update(ChampionRecord)
                .where(ChampionRecord.key == champion.key)
                .values(
                    scope_digest=scope.digest,
                    scope=convert.value_json("scope", scope),
                    earlier_digest=earlier.digest,
                    checks=known or checks_json(checks),
                ),
                execution_options=_WITHOUT_SESSION,
            )

    def champions(
        self,
        *,
        kernel: str | None = None,
        replaced: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[ChampionRow]:
        """The newest first; with `replaced`, also former champions."""
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


def _champion(session: Session, scope: Scope) -> ChampionRecord | None:
    named = or_(
        ChampionRecord.scope_digest == scope.digest, ChampionRecord.earlier_digest == scope.digest
    )
    return session.scalars(
        select(ChampionRecord).where(named, ChampionRecord.replaced_at.is_(None))
    ).first()


def _confirmed(session: Session, search: SearchRecord, trial: TrialRecord) -> ConfirmationRecord:
    """The newest confirmation of the trial; UsageError `not_confirmed` with the missing step."""
    newest = _newest_confirmation(session, trial.search_key, trial.number)
    if trial.verdict != VerdictName.ACCEPTED:
        missing = _why_not_accepted(trial)
    elif newest is None:
        missing = "it was not timed again in fresh processes"
    elif not newest.confirmed:
        missing = "fresh processes did not confirm that it is faster than the baseline"
    else:
        return newest
    raise UsageError(
        f"trial {trial.number} of search {search.id} cannot be promoted: {missing}",
        code="not_confirmed",
        mend="only the confirmed winner of a search can become champion",
    )


def _newest_confirmation(session: Session, key: int, number: int) -> ConfirmationRecord | None:
    return session.scalars(
        select(ConfirmationRecord)
        .where(ConfirmationRecord.search_key == key, ConfirmationRecord.number == number)
        .order_by(ConfirmationRecord.key.desc())
        .limit(1)
    ).first()


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
        if trial.verdict == VerdictName.GREEN
        else ""
    )
    return f"its verdict is {trial.verdict}, not accepted{why}"


def _check_compared(
    session: Session, search: SearchRecord, trial: TrialRecord, champion: ChampionRecord
) -> None:
    """UsageError `not_compared` unless the winner's baseline was the champion that it replaces."""
    baseline = session.scalar(
        select(TrialRecord.candidate_digest).where(
            TrialRecord.search_key == search.key, TrialRecord.number == 0, TrialRecord.is_baseline
        )
    )
    best = session.scalar(
        select(TrialRecord.candidate_digest).where(
            TrialRecord.search_key == champion.search_key, TrialRecord.number == champion.number
        )
    )
    if best in (baseline, trial.candidate_digest):
        return
    name = session.scalar(select(SearchRecord.id).where(SearchRecord.key == champion.search_key))
    raise UsageError(
        f"trial {trial.number} of search {search.id} was not timed against the champion of its "
        f"scope, trial {champion.number} of search {name}",
        code="not_compared",
        mend="start a search with the baseline champion, or replace the champion without comparing",
    )


def _row(session: Session, record: ChampionRecord) -> ChampionRow:
    search = session.get_one(SearchRecord, record.search_key)
    search_id = search.id
    trial = session.get_one(TrialRecord, (record.search_key, record.number))
    confirmation = session.get_one(ConfirmationRecord, record.confirmation_key)
    return ChampionRow(
        convert.value_of("scope", Scope, record.scope),
        record.scope_digest,
        trial_row(trial, search),
        convert.candidate_of(trial.candidate),
        confirmation_row(session, confirmation, search_id),
        peers_of(session, record.search_key, search_id),
        utc(record.promoted_at),
        utc_or_none(record.replaced_at),
        convert.pairs_of("checks", record.checks) if record.checks is not None else None,
        _failed_recheck(session, record, search_id),
    )


def _failed_recheck(
    session: Session, record: ChampionRecord, search_id: str
) -> ConfirmationRow | None:
    """The newest confirmation of a champion, where it came later than its own and failed."""
    newest = _newest_confirmation(session, record.search_key, record.number)
    if newest is None or newest.confirmed or newest.key <= record.confirmation_key:
        return None
    return confirmation_row(session, newest, search_id)
