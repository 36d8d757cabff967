"""A small search on a real GPU, from plan to verdicts."""

from __future__ import annotations

from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import Control, Ended, History
from greenfast.search.verdict import Faulted, Green, Outcome, Stage, performance_of


class ListSink:
    def __init__(self):
        self.trials = []

    def begin(self, begun):
        pass

    def record(self, records):
        self.trials += [trial for trial, _ in records]

    def settle(self, number, result):
        pass

    def confirm(self, confirmation):
        pass

    def beside(self, peer):
        pass

    def control(self, spent_s):
        return Control.RUN


def test_a_search_for_attention_measures_every_right_candidate_against_its_baseline(
    gpu, catalogue, toolchain
):
    request = SearchRequest(
        "attention",
        workloads=("mission",),
        target="cuda:0",
        strategy="random",
        trials=8,
        seed=1,
        confirm=False,
    )
    plan = make_plan(request, catalogue)
    kernel = catalogue.kernel("attention")
    workloads = tuple(kernel.workload(name) for name in plan.workloads)
    context = EvaluationContext(
        kernel,
        workloads[0].compile_time(kernel),
        workloads,
        gpu,
        toolchain,
        catalogue.include_dirs,
        plan.limits,
        plan.seed,
    )
    sink = ListSink()
    result = SearchRun(plan, context, sink, History()).run()
    assert result.ended is Ended.COMPLETED and len(sink.trials) == 8
    assert not [trial.verdict for trial in sink.trials if isinstance(trial.verdict, Faulted)]
    assert isinstance(sink.trials[0].verdict, Green)
    judged = [trial.verdict for trial in sink.trials[1:] if performance_of(trial.verdict)]
    assert judged
    for verdict in judged:
        evidence = performance_of(verdict)
        low, high = evidence.ratio_interval
        assert low <= evidence.ratio_to_baseline <= high
        passed = (
            next(gate for gate in verdict.gates if gate.gate == "performance").outcome
            is Outcome.PASSED
        )
        assert passed is isinstance(verdict, Green) and (
            passed or verdict.stage is Stage.PERFORMANCE
        )
