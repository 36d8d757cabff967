"""Modelled times as a prior of a strategy, and the points that idle cores model beside a search."""

from __future__ import annotations

import math
import random
import threading
import time
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest
import standin_gpus
from standin_search import axpy_search
from test_prior import BEST, driven, history, proposed, space, strategy, time_us  # noqa: F401
from test_run import ListSink

from greenfast.app.views.start import start_of
from greenfast.search.cores import idle_core_seconds
from greenfast.search.errors import Fault, UsageError
from greenfast.search.loop import modelling
from greenfast.search.loop.ahead import Ahead
from greenfast.search.loop.modelling import (
    IdleCores,
    Modelling,
    points_to_model,
    smaller_workload,
)
from greenfast.search.loop.objectives import modelled_of
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.sink import Ended
from greenfast.search.loop.start import baseline_candidate
from greenfast.search.loop.submitted import plan_of_submission
from greenfast.search.strategies import DEFAULT_MODELLED, STRATEGIES, WITH_MODELLED_TIMES
from greenfast.search.strategies.base import MODELLED_TIMES, ModelledTime
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Faulted


def modelled(space, count=24, best=BEST, template="recorded"):  # noqa: F811
    """Times that are twice too long, as a model's may be."""
    points = random.Random(4).sample(list(space.points), count)
    return [ModelledTime(template, each, math.log(2 * time_us(each, best))) for each in points]


def best_after(stored):
    return min(past.told.log_ratio for past in stored if hasattr(past.told, "log_ratio"))


def test_searches_that_hear_modelled_times_are_faster(space):  # noqa: F811
    def reached(times):
        total = 0.0
        for seed in range(5):
            made = strategy(space, seed=seed)
            made.hear_modelled(times)
            total += best_after(driven(made, 12))
        return total

    assert reached(modelled(space, best={**BEST, "c": 16})) < reached([]) - 0.5


@pytest.mark.slow
def test_a_model_that_is_wrong_everywhere_costs_little(space):  # noqa: F811
    """The weight of a source that predicts worse than the outcomes alone becomes 0."""
    wrong = [
        ModelledTime(each.template, each.parameters, -each.log_time) for each in modelled(space, 40)
    ]
    cold, misled = [], []
    for seed in range(4):
        cold.append(best_after(driven(strategy(space, seed=seed), 40)))
        made = strategy(space, seed=seed)
        made.hear_modelled(wrong)
        misled.append(best_after(driven(made, 40)))
    assert sum(misled) < sum(cold) + 0.5


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_resumed_search_knows_the_modelled_times_that_it_knew(space, name):  # noqa: F811
    times = modelled(space)
    whole = strategy(space, name=name)
    stored = driven(whole, 6)
    whole.hear_modelled(times[:10])
    stored = driven(whole, 5, stored)
    whole.hear_modelled(times[10:])
    stored = driven(whole, 9, stored)
    assert [len(past.sampler.get(MODELLED_TIMES, ())) for past in stored[5:13]] == [
        *(0, 10, 0, 0, 0, 0, 14, 0)
    ]
    resumed = strategy(space, name=name)
    resumed.restore(stored[:12])
    assert proposed(driven(resumed, 8, stored[:12])) == proposed(stored)
    assert resumed.modelled_count == {"recorded": 24}


def test_modelled_times_stay_plain_values_of_their_types(space):  # noqa: F811
    made = strategy(space)
    made.hear_modelled(modelled(space, 5))
    (first, *_) = made.ask().sampler[MODELLED_TIMES]
    template, values, log_time = first
    assert (template, [type(value) for value in values]) == ("recorded", [int] * 4 + [bool])
    assert isinstance(log_time, float)


def test_modelled_times_of_other_templates_are_ignored(space):  # noqa: F811
    made = strategy(space)
    made.hear_modelled(modelled(space, template="other"))
    assert proposed(driven(made, 14)) == proposed(driven(strategy(space), 14))


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - WITH_MODELLED_TIMES))
def test_strategies_without_a_model_choose_as_they_would_without(space, name):  # noqa: F811
    made = strategy(space, name=name)
    made.hear_modelled(modelled(space))
    with_times, without = driven(made, 8), driven(strategy(space, name=name), 8)
    assert [past.candidate for past in with_times] == [past.candidate for past in without]


def test_a_neighbour_and_the_model_are_two_sources(space):  # noqa: F811
    made = strategy(space, history(space))
    made.hear_modelled(modelled(space))
    made.ask()
    assert len(made._islands["recorded"].prior) == 2


def test_points_to_model_are_the_same_each_time_and_skip_what_is_known(space):  # noqa: F811
    spaces = {"a": space, "b": space}
    points = list(points_to_model(spaces, 5, 3, {}))
    assert [template for template, _ in points] == ["a", "b"] * 5
    assert points == list(points_to_model(spaces, 5, 3, {}))
    later = list(points_to_model(spaces, 5, 3, {"a": 4, "b": 5}))
    assert later == [points[8]]  # the last one of a
    assert points != list(points_to_model(spaces, 5, 4, {}))


def test_idle_cores_are_seconds_of_the_system():
    before = idle_core_seconds()
    time.sleep(0.3)
    assert before is not None and idle_core_seconds() >= before
    idle = IdleCores()
    time.sleep(0.3)
    assert 0.0 <= idle.read() <= 1.2 * len(__import__("os").sched_getaffinity(0))


def test_no_core_counts_as_idle_where_the_system_does_not_tell(monkeypatch):
    monkeypatch.setattr(modelling, "idle_core_seconds", lambda: None)
    idle = IdleCores()
    time.sleep(0.01)
    assert idle.read() == 0.0


@pytest.fixture
def machine(monkeypatch, tmp_path, album):
    """A target of one stand-in GPU, which takes a while for each request."""
    standin_gpus.install(monkeypatch, tmp_path / "tmp", {0: {"sleep_s": 0.1}})
    settings = TargetSettings(tmp_path / "cache", album.include_dirs, 1)
    with closing(open_target("cuda:0", settings)) as target:
        yield target


@pytest.fixture
def idle(monkeypatch):
    monkeypatch.setattr(modelling, "LOOK_S", 0.02)
    monkeypatch.setattr(IdleCores, "read", lambda self: 4.0)
    monkeypatch.setattr(Ahead, "cores_are_scarce", lambda *_: False)


@pytest.fixture
def search(machine, album, toolchain, emulator, idle):
    """`search(sink, modelled, more)`: a search of axpy that models so many points."""

    def prepared(sink, modelled, **more):
        beside = {"modeller": emulator, "strategy": "evolution", "modelled": modelled}
        return axpy_search(machine, sink, album, toolchain, **beside, **more)

    return prepared


def test_a_search_stores_the_times_that_it_modelled_and_models_no_point_twice(search):
    sink = ListSink()
    assert search(sink, 6, trials=14).run().ended is Ended.COMPLETED
    rows = [row for _, each in sink.begun for row in each.sampler.get(MODELLED_TIMES, ())]
    assert 1 <= len(rows) <= 6 and len({tuple(values) for _, values, _ in rows}) == len(rows)
    first = len(rows)
    assert search(sink, 6, trials=40, history=sink.history()).run().ended is Ended.COMPLETED
    rows = [row for _, each in sink.begun for row in each.sampler.get(MODELLED_TIMES, ())]
    assert first <= len(rows) <= 6 and len({tuple(values) for _, values, _ in rows}) == len(rows)
    assert not any(isinstance(trial.verdict, Faulted) for trial in sink.trials)


def test_faults_end_the_modelling_with_a_remark_and_leave_the_search_alone(search, monkeypatch):
    def broken(*_):
        raise Fault("the disk is full", code="disk_full")

    monkeypatch.setattr(modelling, "prepare", broken)
    remarks, sink = [], ListSink()
    assert search(sink, 20, on_remark=remarks.append).run().ended is Ended.COMPLETED
    assert remarks == ["no further times are modelled for the strategy: the disk is full"]
    assert len(sink.trials) == 9


def test_nothing_is_modelled_while_all_cores_are_busy(monkeypatch):
    monkeypatch.setattr(modelling, "LOOK_S", 0.01)
    monkeypatch.setattr(IdleCores, "read", lambda self: 1.0)
    context = SimpleNamespace(kernel=None, modeller=object(), workloads=())
    monkeypatch.setattr(modelling, "replace", lambda context, **_: context)
    taken = []
    points = (taken.append(number) for number in range(9))
    with Modelling(context, points, taken.append, taken.append, lambda: False):
        time.sleep(0.2)
    assert taken == []


@pytest.mark.parametrize(
    ("scarce", "workload", "begins"),
    [
        (True, "B=1,H=16,S_q=16384,D=128,dtype=bf16", False),
        (False, "mission", True),
        (None, "B=1,H=16,S_q=16384,D=128,dtype=bf16", True),
        (None, "mission", False),
    ],
)
def test_points_begin_where_a_gpu_is_the_limit_or_will_probably_be(
    catalogue, monkeypatch, idle, scarce, workload, begins
):
    kernel = catalogue.kernel("attention")
    context = SimpleNamespace(
        kernel=kernel, modeller=object(), workloads=(kernel.workload(workload),)
    )
    monkeypatch.setattr(modelling, "replace", lambda context, **_: context)
    monkeypatch.setattr(Modelling, "_modelled", lambda self, *point: None)
    taken = []
    points = (taken.append(number) or ("mma", ()) for number in range(9))
    with Modelling(context, points, taken.append, taken.append, lambda: scarce):
        time.sleep(0.4)
    assert bool(taken) == begins


@pytest.mark.parametrize(
    ("modelled", "strategy", "family", "sentence"),
    [
        (-1, "evolution", "cuda", "between 0 and 1,000"),
        (1001, "evolution", "cuda", "between 0 and 1,000"),
        (8, "tpe", "cuda", "tpe cannot search with modelled times"),
        (8, "evolution", "emulator", "only a search on GPUs"),
    ],
)
def test_a_number_of_points_that_makes_no_sense_is_refused(modelled, strategy, family, sentence):
    with pytest.raises(UsageError, match=sentence):
        modelled_of(modelled, strategy, family)


def test_the_default_is_for_gpus_and_strategies_that_learn_from_it(album):
    assert modelled_of(None, "evolution", "cuda") == DEFAULT_MODELLED
    assert [modelled_of(None, *where) for where in (("tpe", "cuda"), ("gp", "emulator"))] == [0, 0]
    assert modelled_of(0, "tpe", "emulator") == 0
    assert make_plan(SearchRequest("axpy"), album).modelled == 0


@pytest.mark.parametrize(
    ("kernel", "workload", "smaller"),
    [
        ("attention", "mission", "mission"),
        ("attention", "B=1,H=16,S_q=16384,D=128,dtype=bf16", {"S_q": 2048, "S_kv": 2048, "H": 16}),
        ("attention", "B=8,H=32,H_kv=8,S_q=1,S_kv=4096,D=128", None),
        ("gemm", "M=8192,N=8192,K=8192", {"M": 2048, "N": 2048, "K": 2048}),
    ],
)
def test_a_large_workload_is_modelled_with_smaller_dims(catalogue, kernel, workload, smaller):
    spec = catalogue.kernel(kernel)
    given = spec.workload(workload)
    modelled = smaller_workload(spec, given)
    if not isinstance(smaller, dict):
        assert modelled == given
        return
    dims = dict(modelled.dims)
    assert {name: dims[name] for name in smaller} == smaller
    assert modelled.compile_time(spec) == given.compile_time(spec)


def test_a_search_that_is_over_does_not_wait_for_points_that_are_modelled(
    search, emulator, monkeypatch
):
    interrupted = threading.Event()

    def lasting(*_):
        if not interrupted.wait(60.0):
            pytest.fail("nobody ended the run")
        raise Fault("interrupted", code="interrupted")

    monkeypatch.setattr(modelling, "prepare", lasting)
    monkeypatch.setattr(type(emulator), "interrupt", lambda self: interrupted.set())
    remarks = []
    run = search(ListSink(), 20, trials=3, on_remark=remarks.append)
    assert run.run().ended is Ended.COMPLETED
    assert interrupted.is_set() and not remarks


def test_nothing_is_modelled_beside_a_submission(album):
    plan = replace(make_plan(SearchRequest("axpy"), album), modelled=40)
    submission = SimpleNamespace(
        candidate=baseline_candidate(
            plan, SimpleNamespace(kernel=album.kernel("axpy"), compiled=plan.compiled)
        )
    )
    assert plan_of_submission(plan, submission).modelled == 0


def test_a_search_says_that_idle_cores_model_points(album):
    plan = make_plan(SearchRequest("axpy", cold=True), album)
    assert "idle cores" not in start_of(plan)
    said = start_of(replace(plan, modelled=7))
    assert said.startswith("cold:")
    assert said.endswith("; idle cores model up to 7 points of each template")
