"""A completed search in a database, on times that a law draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace

from confirmed_searches import ScatteringGpu, by_threads

from greenfast.app.service.worker import Stop, StoppableSink
from greenfast.db.sink import StoreSink
from greenfast.db.store import Store
from greenfast.search.devices.facts import device
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import Ended


@contextmanager
def stored_search(
    folder, album, toolchain, monkeypatch, fast
) -> Iterator[tuple[SimpleNamespace, str, ScatteringGpu]]:
    """(services, search id, GPU); `fast`: us by (threads a block, elements a thread)."""
    monkeypatch.setattr(
        "greenfast.search.loop.target_space.target_device", lambda target: device("h200")
    )
    request = SearchRequest(
        "axpy",
        workloads=("line",),
        templates=("right",),
        target="cuda:0",
        strategy="exhaustive",
        seed=3,
        mode="hot",
    )
    plan = make_plan(request, album, window=1)
    kernel, gpu = album.kernel("axpy"), ScatteringGpu(by_threads(fast))

    def context(plan, catalogue):
        return EvaluationContext(
            kernel,
            plan.compiled,
            (kernel.workload("line"),),
            gpu,
            toolchain,
            album.include_dirs,
            plan.limits,
            plan.seed,
        )

    with closing(Store.open(f"sqlite:///{folder / 'searches.sqlite3'}")) as store:
        services = SimpleNamespace(
            store=store,
            settings=SimpleNamespace(ablation_s=60.0),
            catalogue=album,
            catalogue_of=lambda search_id: album,
            context=context,
            environment=lambda context: {"device": "h200", "driver": "1"},
            give_back_gpus=lambda: None,
        )
        search_id = store.submit(plan).id
        claim = store.claim("test", 30.0, search_id)
        store.describe(claim, {"device": "h200", "toolchain": "nvrtc 1"})
        sink = StoppableSink(StoreSink(store, claim, 30.0), Stop(10.0))
        run = SearchRun(plan, context(plan, album), sink, store.history(claim))
        result = run.run()
        assert result.ended is Ended.COMPLETED
        store.finish(claim, result.ended, result.why, result.closing)
        yield services, search_id, gpu
