"""After an edit of a kernel, earlier searches still work with the files that they kept."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import store_values as values
from service_home import KERNELS, Home

from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.client import Client
from greenfast.db.rows import Claim
from greenfast.db.store import Store
from greenfast.search.gates.version import CHECKS, CHECKS_VERSION
from greenfast.search.loop.plan import SearchPlan, SearchRequest
from greenfast.search.loop.sink import Ended

RANDOM = ("search", "axpy", "--workload", "line", "--strategy", "random", "--seed", "5", "--json")
WORKLOAD = '\n[workloads.added]\ntitle = "one more"\ndims = { N = 77 }\n'
CHECK = '\n[[checks]]\nname = "added"\ndims = { N = "tile_q + 7" }\ninputs = "normal"\nseeds = 1\n'
EDITED = "// edited since\nusing Element ="


class Edited:
    """A data folder, and a kernel folder of its own that is edited between commands."""

    def __init__(self, home: Home, templates: Path) -> None:
        self.home, self.templates = home, templates
        self.folder = templates / "axpy"
        home.environment["GREENFAST_TEMPLATE_PATH"] = str(templates)
        self.reset()

    @property
    def url(self) -> str:
        return f"sqlite:///{self.home.data / 'greenfast.sqlite3'}"

    def reset(self) -> None:
        """The kernel as it is shipped with these tests."""
        shutil.rmtree(self.templates, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name in ("kernel.toml", "reference.py", "right.toml", "right.cu.j2"):
            shutil.copy(KERNELS / "axpy" / name, self.folder / name)

    def append(self, text: str) -> None:
        with (self.folder / "kernel.toml").open("a") as file:
            file.write(text)

    def edit_template(self) -> None:
        path = self.folder / "right.cu.j2"
        path.write_text(path.read_text().replace("using Element =", EDITED))

    def bundle(self, search_id: str) -> dict[str, bytes]:
        ended = self.home.run("bundle", search_id, "-o", "made.zip")
        assert ended.code == 0, ended.err
        return contents((self.home.data / "made.zip").read_bytes())


def contents(packed: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(packed)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@pytest.fixture(scope="module")
def edited(tmp_path_factory, artifacts) -> Iterator[Edited]:
    folder = tmp_path_factory.mktemp("history")
    edited = Edited(Home(folder / "data", artifacts), folder / "templates")
    yield edited
    edited.home.end_all()


@pytest.fixture(scope="module")
def whole(edited) -> dict:
    """A finished search of four trials."""
    edited.reset()
    ended = edited.home.run(*RANDOM, "--trials", "4")
    assert ended.code == 0, ended.err
    return ended.json


@pytest.fixture
def paused(edited, whole, monkeypatch) -> str:
    """The same search, paused before its first trial."""
    edited.reset()
    for name in ("GREENFAST_DATA", "GREENFAST_TEMPLATE_PATH"):
        monkeypatch.setenv(name, edited.home.environment[name])
    services = Services(Settings.from_environment())
    row = services.submit(
        SearchRequest("axpy", workloads=("line",), strategy="random", seed=5, trials=3)
    )
    services.store.request_control(row.id, "pause")
    services.close()
    return row.id


@pytest.fixture
def interrupted(edited, whole) -> str:
    """The same search, stopped after its first trials."""
    edited.reset()
    process = edited.home.start(*RANDOM, "--trials", "4", GREENFAST_WINDOW="1")
    search_id = process.stderr.readline().split()[1].rstrip(":")
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.stderr.read()
    process.wait(60)
    search = next(
        search for search in edited.home.run("searches", "--json").json if search["id"] == search_id
    )
    assert search["status"] == "paused" and search["trials_done"] < 4
    return search_id


@pytest.fixture
def rest(edited, whole) -> Iterator[Client]:
    """The service without workers, started on the kernels as a test has edited them."""
    opened = []

    def start() -> Client:
        _, url = edited.home.serve("--workers", "0")
        client = Client(url)
        client.url = url
        opened.append(client)
        return client

    yield start
    for client in opened:
        client.close()
    edited.home.end_all()


def sources(edited: Edited, search_id: str) -> list[str]:
    """The text of each trial."""
    store = Store.open(edited.url)
    try:
        return [store.source(item.source_digest).text for item in store.trials(search_id).items]
    finally:
        store.close()


def measured(edited: Edited, whole: dict, *, confirmed: bool = True) -> str:
    """A measured copy of the finished search, with the same files; its winner 1 is confirmed."""
    store = Store.open(edited.url)
    plan = dataclasses.replace(store.plan(whole["id"]), target="cuda:0")
    search = store.submit(plan, store.frozen_files(whole["id"]))
    claim = store.claim("worker", values.LEASE_S, search.id)
    environment = {"device": "h200", "toolchain": "nvrtc 13.0", CHECKS: str(CHECKS_VERSION)}
    store.describe(claim, environment)
    record_winner(store, claim, plan, confirmed)
    store.finish(claim, Ended.COMPLETED, "the budget is spent")
    store.close()
    return search.id


def record_winner(store: Store, claim: Claim, plan: SearchPlan, confirmed: bool) -> None:
    for number in (0, 1):
        candidate = dataclasses.replace(
            values.candidate(number),
            kernel="axpy",
            template="right",
            parameters=(("threads", 128), ("per_thread", 1 + number)),
        )
        trial = dataclasses.replace(
            values.trial(number, values.accepted(number, 100.0 - 10 * number)), candidate=candidate
        )
        store.begin(claim, number, values.Proposal(candidate, trial.sampler))
        store.record(claim, trial, values.source(number))
    store.record_confirmation(
        claim, dataclasses.replace(values.confirmation(1, confirmed), checks=CHECKS_THEN)
    )


CHECKS_THEN: tuple[tuple[str, str], ...] = ()


class TestOneMoreWorkload:
    @pytest.mark.slow
    def test_the_bundle_is_the_same_bytes_also_over_rest(self, edited, whole, rest):
        edited.reset()
        before = edited.bundle(whole["id"])
        edited.append(WORKLOAD)
        assert edited.bundle(whole["id"]) == before
        client = rest()
        assert contents(client._get(f"/api/v1/searches/{whole['id']}/bundle").content) == before
        assert client.best(whole["id"])["source_digest"] == whole["best"]["source_digest"]

    def test_a_paused_search_goes_on(self, edited, whole, paused):
        edited.append(WORKLOAD)
        ended = edited.home.run("search", "--resume", paused, "--json")
        assert ended.code == 0 and ended.json["status"] == "completed", ended.err
        assert sources(edited, paused)[0] == sources(edited, whole["id"])[0]

    def test_a_winner_can_be_confirmed_and_what_measured_nothing_is_refused_for_that(
        self, edited, whole, rest
    ):
        edited.reset()
        search = measured(edited, whole)
        edited.append(WORKLOAD)
        client = rest()
        assert client.control(search, "confirm")["status"] == "queued"
        refused = edited.home.run("confirm", whole["id"])
        assert refused.code == 2 and "measured no correct candidate" in refused.err

    @pytest.mark.slow
    def test_it_can_be_searched(self, edited):
        edited.reset()
        edited.append(WORKLOAD)
        ended = edited.home.run("search", "axpy", "--workload", "added", "--trials", "1", "--json")
        assert ended.code == 0 and ended.json["workloads"] == ["added"], ended.err


class TestAnotherText:
    @pytest.mark.slow
    def test_an_interrupted_search_goes_on_with_the_text_that_it_began_with(
        self, edited, whole, interrupted
    ):
        edited.edit_template()
        ended = edited.home.run("search", "--resume", interrupted, "--json")
        assert ended.code == 0 and ended.json["trials_done"] == 4, ended.err
        texts = sources(edited, interrupted)
        assert texts[0] == sources(edited, whole["id"])[0] and not any(
            "edited since" in text for text in texts
        )
        bundled = edited.bundle(interrupted)
        assert b"edited since" not in bundled["template.cu.j2"] + bundled["kernel.cu"]
        assert "edited since" in (edited.folder / "right.cu.j2").read_text()

    @pytest.mark.slow
    def test_a_new_search_has_the_new_text(self, edited, whole):
        edited.reset()
        edited.edit_template()
        ended = edited.home.run(*RANDOM, "--trials", "1")
        assert ended.code == 0 and b"edited since" in edited.bundle(ended.json["id"])["kernel.cu"]

    @pytest.mark.slow
    def test_a_bundle_of_earlier_files_is_verified_without_trusting_it_anew(self, edited, whole):
        edited.reset()
        edited.bundle(whole["id"])
        (edited.folder / "reference.py").write_text(
            (KERNELS / "axpy" / "reference.py").read_text() + "\n# edited\n"
        )
        edited.edit_template()
        ended = edited.home.run("verify", "made.zip", "--json")
        assert ended.code == 0, ended.out + ended.err
        findings = {item["name"]: item["finding"] for item in ended.json["items"]}
        assert findings["compile"] == findings["correctness"] == "agrees"


class TestAKernelThatIsGone:
    @pytest.mark.slow
    def test_everything_of_its_searches_can_still_be_had(self, edited, whole, rest):
        edited.reset()
        before = edited.bundle(whole["id"])
        shutil.rmtree(edited.folder)
        assert edited.bundle(whole["id"]) == before
        client = rest()
        assert client.best(whole["id"])["number"] == whole["best"]["number"]
        for page in (
            f"/searches/{whole['id']}",
            f"/searches/{whole['id']}/trials/0",
            "/champions",
            "/",
        ):
            answer = httpx.get(client.url + page, trust_env=False, follow_redirects=True)
            assert answer.status_code == 200, page

    def test_a_paused_search_goes_on(self, edited, whole, paused):
        shutil.rmtree(edited.folder)
        ended = edited.home.run("search", "--resume", paused, "--json")
        assert ended.code == 0, ended.err
        assert sources(edited, paused)[0] == sources(edited, whole["id"])[0]


class TestChampions:
    def test_a_new_check_asks_for_a_recheck_and_retires_nobody(
        self, edited, whole, rest, monkeypatch
    ):
        edited.reset()
        from greenfast.search.kernels.catalogue import load_kernel
        from greenfast.search.kernels.identity import passed_checks

        monkeypatch.setattr("test_history.CHECKS_THEN", passed_checks(load_kernel(edited.folder)))
        search = measured(edited, whole)
        assert edited.home.run("promote", search, "--replace").code == 0
        assert "recheck" not in edited.home.run("champions").err
        edited.append(WORKLOAD + CHECK)
        note = "recheck asked: 1 check is newer than this confirmation"
        assert note in edited.home.run("champions").err
        client = rest()
        (champion,) = [
            champion for champion in client.champions() if champion["trial"]["search_id"] == search
        ]
        assert champion["replaced_at"] is None and champion["recheck"] == note
        for page in ("/champions", f"/searches/{search}"):
            text = httpx.get(client.url + page, trust_env=False, follow_redirects=True).text
            assert (
                "1 check is newer than this confirmation" in text and "of earlier files" not in text
            ), page

    def test_the_scope_of_a_new_search_finds_it(self, edited, whole):
        """The scope gives a measured search its default baseline, whatever workloads it has."""
        from greenfast.search.kernels.catalogue import Catalogue
        from greenfast.search.loop.plan import SearchRequest, make_plan
        from greenfast.search.loop.scope import scope_of

        edited.reset()
        environment = {"device": "h200", "toolchain": "nvrtc 13.0"}
        request = SearchRequest("axpy", workloads=("line",), seed=1)
        before = scope_of(make_plan(request, Catalogue([edited.templates])), environment)
        edited.append(WORKLOAD + CHECK)
        assert (
            scope_of(make_plan(request, Catalogue([edited.templates])), environment).digest
            == before.digest
        )
        edited.edit_template()
        assert (
            scope_of(make_plan(request, Catalogue([edited.templates])), environment).digest
            != before.digest
        )


class TestAKilledWorker:
    @pytest.mark.slow
    def test_resume_says_until_when_it_waits_and_takes_over_when_the_lease_ends(
        self, edited, whole
    ):
        edited.reset()
        process = edited.home.start(
            *RANDOM, "--trials", "4", GREENFAST_WINDOW="1", GREENFAST_LEASE_S="3"
        )
        search_id = process.stderr.readline().split()[1].rstrip(":")
        process.stderr.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        ended = edited.home.run("search", "--resume", search_id, "--json")
        assert ended.code == 0 and ended.json["status"] == "completed", ended.err
        assert "its last sign of life" in ended.err and "continues here at" in ended.err
        assert "no worker runs" in ended.err and ended.json["trials_done"] == 4

    def test_ctrl_c_ends_the_waiting(self, edited, whole):
        edited.reset()
        process = edited.home.start(
            *RANDOM, "--trials", "4", GREENFAST_WINDOW="1", GREENFAST_LEASE_S="600"
        )
        search_id = process.stderr.readline().split()[1].rstrip(":")
        process.stderr.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        waiting = edited.home.start("search", "--resume", search_id, "--json")
        assert "continues here at" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(30) == 130
        assert json.loads(waiting.stdout.read())["status"] == "running"
