"""The seconds of a trial's stages: stored with it, and empty for rows of earlier versions."""

from __future__ import annotations

from dataclasses import replace

import store_values as values
from sqlalchemy import text
from test_store_migrations import written_by

from greenfast.db.dialects import make_engine, parse_url
from greenfast.db.store import Store
from greenfast.search.verdict import Reason, Stage

STAGES = (("render", 0.0012345678), ("compile", 0.75), ("waiting", 0.0))


def test_rows_of_the_schema_before_have_no_stages_and_keep_the_rest(new_url):
    written_by("0011", new_url)
    engine = make_engine(parse_url(new_url))
    with engine.begin() as connection:
        before = connection.execute(text("SELECT * FROM trials ORDER BY number")).mappings().all()
    assert before and "stage_seconds" not in before[0]
    store = Store.open(new_url)
    trials = [trial for item in store.searches().items for trial in store.trials(item.id).items]
    assert len(trials) == len(before) and {trial.stage_seconds for trial in trials} == {None}
    store.close()
    with engine.begin() as connection:
        after = connection.execute(text("SELECT * FROM trials ORDER BY number")).mappings().all()
    engine.dispose()
    newer = {"stage_seconds": None, "machine_code": None}
    assert [dict(row) for row in after] == [{**row, **newer} for row in before]


def test_a_trial_keeps_its_stages_in_order_also_when_it_is_settled(store):
    store.submit(values.plan())
    claim = store.claim("worker", values.LEASE_S)
    for number, stages in ((0, STAGES), (1, ())):
        proposal = values.proposal(number)
        store.begin(claim, number, proposal)
        assert store.trial(claim.search_id, number).stage_seconds is None
        trial = values.trial(number, values.accepted(number, 90.0))
        store.record(claim, replace(trial, stage_seconds=stages), values.source(number))
    stored = {row.number: row.stage_seconds for row in store.trials(claim.search_id).items}
    assert stored == {0: {"render": 0.001235, "compile": 0.75, "waiting": 0.0}, 1: None}
    assert list(store.trial(claim.search_id, 0).stage_seconds) == [name for name, _ in STAGES]
    failed = values.rejected(Stage.SAFETY, Reason.RACE).gates[-1]
    store.settle(claim, 0, failed)
    assert store.trial(claim.search_id, 0).reason == "race"
    assert store.trial(claim.search_id, 0).stage_seconds == stored[0]
