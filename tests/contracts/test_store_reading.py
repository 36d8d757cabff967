"""What a database behind the store must answer of trials, negatives and sources."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import store_values as values
from sqlalchemy import text

from greenfast.db.trials import SORTS
from greenfast.search.errors import Fault, UsageError
from greenfast.search.loop.sink import Ended
from greenfast.search.verdict import Accepted, Reason, Stage


class TestReading:
    def test_pages_hold_every_trial_once_in_order_with_unknown_values_last(self, store, mixed):
        for sort, descending, limit in itertools.product(SORTS, (False, True), (1, 4, 7, 50)):
            rows, cursor = [], None
            while True:
                page = store.trials(
                    mixed, sort=sort, descending=descending, limit=limit, cursor=cursor
                )
                rows += page.items
                assert len(page.items) <= limit
                if (cursor := page.next_cursor) is None:
                    break
            assert sorted(row.number for row in rows) == list(range(16)), (sort, descending, limit)
            values_read = [getattr(row, sort) for row in rows]
            known = [value for value in values_read if value is not None]
            assert known == sorted(known, reverse=descending), (sort, descending)
            assert None not in values_read[: len(known)], (sort, descending)

    @pytest.mark.parametrize(
        ("modes", "says"), [(("hot",), "hot"), (("cold", "hot"), "hot and cold"), (("",), None)]
    )
    def test_how_a_measured_time_found_the_caches_stands_beside_it(self, modes, says, store, claim):
        gates = list(values.gates(1, 90.0, measured=True))
        (timing,) = gates[2].evidence.timings
        timings = tuple(
            replace(timing, workload=f"w{number}", mode=mode) for number, mode in enumerate(modes)
        )
        gates[2] = replace(gates[2], evidence=replace(gates[2].evidence, timings=timings))
        values.run_trial(store, claim, 1, Accepted(tuple(gates)))
        row = store.search(claim.search_id)
        assert (
            store.trial(claim.search_id, 1).time_mode == row.time_mode == says
            and row.mode == "auto"
        )

    def test_trials_that_arrive_do_not_move_a_page(self, store, claim, mixed):
        first = store.trials(mixed, sort="time_median_us", limit=5)
        values.run_trial(store, claim, 16, values.green(16, 1.0))
        rest, cursor = [], first.next_cursor
        while cursor:
            page = store.trials(mixed, sort="time_median_us", limit=5, cursor=cursor)
            rest, cursor = [*rest, *page.items], page.next_cursor
        assert sorted(row.number for row in (*first.items, *rest)) == list(range(16))

    def test_filters_combine(self, store, mixed):
        rows = store.trials(
            mixed, verdict="rejected", stage="correctness", reason="wrong_values"
        ).items
        assert [row.number for row in rows] == [5] and all(
            row.stage == "correctness" for row in rows
        )
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
        assert (detail.state, detail.verdict, detail.gates, detail.recorded_at) == (
            "running",
            None,
            {},
            None,
        )
        assert store.recorded(mixed, 15) is None

    def test_a_trial_in_flight_of_a_search_that_was_cancelled_is_not_running(
        self, store, mixed, claim
    ):
        store.finish(claim, Ended.CANCELLED, "cancelled")
        assert store.trial(mixed, 15).state == "interrupted"
        assert store.trials(mixed, sort="number", descending=True).items[0].state == "interrupted"

    def test_an_unknown_trial_is_refused(self, store, claim):
        for number in (0, 99, -1, 2**31, 2**63, 10**30):
            with pytest.raises(UsageError) as refused:
                store.trial(claim.search_id, number)
            assert refused.value.code == "unknown_trial"

    def test_the_best_is_the_fastest_right_trial_and_the_first_of_equals(self, store, mixed, claim):
        assert store.best(mixed).number == 3
        values.run_trial(
            store, claim, 16, values.rejected(Stage.SAFETY, Reason.RACE)
        )  # wrong, however fast
        values.run_trial(store, claim, 17, values.rejected(Stage.PERFORMANCE, Reason.IMPLAUSIBLE))
        assert store.best(mixed).number == 3
        row = store.search(mixed)
        assert (row.best_time_us, row.time_kind) == (97.0, "modelled")
        assert store.searches().items[0] == row

    def test_trials_within_the_bests_band_are_counted_as_not_told_apart(self, store, claim):
        for number, time_us in enumerate((100.0, 124.0, 126.0)):  # the band of store_values is 1.25
            values.run_trial(store, claim, number, values.green(number, time_us))
        values.run_trial(store, claim, 3, values.rejected(Stage.SAFETY, Reason.RACE))
        best = store.best(claim.search_id)
        assert best.number == 0 and store.not_told_apart(best) == 1

    def test_there_is_no_best_before_a_right_trial(self, store, claim):
        values.run_trial(store, claim, 0, values.rejected(Stage.PERFORMANCE, Reason.SLOWER))
        assert store.best(claim.search_id) is None and store.best_so_far(claim.search_id) == ()

    def test_best_so_far_never_rises_and_holds_right_trials_only(self, store, mixed):
        points = store.best_so_far(mixed)
        bests = [point.best_us for point in points]
        assert bests == sorted(bests, reverse=True) and bests[-1] == 97.0
        assert [point.number for point in points] == [0, 1, 2, 3, 4, 6, 7, 9, 10, 12, 13]

    def test_counts_and_funnel_add_up(self, store, mixed):
        counts = store.counts(mixed)
        assert (counts.total, counts.running) == (15, 1)
        assert counts.by_verdict == {"green": 11, "rejected": 3, "faulted": 1}
        assert counts.by_stage == {"correctness": 1, "compile": 1, "performance": 1}
        assert counts.by_reason == {"wrong_values": 1, "compile_error": 1, "slower": 1}
        assert counts.funnel == (
            ("render", 15, 15),
            ("compile", 15, 13),
            ("ptxas", 13, 13),
            ("correctness", 13, 12),
            ("performance", 12, 0),
            ("safety", 11, 0),
        )
        assert counts.unavailable == {"performance": 11, "safety": 11}, "not judged is not passed"

    def test_negatives_are_rejections_only_newest_first_with_their_scope(self, store, mixed):
        rows = store.negatives(limit=2)
        rest = store.negatives(limit=2, cursor=rows.next_cursor)
        trials = [*rows.items, *rest.items]
        assert [row.number for row in trials] == [14, 8, 5] and rest.next_cursor is None
        assert trials[2].changed == "tile_m 16 -> 96, padding false -> true"
        assert (trials[0].kernel, trials[0].workloads) == ("attention", ("mission",))
        assert trials[0].baseline == values.BASELINE
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
            session.execute(
                text(
                    "INSERT INTO sources SELECT :twin, text, kernel, template, created_at "
                    "FROM sources WHERE digest = :digest"
                ),
                {"twin": twin, "digest": digest},
            )
        with pytest.raises(UsageError) as refused:
            store.source(digest[:20])
        assert refused.value.code == "ambiguous_source"
        with pytest.raises(Fault) as damaged:
            store.source(twin)
        assert damaged.value.code == "source_damaged"

    def test_stats_count_searches_by_status(self, store, mixed):
        store.submit(values.plan())
        stats = store.stats()
        assert (
            stats["searches"]["running"] == 1 == stats["searches"]["queued"] and stats["revision"]
        )
