"""A search of the album's axpy on a target of stand-in GPUs, ready to run."""

from __future__ import annotations

from dataclasses import replace

from contexts import plan_context
from test_run import NO_HISTORY

from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun


def axpy_search(
    target,
    sink,
    album,
    toolchain,
    *,
    window=4,
    history=NO_HISTORY,
    checker=None,
    modeller=None,
    on_remark=lambda sentence: None,
    gpu_seconds=None,
    modelled=0,
    **request,
):
    """Nine random candidates of template `right`, unless `request` asks for others.

    Without a checker safety is left out, as the emulator takes its time.
    """
    request = {"trials": 9, "strategy": "random", "seed": 3, "confirm": False, **request}
    plan = make_plan(SearchRequest("axpy", templates=("right",), **request), album, window=window)
    trials = request["trials"] if gpu_seconds is not None else plan.trials
    beside = {"gpu_seconds": gpu_seconds, "modelled": modelled}
    plan = replace(plan, target=target.name, trials=trials, **beside)
    context = plan_context(album, plan, target, toolchain, checker=checker, modeller=modeller)
    return SearchRun(plan, context, sink, history, on_remark=on_remark)
