"""Nothing is measured twice in a scope: searches of one store on a stand-in GPU.

The GPU computes in NumPy and draws times from a law of the text. The store, the gates, the
compiler, the emulator's checks and the confirmation are the real ones.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from confirmed_searches import ScatteringGpu, by_threads
from new_database import DATABASES, postgres_schema
from twin_kernel import twin_catalogue

from greenfast.app import wiring
from greenfast.app.service.worker import Stop, run_claim
from greenfast.app.settings import Settings
from greenfast.app.views import writers
from greenfast.app.views.ledger_memory import Reuse, StoreMemory, origin_of, reused_trials
from greenfast.app.wiring import Services
from greenfast.search.devices.facts import device
from greenfast.search.loop import target_space
from greenfast.search.loop.plan import SearchRequest
from greenfast.search.verdict import Skipped, gate_result

POINTS, SPARES = 11, 3
FAST = {(64, 1): 8.0, (64, 2): 8.5}


class NotingGpu(ScatteringGpu):
    """Notes the text of each candidate that is timed in a search, and in a confirmation."""

    def __init__(self, law, **more):
        super().__init__(law, **more)
        self.timed, self.confirmed = [], []

    def measure(self, program, cubin, problems, against=None, inspect=None):
        is_last = against is not None and against.to_the_end
        (self.confirmed if is_last else self.timed).append(program.digest)
        return super().measure(program, cubin, problems, against, inspect)


class OnStandIn(Services):
    """Services whose cuda:0 is a stand-in, and which compare with no peers."""

    gpu: NotingGpu
    has_checker = True

    def target(self, name, run_deadline_s=None, include_dirs=None):
        return self.gpu if name == "cuda:0" else super().target(name, run_deadline_s, include_dirs)

    def context(self, plan, catalogue=None):
        context = replace(super().context(plan, catalogue), compare_peers=None)
        return context if self.has_checker else replace(context, checker=None)

    def _opened(self):
        return [part for part in super()._opened() if part is not self.gpu]


@pytest.fixture(params=DATABASES)
def database(request):
    """The setting that names the database; nothing for SQLite."""
    if request.param == "sqlite":
        yield {}
        return
    with postgres_schema() as url:
        yield {"GREENFAST_DATABASE_URL": url}


@pytest.fixture
def services(home, monkeypatch, tmp_path, database):
    twin_catalogue(tmp_path / "kernels")
    home.environment.update(database, GREENFAST_TEMPLATE_PATH=str(tmp_path / "kernels"))
    for name, value in home.environment.items():
        monkeypatch.setenv(name, value)
    for module in (target_space, wiring, writers):
        monkeypatch.setattr(module, "target_device", lambda target: device("h200"))
    services = OnStandIn(Settings.from_environment())
    services.said = []
    yield services
    services.close()


@pytest.fixture
def search(services):
    """`search(law)`: the id of a search of all points on a GPU of its own, run to its end."""

    def run(law, request=None, **more):
        services.gpu = NotingGpu(law, **more)
        asked = {"strategy": "exhaustive", "trials": 99, "confirm": False, **(request or {})}
        claim = services.submit_held(
            SearchRequest("axpy", target="cuda:0", templates=("right",), **asked), "a worker"
        )
        services.said = []
        report = run_claim(services, claim, Stop(1.0), say=services.said.append)
        assert report.ended == "completed", report.why
        return claim.search_id

    return run


def rows(services, search_id):
    return services.store.trials(search_id, limit=100).items


def test_a_second_search_measures_its_baseline_and_repeats_the_rest(services, search):
    first = search(by_threads(FAST), {"confirm": True})
    assert len(services.gpu.timed) == len(set(services.gpu.timed)) == POINTS
    own = reused_trials(services.store, first)
    assert {reuse.search_id for reuse in own.values()} == {first}
    assert len(own) == POINTS * (SPARES - 1)
    assert any("the machine code of an earlier one" in each for each in services.said)

    today = by_threads({point: 1.1 * time for point, time in FAST.items()})
    second = search(today, {"confirm": True})
    before = {row.candidate_digest: row for row in rows(services, first)}
    baseline, *others = sorted(rows(services, second), key=lambda row: row.number)
    assert services.gpu.timed == [baseline.source_digest]
    reused = reused_trials(services.store, second)
    assert 0 not in reused and len(reused) == len(others) == POINTS * SPARES - 1
    for row in others:
        same = before[row.candidate_digest]
        # Candidates with the baseline's machine code have the time of today's baseline.
        is_baselines = row.machine_code == baseline.machine_code
        expected = Reuse(second, 0) if is_baselines else Reuse(first, same.number)
        assert reused[row.number] == expected
        assert (row.verdict, row.reason) == (same.verdict, same.reason)
        assert row.ratio_to_baseline == same.ratio_to_baseline
    confirmation = services.store.confirmation(second).confirmation
    assert confirmation.trial == services.store.best(second).number
    winner = services.store.trial(second, confirmation.trial)
    assert winner.parameters["threads"] == 64 and winner.parameters["per_thread"] == 1
    assert services.gpu.processes == 3  # fresh ones, for times that are not repeated
    assert set(services.gpu.confirmed) == {winner.source_digest}
    seen = confirmation.comparisons[0].ratio
    assert seen == pytest.approx(0.88, rel=0.02)  # of today, not the 0.8 of the first search


@pytest.mark.slow
def test_fresh_measures_again_and_another_baseline_repeats_no_comparison(services, search):
    services.has_checker = False  # without a baseline, every trial's safety would be judged
    search(by_threads(FAST))
    fresh = search(by_threads(FAST), {"reuse": False})
    assert len(services.gpu.timed) == POINTS  # twins of the search itself are still twins
    assert {reuse.search_id for reuse in reused_trials(services.store, fresh).values()} == {fresh}
    none = search(by_threads(FAST), {"baseline": "none"})
    assert len(services.gpu.timed) == POINTS
    assert {reuse.search_id for reuse in reused_trials(services.store, none).values()} == {none}
    again = search(by_threads(FAST), {"baseline": "none"})
    assert len(services.gpu.timed) == POINTS  # a time without a ratio is repeated nowhere
    assert {reuse.search_id for reuse in reused_trials(services.store, again).values()} == {again}
    gain = search(by_threads(FAST), {"min_gain": 0.5})
    assert len(services.gpu.timed) == POINTS
    assert {reuse.search_id for reuse in reused_trials(services.store, gain).values()} == {gain}


def test_a_verdict_that_may_be_the_machines_is_measured_again(services, search):
    first = search(by_threads(FAST), noise=0.2)
    unclear = {
        row.number for row in rows(services, first) if row.reason in ("ambiguous", "too_noisy")
    }
    assert unclear
    second = search(by_threads(FAST))
    reused = reused_trials(services.store, second).values()
    assert not unclear & {reuse.number for reuse in reused if reuse.search_id == first}
    assert len(services.gpu.timed) > 1


@pytest.mark.slow
def test_times_of_another_day_are_ranked_by_their_ratio_to_the_baseline(services, search):
    """Today the GPU takes half as long again, so that every time of the first search is shorter."""
    first = search(lambda text: 10.0 if is_plain(text) else 8.0, {"trials": 12})
    tried = {point_of(row) for row in rows(services, first)}
    untried = {(threads, each) for threads in (32, 256) for each in (1, 2)} - tried
    assert untried and len(tried) > 2
    law = by_threads({**dict.fromkeys(tried - {(128, 1)}, 8.0), **dict.fromkeys(untried, 7.0)})
    second = search(lambda text: 1.5 * law(text), {"confirm": True})
    confirmation = services.store.confirmation(second).confirmation
    assert point_of(services.store.trial(second, confirmation.trial)) in untried
    others = StoreMemory(services.store, second).timed_elsewhere()
    reused = reused_trials(services.store, second)
    origins = {number: origin_of(services.store, reuse) for number, reuse in reused.items()}
    assert others == {number for number, reuse in origins.items() if reuse.search_id == first}
    assert others and confirmation.trial not in others


def test_machine_code_that_another_search_has_run_is_not_run_again(services, search):
    """The searches try different values of the parameter of which the compiler makes nothing."""
    first = search(by_threads(FAST), {"trials": 12})
    known = {row.machine_code: row for row in rows(services, first)}
    tried = {row.candidate_digest for row in known.values()}
    second = search(by_threads(FAST))
    reused = reused_trials(services.store, second)
    ran = set(services.gpu.timed)
    others = [row for row in rows(services, second) if row.candidate_digest not in tried]
    twins = [row for row in others if row.machine_code in known]
    plain = next(row for row in known.values() if row.is_baseline).machine_code
    assert None not in known and len(known) < POINTS and twins
    for row in twins:
        assert row.source_digest not in ran
        if row.machine_code != plain:
            assert origin_of(services.store, reused[row.number]).search_id == first
            assert row.ratio_to_baseline == known[row.machine_code].ratio_to_baseline
    assert len(ran) == 1 + POINTS - len(known)  # the baseline, and what is new


def is_plain(text):
    return "int threads = 128;" in text and "int per_thread = 1;" in text


def point_of(row):
    return row.parameters["threads"], row.parameters["per_thread"]


def test_a_safety_that_could_not_be_judged_is_judged_without_measuring_again(services, search):
    services.has_checker = False
    first = search(by_threads(FAST))
    assert {row.verdict for row in rows(services, first)} == {"green", "rejected"}
    services.has_checker = True
    second = search(by_threads(FAST))
    assert len(services.gpu.timed) == 1  # the baseline
    accepted = [row for row in rows(services, second) if row.verdict == "accepted"]
    assert (64, 1) in {point_of(row) for row in accepted} <= set(FAST)
    reused = reused_trials(services.store, second)
    assert {reused[row.number].search_id for row in accepted} == {first}


def test_a_spared_contender_that_was_recalled_is_judged_when_the_search_closes(services, search):
    first = search(by_threads(FAST))
    spared = [
        row.number
        for row in rows(services, first)
        if row.verdict == "green"
        and isinstance(
            gate_result(services.store.recorded(first, row.number).verdict, "safety"), Skipped
        )
    ]
    assert spared
    second = search(by_threads(FAST), {"confirm": True})
    fastest = sorted(
        (row for row in rows(services, second) if row.verdict in ("green", "accepted")),
        key=lambda row: (row.time_median_us, row.number),
    )
    reused = reused_trials(services.store, second)
    late = [row for row in fastest[:3] if reused[row.number].number in spared]
    assert late
    for row in late:
        safety = gate_result(services.store.recorded(second, row.number).verdict, "safety")
        assert not isinstance(safety, Skipped) and row.verdict == "accepted"
        assert services.store.trial(first, reused[row.number].number).verdict == "green"


def test_rest_and_the_page_name_the_trial_with_the_same_machine_code(services, search, home):
    first = search(by_threads(FAST))
    number, reuse = next(iter(reused_trials(services.store, first).items()))
    _, url = home.serve("--workers", "0")
    listed = httpx.get(f"{url}/api/v1/searches/{first}/reused").json()
    assert {"number": number, "search_id": first, "trial": reuse.number} in listed
    page = httpx.get(f"{url}/searches/{first}/trials/{number}").text
    assert "It did not run: its outputs and times are those of" in page
    assert f'href="/searches/{first}/trials/{reuse.number}">trial {reuse.number}</a>' in page
    same = next(row for row in rows(services, first) if "same machine code" in row.finding)
    assert (same.reason, same.ratio_to_baseline) == ("same", 1.0)
    assert httpx.get(f"{url}/searches/{first}/trials/{same.number}").status_code == 200
    assert httpx.get(f"{url}/searches/{first}").status_code == 200
    for command in (("show", f"{first}/{same.number}"), ("report", first), ("show", first)):
        done = home.run(*command)
        assert done.code == 0, done.err
