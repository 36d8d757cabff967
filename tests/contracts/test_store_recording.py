"""What a database behind the store must do with trials that begin and are recorded."""

from __future__ import annotations

import pytest
import store_values as values

from greenfast.search.errors import Fault, UsageError
from greenfast.search.gates.version import CHECKS, CHECKS_VERSION
from greenfast.search.strategies.base import Proposal
from greenfast.search.verdict import Outcome, Reason, Stage, gate_result


class TestRecording:
    @pytest.mark.parametrize(
        "verdict",
        [
            values.green(0),
            values.accepted(0, 99.5),
            values.rejected(),
            values.faulted(),
            values.rejected(Stage.COMPILE, Reason.COMPILE_ERROR, log="\x1b[31m\0 \udcff </pre>"),
            values.rejected(Stage.PERFORMANCE, Reason.SLOWER),
        ],
        ids=lambda verdict: type(verdict).__name__,
    )
    def test_what_was_recorded_is_read_back_without_a_difference(self, store, claim, verdict):
        trial = values.run_trial(store, claim, 0, verdict)
        assert store.recorded(claim.search_id, 0) == trial
        assert store.source(trial.source_digest).text == values.source(0).text

    def test_history_has_the_verdicts_but_not_the_single_checks(self, store, claim):
        trial = values.run_trial(store, claim, 0, values.rejected(log="long"))
        (back,) = store.history(claim).trials
        assert gate_result(back.verdict, "ptxas") == gate_result(trial.verdict, "ptxas")
        assert gate_result(back.verdict, "correctness").evidence.checks == ()
        assert (back.verdict.stage, back.verdict.reason) == (
            trial.verdict.stage,
            trial.verdict.reason,
        )

    def test_recording_twice_is_recording_once(self, store, claim):
        trial = values.run_trial(store, claim, 0)
        store.record(claim, trial, values.source(0))
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

    def test_trials_are_begun_and_recorded_together_or_not_at_all(self, store, claim):
        store.begin_all(claim, [(number, values.proposal(number)) for number in (0, 1, 2)])
        records = [(values.trial(number), values.source(number)) for number in (0, 1, 2)]
        with pytest.raises(Fault) as refused:
            store.record_all(claim, [*records, (values.trial(3), values.source(3))])
        assert refused.value.code == "trial_not_begun"
        assert store.search(claim.search_id).trials_done == 0
        store.record_all(claim, records[:2])
        store.record_all(claim, records)  # the answer to the last call was lost
        assert store.search(claim.search_id).trials_done == 3
        assert [trial.number for trial in store.history(claim).trials] == [0, 1, 2]
        with pytest.raises(Fault) as refused:
            store.begin_all(claim, [(3, values.proposal(3)), (2, values.proposal(2))])
        assert refused.value.code == "trial_recorded"
        assert store.history(claim).pending == ()

    def test_a_source_is_stored_once_and_is_what_its_digest_names(self, store, claim):
        for number in (0, 1):
            trial = values.trial(number)
            store.begin(claim, number, Proposal(trial.candidate, trial.sampler))
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
        changes = "tile_m 16 -> 32, padding false -> true"
        assert sentences == [
            "modelled: 100.0 us",
            f"{changes} (against wmma:flashcore_a): correctness said no",
            "template wmma -> scalar (against wmma:flashcore_a): correctness said no",
            "the compiler is missing",
        ]

    def test_figures_become_columns(self, store, claim):
        values.run_trial(store, claim, 0, values.green(0, 123.25))
        (row,) = store.trials(claim.search_id).items
        assert (row.time_median_us, row.time_kind, row.time_band) == (123.25, "modelled", 1.25)
        assert (row.registers, row.smem_bytes, row.spill_bytes) == (96, 3072, 0)
        assert row.max_abs_error == 0.00012207031250001 * 4
        assert row.is_baseline and row.preset == "flashcore_a"
        detail = store.trial(claim.search_id, 0)
        assert detail.gates["performance"]["timings"][0]["detail"] == {
            "issue_us": 1.5,
            "hbm_us": 0.25,
        }
        assert len(detail.gates["correctness"]["checks"]) == 4 and detail.sentence == row.sentence

    def test_trials_know_the_environment_they_ran_in(self, store, claim):
        store.describe(claim, {"device": "emulator of an H200", "toolchain": "NVRTC 13.5"})
        values.run_trial(store, claim, 0, values.rejected())
        assert store.trial(claim.search_id, 0).environment["toolchain"] == "NVRTC 13.5"
        (negative,) = store.negatives().items
        assert (negative.device, negative.toolchain) == ("emulator of an H200", "NVRTC 13.5")

    def test_verdicts_of_other_checks_are_older_and_are_not_known(self, store, claim):
        values.run_trial(store, claim, 0)
        for number, version in ((1, "0"), (2, str(CHECKS_VERSION))):
            store.describe(claim, {"device": "GH200", CHECKS: version})
            values.run_trial(store, claim, number)
        assert store.history(claim).older == {0, 1}
        assert [trial.number for trial in store.known_trials([claim.search_id])] == [2]

    def test_search_zero_without_a_baseline_is_no_baseline(self, store):
        store.submit(values.plan(baseline="none"))
        claim = store.claim("worker", values.LEASE_S)
        values.run_trial(store, claim, 0)
        values.run_trial(store, claim, 1, values.rejected())
        rows = store.trials(claim.search_id).items
        assert not rows[0].is_baseline and rows[1].sentence == "correctness said no"


def test_a_gate_that_could_not_judge_is_stored_as_such(store, claim):
    values.run_trial(store, claim, 0)
    assert store.trial(claim.search_id, 0).gates["safety"]["outcome"] == Outcome.UNAVAILABLE
