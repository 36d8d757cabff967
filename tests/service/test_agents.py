"""Programs that write sources: a scripted agent over MCP, and a proposer of `greenfast evolve`."""

from __future__ import annotations

import json
import sys

import pytest
from service_home import run_async

from greenfast.app.settings import Settings
from greenfast.app.views.submitting import submission_texts
from greenfast.app.wiring import Services
from greenfast.db.store import Store

PROPOSER = f"{sys.executable} -m greenfast.propose_mutation"
BOTH_SUBMISSIONS = 2


async def agent(client):
    """An agent that submits a mistake, reads the feedback, and corrects it."""
    talk = {"tools": [tool.name for tool in (await client.list_tools()).tools]}

    async def call(name, **arguments):
        answer = await client.call_tool(name, arguments)
        return answer.content[0].text if answer.is_error else answer.structured_content

    talk["kernels"] = await call("list_kernels")
    talk["workloads"] = await call("list_workloads", kernel="axpy")
    talk["spec"] = await call("get_spec", kernel="axpy")
    best = talk["best"] = await call("best_source", kernel="axpy")
    mistake = best["source"].replace("+ b", "- b")
    talk["wrong"] = await call("submit", kernel="axpy", source=mistake, launch=best["launch"])
    wrong = f"{talk['wrong']['id']}/{talk['wrong']['trial']}"
    talk["explained"] = await call("explain", trial=wrong)
    talk["negatives"] = await call("search_negatives", kernel="axpy", text="correctness")
    talk["right"] = await call(
        "submit",
        kernel="axpy",
        source="// corrected\n" + best["source"],
        launch=best["launch"],
        parent=talk["wrong"]["source_digest"],
        model="scripted",
    )
    right = f"{talk['right']['id']}/{talk['right']['trial']}"
    talk["compared"] = await call("compare", a=wrong, b=right)
    talk["refused"] = await call("get_spec", kernel="no_such")
    talk["best_now"] = await call("best_source", kernel="axpy")
    return talk


@pytest.fixture(scope="module")
def folder(tmp_path_factory, artifacts):
    from service_home import Home

    home = Home(tmp_path_factory.mktemp("agents") / "data", artifacts)
    yield home
    home.end_all()


@pytest.fixture(scope="module")
def talk(folder):
    mcp = pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "greenfast", "mcp"],
        env=folder.environment,
        cwd=folder.data,
    )

    async def talk():
        async with mcp.Client(server) as client:
            return await agent(client)

    return run_async(talk())


def test_an_agent_reads_what_it_needs(talk):
    assert set(talk["tools"]) == {
        "list_kernels",
        "list_workloads",
        "get_spec",
        "best_source",
        "submit",
        "explain",
        "search_negatives",
        "compare",
    }
    assert "axpy" in [kernel["name"] for kernel in talk["kernels"]["kernels"]]
    assert [each["name"] for each in talk["workloads"]["workloads"]] == ["line", "odd"]
    assert [each["ctype"] for each in talk["spec"]["arguments"]][2:] == ["int", "float", "float"]
    assert "def " in talk["spec"]["reference"] and talk["spec"]["device"]["sm"] == 90
    assert talk["best"]["digest"] is None and "axpy_right" in talk["best"]["source"]


def test_an_agent_corrects_its_mistake_by_the_feedback(talk):
    assert talk["wrong"]["verdict"] == "rejected" and talk["explained"] == talk["wrong"]
    assert any(item["kind"] == "values" for item in talk["wrong"]["feedback"])
    assert len(talk["negatives"]["negatives"]) == 1
    assert talk["right"]["verdict"] == "green" and talk["right"]["model"] == "scripted"
    assert talk["right"]["parent"] == talk["wrong"]["source_digest"]
    assert talk["compared"]["b"]["verdict"] == "green"
    assert "unknown_kernel" in talk["refused"]
    assert talk["best_now"]["verdict"] == "green" and talk["best_now"]["digest"]


EVOLVE = ("evolve", "axpy", "--run", "tried", "--json")


@pytest.fixture(scope="module")
def evolved(folder):
    """The report of the run `tried`."""
    first = folder.run(*EVOLVE, "--propose", PROPOSER, "--trials", str(BOTH_SUBMISSIONS))
    assert first.code == 0, first.err
    return first.json


@pytest.mark.slow
def test_a_run_evolves_continues_and_outlives_its_proposer(folder, evolved):
    assert evolved["trials"] == BOTH_SUBMISSIONS and evolved["best"]["time_kind"] == "modelled"
    assert evolved["best"]["verdict"] == "green"
    again = folder.run(*EVOLVE, "--propose", "false", "--trials", str(BOTH_SUBMISSIONS + 5))
    assert again.code == 2 and again.json["error"]["code"] == "no_proposals"
    store = Store.open(f"sqlite:///{folder.data / 'greenfast.sqlite3'}")
    try:
        rows = store.submissions("axpy").items
        mine = [row for row in rows if row.name.startswith("evolve tried: ")]
        assert [row.status for row in mine] == ["completed"] * len(mine) and mine
        files = store.frozen_files(mine[0].id)
        record = next(text for path, text in files.files if path.endswith("submission.json"))
        assert json.loads(record)["author"] == "greenfast evolve"
    finally:
        store.close()


@pytest.mark.slow
@pytest.mark.usefixtures("evolved")
def test_a_continued_run_remembers_what_others_had_judged(folder, tmp_path):
    """Its two sources are known from another run, so nothing is judged, and nothing forgotten."""
    services = Services(Settings(data=folder.data))
    try:
        rows = services.store.submissions("axpy").items
        latest = next(row for row in rows if row.name.startswith("evolve tried: "))
        source, launch = submission_texts(services, latest.id)
    finally:
        services.close()
    known = tmp_path / "known.json"
    known.write_text(json.dumps({"source": source, "launch": launch}))
    command = ("evolve", "axpy", "--run", "other", "--json", "--trials", "2")
    first = folder.run(*command, "--propose", f"cat {known}")
    assert first.code == 0, first.err
    again = folder.run(*command, "--propose", "false")
    assert again.code == 0, again.err
    assert again.json["ids"] == first.json["ids"] and len(again.json["ids"]) == 2
