"""The budget of GPU seconds: its refusals, its end, its sum over GPUs, and its resumption."""

from __future__ import annotations

import math
from contextlib import closing

import pytest
import standin_gpus
import store_values as values
from standin_search import axpy_search
from test_executor_gpus import cluster, searched  # noqa: F401  a fixture
from test_run import ListSink

from greenfast.app.views.progress import progress
from greenfast.app.views.request_schemas import SearchSubmission
from greenfast.app.views.tunings import TuningSubmission
from greenfast.db.store import Store
from greenfast.search.errors import Refusals, UsageError
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.sink import Ended, History, Pending
from greenfast.search.loop.spending import Spent, gpu_budget, is_budget_spent
from greenfast.search.loop.wrong_fields import collect_wrong_fields
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Faulted

SLEEP_S = 0.04  # of each request: a GPU is occupied for at least so long
BUDGET_S = 0.3  # far below the 11 points of the space, two requests each


@pytest.fixture
def machine(monkeypatch, tmp_path, album):
    """`machine(gpus, which)`: a target on stand-in GPUs."""
    opened = []

    def open_gpus(gpus, which="all"):
        standin_gpus.install(monkeypatch, tmp_path / "tmp", gpus)
        settings = TargetSettings(tmp_path / "cache", album.include_dirs, 1)
        opened.append(open_target(f"cuda:{which}", settings))
        return opened[-1]

    yield open_gpus
    for target in opened:
        target.close()


class SpentSink(ListSink):
    """A sink that keeps what each look at the flags reported."""

    def __init__(self):
        super().__init__()
        self.spent = []

    def control(self, spent):
        self.spent.append(spent)
        return super().control(spent)


@pytest.mark.parametrize(
    ("gpu_seconds", "target", "sentence", "mend"),
    [
        *(
            (
                nonsense,
                "cuda:0",
                f"budget.gpu_seconds must be above 0 and at most 2,592,000; got {nonsense:g}",
                "give more than 0 GPU seconds, at most 30 days in sum",
            )
            for nonsense in (0.0, -1.0, math.nan, math.inf, 1e9)
        ),
        *(
            (
                5.0,
                target,
                f"budget.gpu_seconds needs a target that uses GPUs, and {target} uses none",
                "give trials or seconds, or a target such as cuda:0",
            )
            for target in ("emulator:h200", "replay:mission-mma-h200")
        ),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(catalogue, gpu_seconds, target, sentence, mend):
    request = SearchRequest("attention", target=target, gpu_seconds=gpu_seconds)
    with pytest.raises(UsageError) as error:
        make_plan(request, catalogue)
    assert (error.value.code, error.value.message) == ("bad_budget", sentence)
    assert error.value.mend == mend
    wrong = Refusals()
    collect_wrong_fields(request, catalogue.kernel("attention"), wrong)
    assert {each.field: each.message for each in wrong.errors} == {"gpu_seconds": sentence}


def test_rest_passes_the_budget_on():
    given = SearchSubmission(kernel="axpy", budget={"gpu_seconds": 7.5}).request()
    assert (given.gpu_seconds, given.trials, given.seconds) == (7.5, None, None)
    assert gpu_budget(given.gpu_seconds, "cuda:0,1", "cuda") == 7.5
    tuning = TuningSubmission(kernel="axpy", workloads=["line"], budget={"gpu_seconds": 7.5})
    assert tuning.request().search.gpu_seconds == 7.5


def test_a_search_on_two_gpus_ends_when_their_sum_is_spent(machine, album, toolchain):
    target, sink = machine({gpu: {"sleep_s": SLEEP_S} for gpu in (0, 1)}), SpentSink()
    run = axpy_search(target, sink, album, toolchain, trials=None, gpu_seconds=BUDGET_S)
    assert run.plan.trials is None
    result = run.run()
    assert result.ended is Ended.COMPLETED and is_budget_spent(result.why)
    assert result.why == "the budget of 0.3 GPU seconds is spent"
    each_s = [gpu.gpu_seconds for gpu in target.targets]
    assert sum(each_s) == result.spent.gpu_seconds == target.gpu_seconds >= BUDGET_S
    assert max(each_s) < result.spent.seconds
    assert len(sink.begun) == len(sink.trials), "trials in flight finish"
    count = sum(
        (target._cache_folder.parent / "tmp" / f"requests-{gpu}").stat().st_size
        for gpu, target in enumerate(target.targets)
    )
    assert sum(each_s) >= SLEEP_S * count


def test_what_was_spent_counts_after_a_resumption(machine, album, toolchain):
    target, first = machine({0: {}}, "0"), SpentSink()
    begun = axpy_search(target, first, album, toolchain, trials=2, gpu_seconds=60.0).run()
    assert begun.why == "the budget is spent", "the other budget ended it"
    assert begun.spent.gpu_seconds > 0
    # One trial was in flight when its worker died. It is repeated, and no other is begun.
    kept, pending = first.trials[:1], first.begun[1]
    history = History(
        tuple(kept),
        (Pending(pending[0], pending[1].candidate, pending[1].sampler, 1),),
        1.0,
        60.0,
    )
    second = SpentSink()
    resumed = axpy_search(
        target, second, album, toolchain, history=history, trials=None, gpu_seconds=60.0
    ).run()
    assert resumed.why == "the budget of 60 GPU seconds is spent"
    assert [trial.number for trial in second.trials] == [1]
    assert second.spent[0].gpu_seconds >= 60.0 and resumed.spent.gpu_seconds > 60.0
    assert resumed.spent.gpu_seconds < 60.0 + begun.spent.gpu_seconds + 30.0


@pytest.mark.slow
def test_a_request_that_a_gpu_fails_counts_and_a_confirmation_does_not(machine, album, toolchain):
    broken = machine({0: {"dies_at": 1}, 1: {}}, "0")
    sink = SpentSink()
    axpy_search(broken, sink, album, toolchain, trials=1).run()
    assert isinstance(sink.trials[0].verdict, Faulted) and broken.gpu_seconds > 0
    target = machine({0: {}}, "0")
    result = axpy_search(target, sink, album, toolchain, trials=4, confirm=True).run()
    # Whether a candidate wins, and is timed again, follows from its cubin.
    assert (target.gpu_seconds > result.spent.gpu_seconds) == bool(sink.confirmations)
    assert result.spent.gpu_seconds > 0
    assert sink.spent[-1].gpu_seconds == result.spent.gpu_seconds


def test_gpus_of_a_cluster_count(cluster, album, toolchain, tmp_path, monkeypatch):  # noqa: F811
    executor = cluster({0: {"sleep_s": SLEEP_S}, 1: {"sleep_s": SLEEP_S}})
    sink = ListSink()
    result = searched(executor, album, toolchain, tmp_path, sink)
    assert result.spent.gpu_seconds >= SLEEP_S * 2 * len(sink.trials)


def test_the_store_keeps_the_budget_and_what_was_spent(tmp_path):
    with closing(Store.open(f"sqlite:///{tmp_path / 'searches.sqlite3'}")) as store:
        row = store.submit(values.plan(trials=None, gpu_seconds=8.0))
        assert (row.gpu_seconds_budget, row.gpu_spent_s) == (8.0, None)
        claim = store.claim("worker", 30.0)
        assert store.history(claim).gpu_spent_s == 0.0
        store.renew(claim, 30.0, 3.0, 2.0)
        assert store.history(claim).gpu_spent_s == 2.0
        assert progress(store.search(row.id)).share == 0.25
        store.finish(claim, Ended.PAUSED, "paused", spent=Spent(5.0, 4.0))
        paused = store.search(row.id)
        assert (paused.spent_s, paused.gpu_spent_s) == (5.0, 4.0)
        store.request_control(row.id, "resume")
        again = store.claim("another", 30.0)
        assert store.history(again).gpu_spent_s == 4.0
        store.finish(again, Ended.COMPLETED, "the budget of 8 GPU seconds is spent")
        assert store.search(row.id).gpu_spent_s == 4.0
        extended = store.extend(row.id, 10)
        assert (extended.gpu_seconds_budget, extended.trials_budget) == (None, 10)
