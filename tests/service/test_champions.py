"""Confirmations, peers and champions over REST and on the command line."""

from __future__ import annotations

import dataclasses

import pytest
import store_values as values
from service_home import axpy, one_sentence

from greenfast.app.cli.search_report import show_search
from greenfast.app.settings import Settings
from greenfast.app.views.progress import search_detail
from greenfast.app.wiring import Services
from greenfast.client import ServiceError
from greenfast.db.store import Store
from greenfast.search.loop.plan import CHAMPION, SearchRequest, make_plan
from greenfast.search.loop.scope import scope_of
from greenfast.search.loop.sink import Ended
from greenfast.search.loop.start import baseline_candidate

COMPILED = (("D", 64), ("dtype", "fp16"))


def record(url: str, *, confirmed: bool | None = True, winner: int = 1, **plan) -> str:
    """A completed search whose winner, trial 1, was timed again."""
    store = Store.open(url)
    plan = values.plan(**{"target": "cuda:0", "compiled": COMPILED, **plan})
    claim = store.submit_held(plan, None, "test", values.LEASE_S)  # not for the service's worker
    store.describe(claim, {"device": "h200", "toolchain": "nvrtc 13.0"})
    for number, candidate in enumerate((0, winner)):
        trial = dataclasses.replace(
            values.trial(candidate, values.accepted(candidate, 100.0 - candidate)), number=number
        )
        store.begin(claim, number, values.Proposal(trial.candidate, trial.sampler))
        store.record(claim, trial, values.source(candidate))
    if confirmed is not None:
        store.record_confirmation(claim, values.confirmation(1, confirmed))
    for peer in (
        values.peer(),
        values.peer("torch-cudnn", ratio=0.95),
        values.peer("flash-attention-4", "unavailable"),
    ):
        store.record_peer(claim, peer)
    store.finish(claim, Ended.COMPLETED, "the budget is spent")
    store.close()
    return claim.search_id


def database(home) -> str:
    return f"sqlite:///{home.data / 'greenfast.sqlite3'}"


@pytest.fixture(scope="module")
def search(service) -> str:
    return record(database(service.home))


class TestRest:
    def test_a_search_shows_its_confirmation_and_peers_without_samples(self, service, search):
        search_row = service.search(search)
        confirmation = search_row["confirmation"]
        assert (
            confirmation["confirmed"]
            and confirmation["trial"] == 1
            and confirmation["environment"]["device"] == "h200"
        )
        baseline, runner_up = confirmation["comparisons"]
        assert (baseline["against"], baseline["decision"], baseline["ratio"]) == (
            "baseline",
            "faster",
            0.9,
        )
        assert (runner_up["against"], runner_up["other_trial"]) == ("runner-up", 2)
        process = baseline["processes"][0]
        assert process["ratio"] == pytest.approx(0.9, abs=0.01) and process["ratio_low"] is None, (
            "two blocks: no end"
        )
        assert (
            process["timings"][0]["samples"] is None
            and process["timings"][0]["other_median_us"] == 100.05
        )
        assert [peer["name"] for peer in search_row["peers"]] == [
            "flash-attention-4",
            "torch-cudnn",
            "torch-flash",
        ]
        assert [peer["outcome"] for peer in search_row["peers"]] == [
            "unavailable",
            "timed",
            "timed",
        ]

    def test_every_sample_can_be_had(self, service, search):
        confirmation = service._json("GET", f"/api/v1/searches/{search}/confirmation")
        times = confirmation["confirmation"]["comparisons"][0]["processes"][0]["timings"][0]
        assert times["samples"] == [90.0, 90.125, 89.9, 90.2] and len(times["other_samples"]) == 4
        assert confirmation["peers"][1]["comparison"]["processes"][0]["timings"][0]["samples"]

    def test_a_winner_is_promoted_and_listed_until_another_replaces_it(self, service):
        url = database(service.home)
        first = record(url, workloads=("long",))
        champion = service.promote(first, 1)
        assert champion["scope"]["workloads"] == ["long"] and champion["scope"]["values"] == dict(
            COMPILED
        )
        assert [peer["name"] for peer in champion["best_peers"]] == ["torch-cudnn"], (
            "the fastest of those that were timed"
        )
        assert service.promote(first, 1) == champion
        stranger = record(url, workloads=("long",), winner=3)
        with pytest.raises(ServiceError) as refused:
            service.promote(stranger, 1)
        assert (refused.value.status, refused.value.code) == (409, "not_compared")
        assert service.promote(stranger, 1, replace=True)["trial"]["search_id"] == stranger
        mine = [
            champion
            for champion in service.champions()
            if champion["scope"]["workloads"] == ["long"]
        ]
        assert [champion["trial"]["search_id"] for champion in mine] == [stranger]
        both = [
            champion
            for champion in service.champions(replaced=True, kernel="attention")
            if champion["scope"]["workloads"] == ["long"]
        ]
        assert [champion["replaced_at"] is None for champion in both] == [True, False]

    def test_refusals(self, service, search):
        unconfirmed = record(database(service.home), confirmed=None, workloads=("small",))
        for arguments, status, code in (
            ((unconfirmed, 1), 409, "not_confirmed"),
            ((search, 77), 404, "unknown_trial"),
            (("s_aaaaaaaaaaaa", 1), 404, "unknown_search"),
        ):
            with pytest.raises(ServiceError) as refused:
                service.promote(*arguments)
            assert (refused.value.status, refused.value.code) == (status, code)
        with pytest.raises(ServiceError) as refused:
            service.champions(device="h200")
        assert refused.value.code == "unknown_field" and "replaced" in refused.value.mend

    @pytest.mark.slow
    def test_a_winner_is_confirmed_again_only_where_that_can_be(self, service, search):
        modelled = service.wait(service.submit(**axpy(budget={"trials": 1}))["id"])
        for search_id, code in ((modelled["id"], "not_measured"), (search, "kernel_changed")):
            with pytest.raises(ServiceError) as refused:
                service.control(search_id, "confirm")
            assert (refused.value.status, refused.value.code) == (409, code)
            assert service.search(search_id)["status"] == "completed"

    def test_openapi_describes_it(self, service):
        paths = service._json("GET", "/api/v1/openapi.json")["paths"]
        assert "/api/v1/champions" in paths and "/api/v1/searches/{search}/confirmation" in paths
        assert "post" in paths["/api/v1/searches/{search}/trials/{trial}/promote"]


class TestCommand:
    @pytest.mark.slow
    def test_a_winner_is_promoted_and_shown(self, home):
        empty = home.run("champions")
        assert empty.code == 0 and "no champion yet" in empty.err
        search = record(database(home))
        promoted = home.run("promote", search)
        assert promoted.code == 0 and f"trial 1 of search {search} is the champion" in promoted.err
        shown = home.run("champions")
        assert (
            "0.900 [0.895, 0.905]" in shown.out
            and "torch-cudnn" in shown.out
            and search in shown.out
        )
        (champion,) = home.run("champions", "attention", "--json").json
        assert (
            champion["trial"]["number"] == 1
            and home.run("champions", "rmsnorm", "--json").json == []
        )

    def test_a_search_names_its_peers(self, home, capsys):
        record(database(home))
        store = Store.open(database(home))
        (row,) = store.searches().items
        show_search(search_detail(store, row.id))
        store.close()
        shown = capsys.readouterr().out
        assert (
            "torch-flash 2.11.0" in shown
            and "0.800 [0.795, 0.805]" in shown
            and "unavailable: it is not" in shown
        )

    def test_what_is_not_confirmed_is_refused_in_one_sentence(self, home):
        search = record(database(home), confirmed=None)
        for arguments in ((search,), (search, "1")):
            refused = home.run("promote", *arguments)
            assert refused.code == 2 and "not timed again in fresh processes" in one_sentence(
                refused
            )


class TestBaseline:
    def test_a_champion_of_the_scope_is_the_baseline_that_champion_names(
        self, home, catalogue, monkeypatch
    ):
        """The baseline on a measured target; on the emulator of the device, only by request."""
        for name, value in home.environment.items():
            monkeypatch.setenv(name, value)
        services = Services(Settings.from_environment())
        request = SearchRequest("axpy", templates=("right",), trials=2, seed=1)
        plain = services.plan(request)
        scope = scope_of(plain, {"device": "h200", "toolchain": services_toolchain(services)})
        kernel = services.catalogue.kernel("axpy")
        preset = baseline_candidate(plain, services.context(plain))
        candidate = next(
            point for point in points(services, plain) if point.digest != preset.digest
        )
        search = promote(
            services.store, plain, candidate, {"device": scope.device, "toolchain": scope.toolchain}
        )
        plan = services.plan(dataclasses.replace(request, baseline=CHAMPION))
        assert plan.baseline == f"champion {search}/1" and plan.champion == candidate
        assert baseline_candidate(plan, services.context(plan)) == candidate
        assert services.plan(request).champion is None, "a modelled search compares with the preset"
        assert kernel.baseline == plain.baseline
        row = services.store.submit(plan)
        services.close()
        ended = home.run("search", "--resume", row.id, "--json")
        assert ended.code == 0, ended.err
        assert ended.json["baseline_trial"]["parameters"] == candidate.values()
        assert ended.json["baseline"] == plan.baseline

    def test_without_a_champion_the_name_is_refused_and_the_default_is_the_preset(self, home):
        refused = home.run("search", "axpy", "--baseline", "champion")
        assert refused.code == 2 and "there is no champion of kernel axpy" in one_sentence(refused)

    def test_where_times_are_measured_the_champion_is_the_default(self, album, monkeypatch):
        from greenfast.search.devices.facts import device
        from greenfast.search.loop import target_space

        # There may be no GPU here.
        monkeypatch.setattr(target_space, "target_device", lambda target: device("h200"))
        requests = []
        make_plan(
            SearchRequest("axpy", target="cuda:0", seed=1),
            album,
            champion_of=requests.append,
        )
        make_plan(
            SearchRequest("axpy", target="cuda:0", seed=1, baseline="none"),
            album,
            champion_of=requests.append,
        )
        assert len(requests) == 1 and requests[0].compiled


def services_toolchain(services: Services) -> str:
    from greenfast.app.wiring import toolchain_name

    return toolchain_name(services.toolchain)


def points(services: Services, plan):
    """Valid candidates of the plan's kernel."""
    from greenfast.search.devices.facts import device
    from greenfast.search.space.candidate import Candidate, Origin, OriginKind
    from greenfast.search.space.space import Space

    kernel = services.catalogue.kernel(plan.kernel)
    space = Space(kernel.template("right"), plan.compiled, device("h200"))
    return [
        Candidate(kernel.name, "right", point, Origin(OriginKind.SAMPLED))
        for point in space.each_point()
    ]


def promote(store: Store, plan, candidate, environment) -> str:
    claim = store.submit_held(plan, None, "test", values.LEASE_S)
    store.describe(claim, environment)
    for number in (0, 1):
        trial = dataclasses.replace(
            values.trial(number, values.accepted(number, 100.0 - number)), candidate=candidate
        )
        store.begin(claim, number, values.Proposal(candidate, {}))
        store.record(claim, trial, values.source(number))
    store.record_confirmation(claim, values.confirmation(1))
    store.finish(claim, Ended.COMPLETED, "")
    store.promote(claim.search_id, 1)
    return claim.search_id
