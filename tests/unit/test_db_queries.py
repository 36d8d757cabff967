"""Every list and figure of a search of 10,000 trials is answered through an index."""

from __future__ import annotations

import pytest
import store_values as values
from sqlalchemy import event, text

from greenfast.db.store import Store
from greenfast.db.trials import SORTS

TRIALS = 10_000


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A search of 10,000 trials beside a small one, and the plans of the queries that are run."""
    store = Store.open(f"sqlite:///{tmp_path_factory.mktemp('big') / 'store.sqlite'}")
    store.submit(values.plan())
    search = store.submit(values.plan())
    claims = [store.claim("worker", 1e6), store.claim("worker", 1e6)]
    for claim in claims:
        values.run_trial(store, claim, 0)
        values.run_trial(store, claim, 1, values.rejected())
    with store._database.writing() as session:
        columns = [row[1] for row in session.execute(text("PRAGMA table_info(trials)"))]
        varied = {
            "number": "n",
            "time_median_us": "100.0 + (n * 7919) % 9973",
            "registers": "32 + n % 200",
            "smem_bytes": "1024 * (n % 200)",
            "max_abs_error": "n * 1e-7",
            "duration_s": "n % 97 * 0.1",
            "recorded_at": "recorded_at + n",
            "is_baseline": "0",
        }
        values_sql = ", ".join(varied.get(column, column) for column in columns)
        session.execute(
            text(
                "WITH RECURSIVE count(n) AS "
                "(SELECT 2 UNION ALL SELECT n + 1 FROM count WHERE n < :last) "
                f"INSERT INTO trials SELECT {values_sql} FROM count "
                "JOIN trials ON trials.number = (n % 3 = 0) WHERE trials.search_key = 2"
            ),
            {"last": TRIALS - 1},
        )
        session.execute(
            text(
                "INSERT INTO evidence SELECT t.search_key, t.number, e.verdict, e.details "
                "FROM trials t JOIN evidence e ON e.search_key = 2 AND e.number = 0 "
                "WHERE t.search_key = 2 AND t.number > 1"
            )
        )
    plans: list[str] = []

    @event.listens_for(store._database.engine, "after_cursor_execute")
    def explain(connection, cursor, statement, parameters, context, many):
        if statement.startswith(("SELECT", "UPDATE")) and not many:
            cursor = connection.connection.cursor()
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(f"{row[3]}" for row in cursor.fetchall())

    yield store, search.id, claims[1], plans
    store.close()


def plans_of(big, work) -> list[str]:
    big[3].clear()
    work(big[0], big[1], big[2])
    assert big[3], "nothing was asked"
    return list(big[3])


def second_page(store, search, **order):
    return store.trials(search, cursor=store.trials(search, **order).next_cursor, **order)


READS = {
    **{
        f"{way} by {sort}": (
            lambda store, search, claim, sort=sort, down=down: second_page(
                store, search, sort=sort, descending=down
            )
        )
        for sort in SORTS
        for way, down in (("up", False), ("down", True))
    },
    "best": lambda store, search, claim: store.best(search),
    "one search": lambda store, search, claim: store.search(search),
    "searches": lambda store, search, claim: store.searches(status="running"),
    "one trial": lambda store, search, claim: store.trial(search, 5000),
    "negatives": lambda store, search, claim: store.negatives(cursor=store.negatives().next_cursor),
    "negatives for a reason": lambda store, search, claim: store.negatives(reason="wrong_values"),
    "negatives of a search": lambda store, search, claim: store.negatives(search_id=search),
    "source": lambda store, search, claim: store.source(values.source(0).digest[:10]),
    "record": lambda store, search, claim: values.run_trial(store, claim, TRIALS + 1),
    "renew": lambda store, search, claim: store.renew(claim, 1e6, 1.0),
}


@pytest.mark.parametrize("name", READS)
def test_no_query_scans_or_sorts_trials(big, name):
    for step in plans_of(big, READS[name]):
        assert not step.startswith("SCAN trials") or "USING" in step, step
        assert "TEMP B-TREE" not in step or "trials" not in step, step
    assert not any("TEMP B-TREE" in step for step in big[3]), big[3]


@pytest.mark.parametrize(
    "name, work",
    [
        ("counts", lambda store, search, claim: store.counts(search)),
        ("claim", lambda store, search, claim: store.claim("idle", 1.0)),
        ("best_so_far", lambda store, search, claim: store.best_so_far(search)),
    ],
)
def test_what_needs_every_trial_reads_an_index_of_one_search(big, name, work):
    for step in plans_of(big, work):
        assert not step.startswith("SCAN"), step


def test_counts_come_from_the_index_alone(big):
    assert any(
        "COVERING INDEX ix_trials_counts" in step
        for step in plans_of(big, lambda store, search, claim: store.counts(search))
    )


@pytest.mark.slow
def test_a_long_search_is_taken_up_again(big):
    store, search, claim, _ = big
    history = store.history(claim)
    assert len(history.trials) >= TRIALS and history.pending == ()
    assert store.counts(search).total == len(history.trials)
