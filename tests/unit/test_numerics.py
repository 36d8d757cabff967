"""Parameters that promise equal results are compared bit for bit, also after a resumption."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contexts import plan_context, workload_context
from drawn_gpu import DrawnGpu
from test_run import ListSink

from greenfast.db.sink import StoreSink
from greenfast.db.store import Store
from greenfast.search.gates.correctness import ENOUGH_CASES, differing_outputs
from greenfast.search.gates.promises import promised
from greenfast.search.loop.confirmation import prepared
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import Control, Ended, History
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
    preset_candidate,
)
from greenfast.search.strategies.base import Proposal
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Green, Outcome, Reason, Rejected, Stage, gate_result


class DriftingGpu(DrawnGpu):
    """With four elements a thread, one value is its neighbour: within bounds but not equal."""

    measures = False

    def _outputs(self, program, problem):
        outputs = super()._outputs(program, problem)
        if "constexpr int per_thread = 4;" in program.text:
            x, y = problem.tensors
            values = y.view(outputs["y"])
            exact = np.float64(2.5) * x.view(x.image).astype(np.float64) - 0.75
            if values.size > 1:
                values[0] = np.nextafter(
                    values[0], np.float16(np.inf if exact[0] > values[0] else -np.inf)
                )
        return outputs


NO_HISTORY = History()


@pytest.fixture
def start(album, toolchain):
    def run(sink, history=NO_HISTORY, window=1, gpu=None, catalogue=album, **request):
        plan = replace(
            make_plan(
                SearchRequest(
                    "axpy",
                    **{
                        "templates": ("right",),
                        "seed": 3,
                        "strategy": "random",
                        "workloads": ("odd",),
                        "trials": 50,
                        **request,
                    },
                ),
                catalogue,
            ),
            window=window,
        )
        context = plan_context(catalogue, plan, gpu or DriftingGpu(), toolchain)
        search = SearchRun(plan, context, sink, history)
        return search, search.run()

    return run


def broken(trials):
    """Number -> its correctness gate, of those that were rejected there."""
    return {
        trial.number: gate_result(trial.verdict, Stage.CORRECTNESS)
        for trial in trials
        if isinstance(trial.verdict, Rejected) and trial.verdict.stage is Stage.CORRECTNESS
    }


def drifting(trials):
    return {trial.number for trial in trials if trial.candidate.values()["per_thread"] == 4}


def test_what_differs_from_a_sibling_is_rejected_with_the_parameter_the_sibling_and_the_evidence(
    start,
):
    sink = ListSink()
    start(sink)
    drifted = broken(sink.trials)
    assert set(drifted) == drifting(sink.trials) and len(drifted) >= 2
    assert all(
        isinstance(trial.verdict, Green) for trial in sink.trials if trial.number not in drifted
    )
    for number, result in drifted.items():
        assert (
            result.reason is Reason.WRONG_VALUES
            and "y is not bit for bit what trial " in result.sentence
        )
        assert "per_thread=4" in result.sentence and "states that" in result.sentence
        assert [check.sentence for check in result.evidence.checks if not check.passed] == [
            result.sentence
        ]
        assert {gate.outcome for gate in sink.trials[number].verdict.gates[2:]} == {Outcome.SKIPPED}


def test_siblings_with_other_lengths_still_have_cases_in_common(start):
    sink = ListSink()
    start(sink)

    def places(trial):
        checks = gate_result(trial.verdict, Stage.CORRECTNESS).evidence.checks
        return {(check.output, check.shape, check.input_digest) for check in checks}

    for later in sink.trials[1:]:
        assert len(places(later) & places(sink.trials[0])) > ENOUGH_CASES  # and the workload itself


def test_the_same_candidates_are_rejected_however_many_are_in_flight(start):
    verdicts = []
    for window in (1, 8):
        sink = ListSink()
        start(sink, window=window)
        verdicts.append({trial.candidate.digest: type(trial.verdict) for trial in sink.trials})
    assert verdicts[0] == verdicts[1]


def test_a_search_that_goes_on_from_the_database_holds_candidates_to_what_was_stored(
    start, tmp_path
):
    whole = ListSink()
    search, _ = start(whole)
    store = Store.open(f"sqlite:///{tmp_path / 'searches.sqlite3'}")
    try:
        search_id = store.submit(search.plan).id
        claim = store.claim("a worker", 30.0, search_id)
        right = [trial for trial in whole.trials if trial.number not in broken(whole.trials)]
        sink = StoreSink(store, claim, 30.0)
        for number, accepted in enumerate(right[:2]):
            sink.begin([(number, Proposal(accepted.candidate, accepted.sampler))])
            source = search.context.render(accepted.candidate)
            sink.record([(replace(accepted, number=number), source)])
        second = ListSink()
        history = store.history(claim)
        assert all(
            gate_result(trial.verdict, Stage.CORRECTNESS).evidence.checks == ()
            for trial in history.trials
        )
        _, result = start(second, history)
        assert (
            result.ended is Ended.COMPLETED
            and set(broken(second.trials)) == drifting(second.trials) != set()
        )
    finally:
        store.close()


def test_a_paused_search_goes_on_the_same_way(start):
    first = ListSink(lambda sink: Control.PAUSE if len(sink.trials) >= 3 else Control.RUN)
    start(first)
    second = ListSink()
    start(second, first.history())
    trials = [*first.trials, *second.trials]
    assert set(broken(trials)) == drifting(trials)


def test_wrong_candidates_set_nothing_for_the_right_ones(start):
    class Wrong(DriftingGpu):
        def _outputs(self, program, problem):
            outputs = super()._outputs(program, problem)
            if "constexpr int threads = 128;" in program.text:  # the baseline among them
                outputs["y"][:] = 0
            return outputs

    sink = ListSink()
    start(sink, gpu=Wrong())
    right = [trial for trial in sink.trials if isinstance(trial.verdict, Green)]
    assert right and 128 not in {trial.candidate.values()["threads"] for trial in right}
    assert (
        len({trial.candidate.values()["per_thread"] == 4 for trial in right}) == 1
    )  # the first one says which


def test_nothing_is_kept_or_hashed_where_nothing_is_promised(start, broken_kernel):
    broken_kernel(
        "right.toml", 'doc = "threads a block"\nnumerics = "same"', 'doc = "threads a block"'
    )
    own = broken_kernel(
        "right.toml", 'doc = "elements a thread"\nnumerics = "same"', 'doc = "elements a thread"'
    )
    sink = ListSink()
    _search, _ = start(sink, catalogue=own)
    assert promised(own.kernel("axpy").template("right")) == frozenset()
    assert all(isinstance(trial.verdict, Green) for trial in sink.trials)
    assert not any(
        check.input_digest
        for trial in sink.trials
        for check in gate_result(trial.verdict, Stage.CORRECTNESS).evidence.checks
    )


def test_a_template_that_is_not_deterministic_can_promise_nothing(album):
    template = album.kernel("axpy").template("right")
    assert promised(template) == {"threads", "per_thread"}
    assert promised(replace(template, deterministic=False)) == frozenset()


def test_a_point_that_is_not_deterministic_is_held_to_nothing(start, broken_kernel):
    doubtful = broken_kernel(
        "right.toml", 'name = "right"', 'name = "right"\ndeterministic_when = "per_thread != 4"'
    )
    sink = ListSink()
    start(sink, catalogue=doubtful)
    assert drifting(sink.trials) and all(isinstance(trial.verdict, Green) for trial in sink.trials)


# ---- the shipped templates' promises, on the emulator ----


@pytest.fixture(scope="module")
def emulator(artifacts, catalogue):
    return open_target(
        "emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2, run_deadline_s=20.0)
    )


def changed(context, template, preset, **changes):
    return preset_candidate(context.kernel.template(template), preset, context.compiled, changes)


PROMISES = [
    pytest.param(
        "wmma",
        "stage2",
        {"pipeline_depth": 1, "swizzle": "none", "s_p_alias": True},
        marks=pytest.mark.slow,
    ),
    pytest.param(
        "wmma",
        "stage2",
        {"o_in": "fragments", "split_kv_wait": True, "q_in_fragments": True, "persistent": True},
        marks=pytest.mark.slow,
    ),
    ("mma", "fa2", {"pipeline_depth": 3, "swizzle": "pad", "q_in": "shared", "epilogue": "shared"}),
    pytest.param(
        "mma",
        "fa2",
        {"q_in": "direct", "split_kv_wait": False, "min_blocks": 2},
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("template", "preset", "changes"), PROMISES, ids=str)
def test_a_shipped_template_keeps_its_promises(
    template, preset, changes, catalogue, emulator, toolchain
):
    context = workload_context(catalogue, "attention", "small", emulator, toolchain)
    first, second = (changed(context, template, preset, **each) for each in ({}, changes))
    assert set(changes) <= promised(context.kernel.template(template))
    first_subject, other = prepared(context, first), prepared(context, second)
    assert differing_outputs(first_subject, other) == ()


def test_what_is_summed_in_another_order_does_differ(album, emulator, toolchain):
    context = workload_context(album, "reduce", "rows", emulator, toolchain)
    template, defect = context.kernel.template("broken"), {"defect": "sums_in_another_order"}
    first_subject, other = (
        prepared(
            context,
            Candidate(
                "reduce",
                "broken",
                complete_parameters(
                    template, defect | {"neighbours": neighbours}, context.compiled
                ),
                Origin(OriginKind.SEEDED),
            ),
        )
        for neighbours in (False, True)
    )
    assert all(
        each.endswith(": y") for each in differing_outputs(first_subject, other)
    ) and differing_outputs(first_subject, other)
    assert differing_outputs(first_subject, first_subject) == ()
