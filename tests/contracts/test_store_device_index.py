"""The number of the GPU that measured a trial's time: stored, and empty for earlier rows."""

from __future__ import annotations

from dataclasses import replace

import store_values as values
from sqlalchemy import text
from test_store_migrations import written_by

from greenfast.db.dialects import make_engine, parse_url
from greenfast.db.store import Store
from greenfast.search.verdict import DEVICE_INDEX, Passed, Trial


def on_gpu(verdict, number: int):
    """The verdict with its times measured by that GPU."""
    gates = tuple(
        replace(
            gate,
            evidence=replace(
                gate.evidence,
                timings=tuple(
                    replace(timing, detail=(*timing.detail, (DEVICE_INDEX, float(number))))
                    for timing in gate.evidence.timings
                ),
            ),
        )
        if isinstance(gate, Passed) and gate.gate == "performance"
        else gate
        for gate in verdict.gates
    )
    return replace(verdict, gates=gates)


def test_rows_of_the_schema_before_have_no_device_and_keep_the_rest(new_url):
    written_by("0009", new_url)
    engine = make_engine(parse_url(new_url))
    with engine.begin() as connection:
        before = connection.execute(text("SELECT * FROM trials ORDER BY number")).mappings().all()
    assert before and "device_index" not in before[0]
    Store.open(new_url).close()
    with engine.begin() as connection:
        after = connection.execute(text("SELECT * FROM trials ORDER BY number")).mappings().all()
    engine.dispose()
    newer = {"device_index": None, "stage_seconds": None, "machine_code": None}
    assert [dict(row) for row in after] == [{**row, **newer} for row in before]


def test_a_trial_is_stored_with_the_gpu_that_measured_it(store):
    store.submit(values.plan())
    claim = store.claim("worker", values.LEASE_S)
    for number, gpu in ((0, 1), (1, None)):
        proposal = values.proposal(number)
        store.begin(claim, number, proposal)
        verdict = values.accepted(number, 90.0)
        verdict = on_gpu(verdict, gpu) if gpu is not None else verdict
        store.record(
            claim,
            Trial(number, proposal.candidate, verdict, values.source(number).digest, 0.5),
            values.source(number),
        )
    rows = store.trials(claim.search_id).items
    assert {row.number: row.device_index for row in rows} == {0: 1, 1: None}
