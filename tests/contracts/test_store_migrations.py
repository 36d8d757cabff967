"""Databases of earlier schemas with rows in them, on each kind of server."""

from __future__ import annotations

import pytest
import store_values as values
from sqlalchemy import inspect, text

from greenfast.db import convert
from greenfast.db.dialects import WRITER, make_engine, parse_url, sqlite_use_wal
from greenfast.db.migrate import upgrade
from greenfast.db.models import REVISION, Base
from greenfast.db.store import Store

FINDINGS = "trial 1 is faster than the baseline; peers were not compared: a child was lost"
SEARCH = (
    "INSERT INTO searches (id, name, kernel, target, strategy, plan, status, why, created_at, "
    "spent_s, trials_done, fence) VALUES (:id, 'old', 'attention', 'cuda:0', 'random', :plan, "
    ":status, :why, 1.0, 2.0, 3, 1)"
)
TRIAL = (
    "INSERT INTO trials (search_key, number, fence, attempts, kernel, template, preset, "
    "candidate_digest, candidate, sampler, is_baseline, created_at, recorded_at, verdict, stage, "
    "reason, sentence) VALUES (1, :number, 1, 1, 'attention', 'wmma', '', 'd', :candidate, "
    ":sampler, :is_baseline, 1.0, 2.0, :verdict, :stage, :reason, :sentence)"
)
SENTENCES = {  # as they were stored: the finding
    "modelled: 100.0 us": "modelled: 100.0 us",
    "tile_m 16 -> 32 (against wmma:a): 9 bytes (of 8) spill": "9 bytes (of 8) spill",
    "no such file (against all odds): none": "no such file (against all odds): none",
}
ROWS = {  # id: (status, why as it was stored, cause, closing)
    "s_aaaaaaaaaaaa": (
        "completed",
        f"the budget is spent; {FINDINGS}",
        "the budget is spent",
        FINDINGS,
    ),
    "s_bbbbbbbbbbbb": ("completed", "the budget is spent", "the budget is spent", ""),
    "s_cccccccccccc": ("failed", "no compiler; install one", "no compiler; install one", ""),
}


@pytest.fixture
def url(new_url):
    return new_url


def written_by(revision: str, url: str) -> None:
    """A database of an earlier schema with some searches."""
    parsed = parse_url(url)
    engine = make_engine(parsed)
    if engine.dialect.name == "sqlite":
        sqlite_use_wal(engine, 10.0)
    with engine.execution_options(**{WRITER: True}).begin() as connection:
        upgrade(connection, revision)
        for name, (status, why, _, _) in ROWS.items():
            plan = convert.plan_json(values.plan())
            row = {"id": name, "plan": plan, "status": status, "why": why}
            connection.execute(text(SEARCH), row)
        for number, sentence in enumerate(SENTENCES):
            proposal = values.proposal(number)
            is_rejected = "tile_m" in sentence
            row = {
                "number": number,
                "candidate": convert.candidate_json(proposal.candidate),
                "sampler": convert.sampler_json(proposal.sampler),
                "is_baseline": False,
                "verdict": "rejected" if is_rejected else "green",
                "stage": "ptxas" if is_rejected else None,
                "reason": "spills" if is_rejected else None,
                "sentence": sentence,
            }
            connection.execute(text(TRIAL), row)
    engine.dispose()


@pytest.mark.parametrize("revision", ["0001", "0004", "0006"])
def test_rows_of_an_earlier_schema_are_read_and_their_sentences_split(url, revision):
    written_by(revision, url)
    store = Store.open(url)
    for name, (status, why, cause, closing) in ROWS.items():
        row = store.search(name)
        assert (row.status, row.why, row.cause, row.closing) == (status, why, cause, closing)
    trials = store.trials("s_aaaaaaaaaaaa").items
    assert {trial.sentence: trial.finding for trial in trials} == SENTENCES
    assert store.queue_state().queued == 0 and store.stats()["revision"] == REVISION
    store.close()


def test_migrated_tables_have_the_columns_of_the_models(url):
    Store.open(url).close()
    engine = make_engine(parse_url(url))
    tables = inspect(engine)
    for table in Base.metadata.sorted_tables:
        columns = {column["name"]: column["nullable"] for column in tables.get_columns(table.name)}
        assert columns == {column.name: column.nullable for column in table.columns}, table.name
    engine.dispose()
