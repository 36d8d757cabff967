"""What a database behind the store must do: SQLite, and PostgreSQL if GREENFAST_TEST_POSTGRES names one."""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid

import pytest
import store_values as values
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from db.faults import LeaseLost
from db.sink import StoreSink
from db.store import Store
from db.trials import SORTS
from search.errors import Fault, UsageError
from search.run import Control, Ended
from search.strategies import Proposal
from search.verdict import Outcome, Reason, Stage, gate_result

POSTGRES = os.environ.get("GREENFAST_TEST_POSTGRES", "")
LEASE_S = 30.0


@pytest.fixture(params=["sqlite", "postgresql"] if POSTGRES else ["sqlite"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.sqlite'}"
        return
    schema = f"greenfast_{uuid.uuid4().hex[:12]}"
    admin = create_engine(POSTGRES)
    with admin.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    yield make_url(POSTGRES).update_query_dict({"options": f"-csearch_path={schema}"}).render_as_string(False)
    with admin.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    admin.dispose()


@pytest.fixture
def store(url):
    opened = Store.open(url)
    yield opened
    opened.close()


@pytest.fixture
def claim(store):
    store.submit(values.plan())
    return store.claim("worker", LEASE_S)


def expire(store, claim) -> None:
    """Let the worker of `claim` have been silent for longer than its lease."""
    with store._database.writing() as session:
        session.execute(text("UPDATE searches SET renewed_at = renewed_at - lease_s - 1 WHERE id = :id"),
                        {"id": claim.search_id})


@pytest.mark.skipif(not POSTGRES, reason="set GREENFAST_TEST_POSTGRES to a URL to test PostgreSQL too")
def test_postgresql_is_tested_too(url):
    assert make_url(POSTGRES).get_backend_name() == "postgresql"


class TestSearches:
    def test_a_submitted_search_is_queued_with_its_whole_plan(self, store):
        plan = values.plan(trials=None, seconds=12.5, name="ünïcode ✓")
        row = store.submit(plan)
        assert (row.status, row.trials_budget, row.seconds_budget, row.seed) == ("queued", None, 12.5, 7)
        assert row.workloads == ("mission",) and row.best_time_us is None and row.created_at.endswith("Z")
        assert store.plan(row.id) == plan and store.search(row.id) == row

    def test_an_unknown_search_is_refused(self, store):
        store.submit(values.plan())
        ids = ("s_aaaaaaaaaaaa", "", "1 OR 1=1", "s_%", "\udcff", "x" * 10_000)
        calls = (store.search, store.plan, store.trials, store.best, store.counts, store.best_so_far,
                 lambda one: store.trial(one, 0), lambda one: store.request_control(one, "pause"),
                 lambda one: store.negatives(search_id=one))
        for search_id, call in itertools.product(ids, calls):
            with pytest.raises(UsageError) as refused:
                call(search_id)
            assert refused.value.code == "unknown_search"
            assert store.claim("worker", LEASE_S, search_id) is None

    def test_pages_are_newest_first_and_keep_their_place_while_searches_arrive(self, store):
        ids = [store.submit(values.plan(name=f"search {number}")).id for number in range(5)]
        first = store.searches(limit=2)
        newer = store.submit(values.plan()).id
        second = store.searches(limit=2, cursor=first.next_cursor)
        third = store.searches(limit=2, cursor=second.next_cursor)
        seen = [row.id for page in (first, second, third) for row in page.items]
        assert seen == ids[::-1] and newer not in seen and third.next_cursor is None

    def test_searches_are_filtered_by_status(self, store):
        queued, paused = store.submit(values.plan()), store.submit(values.plan())
        store.request_control(paused.id, "pause")
        assert [row.id for row in store.searches(status="paused").items] == [paused.id]
        assert [row.id for row in store.searches(status="queued").items] == [queued.id]
        with pytest.raises(UsageError, match="known: .*queued"):
            store.searches(status="lost")

    def test_a_foreign_cursor_is_refused(self, store):
        for cursor in ("", "x", "AAAA", "é", "WyJ0cmlhbHMiLDFd", "W251bGw", "e30", "W1tbW1tb", "\udcff"):
            with pytest.raises(UsageError) as refused:
                store.searches(cursor=cursor)
            assert refused.value.code == "bad_cursor"

    def test_a_page_has_a_size(self, store):
        for limit in (0, -1, 501, 2**70):
            with pytest.raises(UsageError) as refused:
                store.searches(limit=limit)
            assert refused.value.code == "bad_limit"


class TestControl:
    @pytest.mark.parametrize("wanted, status", [("pause", "paused"), ("cancel", "cancelled")])
    def test_a_queued_search_obeys_at_once(self, store, wanted, status):
        search = store.submit(values.plan())
        assert store.request_control(search.id, wanted).status == status
        assert store.claim("worker", LEASE_S) is None
        assert store.request_control(search.id, wanted).status == status, "asking again is no error"

    @pytest.mark.parametrize("wanted, control", [("pause", Control.PAUSE), ("cancel", Control.CANCEL)])
    def test_a_running_search_is_told_through_its_lease(self, store, claim, wanted, control):
        assert store.renew(claim, LEASE_S, 1.5) is Control.RUN
        row = store.request_control(claim.search_id, wanted)
        assert (row.status, row.wanted) == ("running", wanted)
        assert store.renew(claim, LEASE_S, 2.5) is control
        assert store.search(claim.search_id).spent_s == 2.5

    def test_a_search_whose_worker_is_gone_obeys_at_once(self, store, claim):
        expire(store, claim)
        assert store.request_control(claim.search_id, "cancel").status == "cancelled"
        with pytest.raises(LeaseLost):
            store.renew(claim, LEASE_S, 1.0)

    def test_a_pause_that_is_taken_back_is_not_obeyed(self, store, claim):
        store.request_control(claim.search_id, "pause")
        assert store.request_control(claim.search_id, "resume").wanted is None
        assert store.renew(claim, LEASE_S, 0.0) is Control.RUN
        store.request_control(claim.search_id, "pause")
        store.request_control(claim.search_id, "resume")
        store.finish(claim, Ended.PAUSED, "paused")          # the worker had seen the pause only
        assert store.search(claim.search_id).status == "queued"

    def test_a_cancel_that_comes_while_the_worker_pauses_is_obeyed(self, store, claim):
        store.request_control(claim.search_id, "pause")
        store.request_control(claim.search_id, "cancel")
        store.finish(claim, Ended.PAUSED, "paused")
        assert store.search(claim.search_id).status == "cancelled"

    @pytest.mark.parametrize("ended, refused", [
        (Ended.COMPLETED, {"pause", "resume", "cancel"}), (Ended.CANCELLED, {"pause", "resume"}),
        (Ended.FAILED, {"pause", "cancel"}), (Ended.PAUSED, set())])
    def test_what_an_ended_search_refuses(self, store, claim, ended, refused):
        for wanted in ("pause", "resume", "cancel"):
            search = store.submit(values.plan())
            held = store.claim("worker", LEASE_S, search.id)
            store.finish(held, ended, "over")
            if wanted in refused:
                with pytest.raises(UsageError) as error:
                    store.request_control(search.id, wanted)
                assert error.value.code == "bad_transition"
                assert store.search(search.id).status == ended
            else:
                store.request_control(search.id, wanted)

    def test_a_resumed_search_is_claimed_again_with_its_history(self, store, claim):
        done = values.run_trial(store, claim, 0)
        store.renew(claim, LEASE_S, 9.0)
        store.finish(claim, Ended.PAUSED, "paused")
        assert store.claim("other", LEASE_S) is None
        store.request_control(claim.search_id, "resume")
        history = store.history(store.claim("other", LEASE_S))
        assert history.spent_s == 9.0 and [one.number for one in history.trials] == [0]
        assert history.trials[0].candidate == done.candidate and history.trials[0].sampler == done.sampler


class TestClaims:
    def test_the_oldest_queued_search_is_claimed_first_and_once(self, store):
        ids = [store.submit(values.plan()).id for _ in range(3)]
        assert [store.claim("worker", LEASE_S).search_id for _ in ids] == ids
        assert store.claim("worker", LEASE_S) is None

    def test_one_search_can_be_claimed_by_name(self, store):
        first, second = store.submit(values.plan()), store.submit(values.plan())
        assert store.claim("worker", LEASE_S, second.id).search_id == second.id
        assert store.claim("other", LEASE_S, second.id) is None
        assert store.search(first.id).status == "queued"

    def test_threads_that_race_claim_each_search_once(self, store):
        ids = {store.submit(values.plan()).id for _ in range(24)}
        claimed: list[str] = []

        def work(name: str) -> None:
            while (claim := store.claim(name, LEASE_S)) is not None:
                claimed.append(claim.search_id)
        threads = [threading.Thread(target=work, args=(f"worker {number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(claimed) == sorted(ids)

    def test_a_silent_worker_loses_its_search_and_can_write_nothing_more(self, store, claim):
        values.run_trial(store, claim, 0)
        late = values.trial(1)
        store.begin(claim, 1, Proposal(late.candidate, late.sampler))
        expire(store, claim)
        taken = store.claim("second", LEASE_S)
        assert taken.search_id == claim.search_id and taken.fence == claim.fence + 1
        for write in (lambda: store.begin(claim, 2, values.proposal(2)),
                      lambda: store.record(claim, late, values.source(1)),
                      lambda: store.renew(claim, LEASE_S, 1.0), lambda: store.release(claim),
                      lambda: store.finish(claim, Ended.COMPLETED, ""), lambda: store.history(claim),
                      lambda: store.describe(claim, {"device": "x"})):
            with pytest.raises(LeaseLost) as lost:
                write()
            assert lost.value.code == "lease_lost"
        assert [row.state for row in store.trials(claim.search_id).items] == ["done", "running"]
        with pytest.raises(UsageError):
            store.source(values.source(1).digest)
        store.begin(taken, 1, Proposal(late.candidate, late.sampler))
        store.record(taken, late, values.source(1))
        assert store.search(claim.search_id).trials_done == 2

    def test_a_late_worker_whose_search_nobody_took_goes_on(self, store, claim):
        expire(store, claim)
        assert store.renew(claim, LEASE_S, 0.0) is Control.RUN
        assert store.claim("second", LEASE_S) is None

    def test_a_clock_that_was_set_back_does_not_keep_a_dead_worker_alive(self, store, claim):
        with store._database.writing() as session:
            session.execute(text("UPDATE searches SET renewed_at = renewed_at + 3600"))
        assert store.claim("second", LEASE_S) is not None

    def test_deaths_are_counted_and_clean_stops_are_not(self, store, claim):
        store.begin(claim, 0, values.proposal(0))
        store.begin(claim, 0, values.proposal(0))            # the same attempt, asked twice
        for expected in (1, 2, 3):
            expire(store, claim)
            claim = store.claim("next", LEASE_S)
            (pending,) = store.history(claim).pending
            assert (pending.number, pending.attempts) == (0, expected)
            assert pending.candidate == values.candidate(0) and pending.sampler == values.proposal(0).sampler
            store.begin(claim, 0, values.proposal(0))
        store.release(claim)
        claim = store.claim("next", LEASE_S)
        assert store.history(claim).pending[0].attempts == 3, "the fourth worker did not die"

    def test_a_released_search_is_queued_or_what_was_asked_meanwhile(self, store):
        for wanted, status in ((None, "queued"), ("pause", "paused"), ("cancel", "cancelled")):
            search = store.submit(values.plan())
            claim = store.claim("worker", LEASE_S, search.id)
            if wanted:
                store.request_control(search.id, wanted)
            store.release(claim)
            assert (store.search(search.id).status, store.search(search.id).worker) == (status, None)

    def test_the_sink_passes_flags_on_and_fails_when_the_lease_is_lost(self, store, claim):
        sink = StoreSink(store, claim, LEASE_S)
        assert sink.control(1.0) is Control.RUN
        store.request_control(claim.search_id, "pause")
        while sink.control(2.0) is not Control.PAUSE:        # seen soon, however often the loop asks
            time.sleep(0.05)
        expire(store, claim)
        store.claim("second", LEASE_S)
        with pytest.raises(LeaseLost):
            sink.begin(0, values.proposal(0))


class TestRecording:
    @pytest.mark.parametrize("verdict", [
        values.green(0), values.accepted(0, 99.5), values.rejected(), values.faulted(),
        values.rejected(Stage.COMPILE, Reason.COMPILE_ERROR, log="\x1b[31m\0 \udcff </pre>"),
        values.rejected(Stage.PERFORMANCE, Reason.SLOWER)], ids=lambda one: type(one).__name__)
    def test_what_was_recorded_is_read_back_without_a_difference(self, store, claim, verdict):
        made = values.run_trial(store, claim, 0, verdict)
        assert store.recorded(claim.search_id, 0) == made
        assert store.source(made.source_digest).text == values.source(0).text

    def test_history_has_the_verdicts_but_not_the_single_checks(self, store, claim):
        made = values.run_trial(store, claim, 0, values.rejected(log="long"))
        (back,) = store.history(claim).trials
        assert gate_result(back.verdict, "ptxas") == gate_result(made.verdict, "ptxas")
        assert gate_result(back.verdict, "correctness").evidence.checks == ()
        assert (back.verdict.stage, back.verdict.reason) == (made.verdict.stage, made.verdict.reason)

    def test_recording_twice_is_recording_once(self, store, claim):
        made = values.run_trial(store, claim, 0)
        store.record(claim, made, values.source(0))
        assert store.search(claim.search_id).trials_done == 1 == store.counts(claim.search_id).total

    def test_a_recorded_trial_is_never_begun_again(self, store, claim):
        values.run_trial(store, claim, 0)
        with pytest.raises(Fault) as refused:
            store.begin(claim, 0, values.proposal(0))
        assert refused.value.code == "trial_recorded"

    def test_a_trial_that_was_not_begun_is_not_recorded(self, store, claim):
        with pytest.raises(Fault) as refused:
            store.record(claim, values.trial(3), values.source(3))
        assert refused.value.code == "trial_not_begun"
        assert store.counts(claim.search_id).total == 0
        with pytest.raises(UsageError):
            store.source(values.source(3).digest)

    def test_a_source_is_stored_once_and_is_what_its_digest_names(self, store, claim):
        for number in (0, 1):
            made = values.trial(number)
            store.begin(claim, number, Proposal(made.candidate, made.sampler))
        shared = values.source(0)
        store.record(claim, values.trial(0), shared)
        with pytest.raises(Fault) as refused:
            store.record(claim, values.trial(1), shared)
        assert refused.value.code == "source_mismatch"

    def test_a_rejection_says_what_changed_and_no_more_than_its_gate(self, store, claim):
        values.run_trial(store, claim, 0)
        values.run_trial(store, claim, 1, values.rejected())
        values.run_trial(store, claim, 2, values.rejected(), template="scalar")
        values.run_trial(store, claim, 3, values.faulted())
        sentences = [row.sentence for row in store.trials(claim.search_id).items]
        assert sentences == [
            "modelled: 100.0 us",
            "tile_m 16 -> 32, padding false -> true (against wmma:flashcore_a): correctness said no",
            "template wmma -> scalar (against wmma:flashcore_a): correctness said no",
            "the compiler is missing"]

    def test_figures_become_columns(self, store, claim):
        values.run_trial(store, claim, 0, values.green(0, 123.25))
        (row,) = store.trials(claim.search_id).items
        assert (row.time_median_us, row.time_kind, row.time_band) == (123.25, "modelled", 1.25)
        assert (row.registers, row.smem_bytes, row.spill_bytes) == (96, 3072, 0)
        assert row.max_abs_error == 0.00012207031250001 * 4
        assert row.is_baseline and row.preset == "flashcore_a"
        detail = store.trial(claim.search_id, 0)
        assert detail.gates["performance"]["timings"][0]["detail"] == {"issue_us": 1.5, "hbm_us": 0.25}
        assert len(detail.gates["correctness"]["checks"]) == 4 and detail.sentence == row.sentence

    def test_trials_know_the_environment_they_ran_in(self, store, claim):
        store.describe(claim, {"device": "emulator of an H200", "toolchain": "NVRTC 13.5"})
        values.run_trial(store, claim, 0, values.rejected())
        assert store.trial(claim.search_id, 0).environment["toolchain"] == "NVRTC 13.5"
        (negative,) = store.negatives().items
        assert (negative.device, negative.toolchain) == ("emulator of an H200", "NVRTC 13.5")

    def test_search_zero_without_a_baseline_is_no_baseline(self, store):
        store.submit(values.plan(baseline="none"))
        claim = store.claim("worker", LEASE_S)
        values.run_trial(store, claim, 0)
        values.run_trial(store, claim, 1, values.rejected())
        rows = store.trials(claim.search_id).items
        assert not rows[0].is_baseline and rows[1].sentence == "correctness said no"


@pytest.fixture
def mixed(store, claim):
    """16 trials of every kind; number 15 is in flight."""
    kinds = [values.rejected(), values.rejected(Stage.COMPILE, Reason.COMPILE_ERROR), values.faulted(),
             values.rejected(Stage.PERFORMANCE, Reason.SLOWER)]
    for number in range(15):
        wrong = number % 3 == 2 and number > 2
        verdict = kinds[number // 3 - 1] if wrong else values.green(number, 100.0 - number % 4)
        values.run_trial(store, claim, number, verdict, template="scalar" if number % 5 == 1 else "wmma")
    store.begin(claim, 15, values.proposal(15))
    return claim.search_id


class TestReading:
    def test_pages_hold_every_trial_once_in_order_with_unknown_values_last(self, store, mixed):
        for sort, descending, limit in itertools.product(SORTS, (False, True), (1, 4, 7, 50)):
            rows, cursor = [], None
            while True:
                page = store.trials(mixed, sort=sort, descending=descending, limit=limit, cursor=cursor)
                rows += page.items
                assert len(page.items) <= limit
                if (cursor := page.next_cursor) is None:
                    break
            assert sorted(row.number for row in rows) == list(range(16)), (sort, descending, limit)
            found = [getattr(row, sort) for row in rows]
            known = [one for one in found if one is not None]
            assert known == sorted(known, reverse=descending), (sort, descending)
            assert None not in found[:len(known)], (sort, descending)

    def test_trials_that_arrive_do_not_move_a_page(self, store, claim, mixed):
        first = store.trials(mixed, sort="time_median_us", limit=5)
        values.run_trial(store, claim, 16, values.green(16, 1.0))
        rest, cursor = [], first.next_cursor
        while cursor:
            page = store.trials(mixed, sort="time_median_us", limit=5, cursor=cursor)
            rest, cursor = [*rest, *page.items], page.next_cursor
        assert sorted(row.number for row in (*first.items, *rest)) == list(range(16))

    def test_filters_combine(self, store, mixed):
        rows = store.trials(mixed, verdict="rejected", stage="correctness", reason="wrong_values").items
        assert [row.number for row in rows] == [5] and all(row.stage == "correctness" for row in rows)
        assert {row.template for row in store.trials(mixed, template="scalar").items} == {"scalar"}
        assert store.trials(mixed, template="no such' --").items == ()

    @pytest.mark.parametrize("argument", ["verdict", "stage", "reason", "sort"])
    def test_unknown_names_are_refused_with_the_known(self, store, claim, argument):
        for value in ("nonsense", "number; DROP TABLE trials", "\udcff", ""):
            with pytest.raises(UsageError) as refused:
                store.trials(claim.search_id, **{argument: value})
            assert refused.value.code == f"unknown_{argument}" and "known: " in refused.value.mend

    def test_a_cursor_belongs_to_its_order(self, store, mixed):
        cursor = store.trials(mixed, sort="registers", limit=2).next_cursor
        for other in ({"sort": "number"}, {"sort": "registers", "descending": True}):
            with pytest.raises(UsageError) as refused:
                store.trials(mixed, cursor=cursor, **other)
            assert refused.value.code == "bad_cursor"

    def test_a_trial_in_flight_has_no_verdict_and_no_evidence(self, store, mixed):
        detail = store.trial(mixed, 15)
        assert (detail.state, detail.verdict, detail.gates, detail.recorded_at) == ("running", None, {}, None)
        assert store.recorded(mixed, 15) is None

    def test_an_unknown_trial_is_refused(self, store, claim):
        for number in (0, 99, -1, 2**63, 10**30):
            with pytest.raises(UsageError) as refused:
                store.trial(claim.search_id, number)
            assert refused.value.code == "unknown_trial"

    def test_the_best_is_the_fastest_right_trial_and_the_first_of_equals(self, store, mixed, claim):
        assert store.best(mixed).number == 3
        values.run_trial(store, claim, 16, values.rejected(Stage.SAFETY, Reason.RACE))   # wrong, however fast
        values.run_trial(store, claim, 17, values.rejected(Stage.PERFORMANCE, Reason.IMPLAUSIBLE))
        assert store.best(mixed).number == 3
        row = store.search(mixed)
        assert (row.best_time_us, row.time_kind) == (97.0, "modelled")
        assert store.searches().items[0] == row

    def test_there_is_no_best_before_a_right_trial(self, store, claim):
        values.run_trial(store, claim, 0, values.rejected(Stage.PERFORMANCE, Reason.SLOWER))
        assert store.best(claim.search_id) is None and store.best_so_far(claim.search_id) == ()

    def test_best_so_far_never_rises_and_holds_right_trials_only(self, store, mixed):
        points = store.best_so_far(mixed)
        bests = [one.best_us for one in points]
        assert bests == sorted(bests, reverse=True) and bests[-1] == 97.0
        assert [one.number for one in points] == [0, 1, 2, 3, 4, 6, 7, 9, 10, 12, 13]

    def test_counts_and_funnel_add_up(self, store, mixed):
        counts = store.counts(mixed)
        assert (counts.total, counts.running) == (15, 1)
        assert counts.by_verdict == {"green": 11, "rejected": 3, "faulted": 1}
        assert counts.by_stage == {"correctness": 1, "compile": 1, "performance": 1}
        assert counts.by_reason == {"wrong_values": 1, "compile_error": 1, "slower": 1}
        assert counts.funnel == (("render", 15, 15), ("compile", 15, 13), ("ptxas", 13, 13),
                                 ("correctness", 13, 12), ("performance", 12, 0), ("safety", 11, 0))
        assert counts.unavailable == {"performance": 11, "safety": 11}, "not judged is not passed"

    def test_negatives_are_rejections_only_newest_first_with_their_scope(self, store, mixed):
        rows = store.negatives(limit=2)
        rest = store.negatives(limit=2, cursor=rows.next_cursor)
        found = [*rows.items, *rest.items]
        assert [row.number for row in found] == [14, 8, 5] and rest.next_cursor is None
        assert found[2].changed == "tile_m 16 -> 96, padding false -> true"
        assert (found[0].kernel, found[0].workloads) == ("attention", ("mission",))
        assert found[0].baseline == values.BASELINE
        assert [row.number for row in store.negatives(reason="slower").items] == [14]
        assert store.negatives(kernel="other").items == ()
        assert len(store.negatives(search_id=mixed, kernel="attention").items) == 3

    def test_a_source_is_found_by_its_first_digits(self, store, mixed):
        digest = values.source(4).digest
        assert store.source(digest[:8]).digest == digest == store.source(digest.upper()).digest

    def test_an_unknown_source_is_refused(self, store, claim):
        values.run_trial(store, claim, 0)
        for digest in ("", "abc", "0" * 64, "g" * 64, "%" * 8, "\udcff" * 8, "0" * 65):
            with pytest.raises(UsageError) as refused:
                store.source(digest)
            assert refused.value.code == "unknown_source"

    def test_an_ambiguous_source_is_refused(self, store, mixed):
        digest = values.source(4).digest
        twin = digest[:20] + ("0" if digest[20] != "0" else "1") + digest[21:]
        with store._database.writing() as session:
            session.execute(text("INSERT INTO sources SELECT :twin, text, kernel, template, created_at "
                                 "FROM sources WHERE digest = :digest"), {"twin": twin, "digest": digest})
        with pytest.raises(UsageError) as refused:
            store.source(digest[:20])
        assert refused.value.code == "ambiguous_source"
        with pytest.raises(Fault) as damaged:
            store.source(twin)
        assert damaged.value.code == "source_damaged"

    def test_stats_count_searches_by_status(self, store, mixed):
        store.submit(values.plan())
        stats = store.stats()
        assert stats["searches"]["running"] == 1 == stats["searches"]["queued"] and stats["revision"]


def test_a_store_that_is_opened_again_has_everything(url):
    first = Store.open(url)
    search = first.submit(values.plan())
    made = values.run_trial(first, first.claim("worker", LEASE_S), 0)
    first.close()
    second = Store.open(url)
    assert second.recorded(search.id, 0) == made and second.search(search.id).trials_done == 1
    second.close()


def test_a_gate_that_could_not_judge_is_stored_as_such(store, claim):
    values.run_trial(store, claim, 0)
    assert store.trial(claim.search_id, 0).gates["safety"]["outcome"] == Outcome.UNAVAILABLE
