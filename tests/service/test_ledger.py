"""The ledger through the command, REST and the pages, over one real search on the emulator."""

from __future__ import annotations

import json

import httpx
import pytest
from service_home import Home, until
from sqlalchemy import text

from greenfast.app.cli.main import run
from greenfast.client import Client
from greenfast.db.ledger import NoteKind
from greenfast.db.store import Store


@pytest.fixture(scope="module")
def ledger_home(tmp_path_factory, artifacts):
    """A database with one completed search of axpy's correct template."""
    home = Home(tmp_path_factory.mktemp("ledger") / "data", artifacts)
    done = home.run(
        "search", "axpy", "--template", "right", "--trials", "3", "--seed", "1", "--json"
    )
    assert done.code == 0, done.err
    home.search_id = done.json["id"]
    yield home
    home.end_all()


@pytest.fixture
def greenfast(ledger_home, monkeypatch, capsys):
    """Runs a command in this process: (exit code, stdout, stderr)."""
    for name, value in ledger_home.environment.items():
        if name.startswith("GREENFAST_"):
            monkeypatch.setenv(name, value)

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(arguments))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return command


def store_of(home: Home) -> Store:
    return Store.open(f"sqlite:///{home.data / 'greenfast.sqlite3'}")


def test_an_ablation_is_stored_arm_by_arm_and_goes_on_where_it_was_interrupted(
    greenfast, ledger_home
):
    name = f"{ledger_home.search_id}/0"
    code, _, err = greenfast("ablate", name, "--stored")
    assert code == 2 and "there is no ablation of" in err
    code, out, err = greenfast("ablate", name, "--json")
    assert code == 0, err
    report = json.loads(out)
    arms = [f"{each['parameter']}={each['after']}" for each in report["findings"]]
    assert arms == ["threads=64", "threads=256", "per_thread=2"] and report["complete"]
    assert {each["effect"] for each in report["findings"]} == {"unclear"}
    assert all("they tell nothing" in each["sentence"] for each in report["findings"])
    assert "modelled, not measured" in report["caveats"][0]
    store = store_of(ledger_home)
    before = {note.name: note for note in store.notes(ledger_home.search_id, NoteKind.ARM, 0)}
    with store._database.writing() as session:  # as a kill before the last arm would leave it
        session.execute(text("DELETE FROM ledger_notes WHERE name = 'per_thread=2'"))
    _, out, _ = greenfast("ablate", name, "--stored", "--json")
    assert not json.loads(out)["complete"] and len(json.loads(out)["findings"]) == 2
    _, _, err = greenfast("ablate", name, "--json")
    assert err.count("unclear") == 1  # one arm was measured, the others were read
    after = {note.name: note for note in store.notes(ledger_home.search_id, NoteKind.ARM, 0)}
    assert set(after) == set(before)
    assert all(after[arm] == before[arm] for arm in ("", "threads=64", "threads=256"))
    store.close()


@pytest.fixture(scope="module")
def served(ledger_home):
    _, url = ledger_home.serve("--workers", "0")
    with Client(url) as client:
        client.url = url
        yield client


def test_the_ablation_over_rest_and_on_its_page(served, ledger_home):
    search = ledger_home.search_id
    missing = httpx.get(f"{served.url}/api/v1/searches/{search}/ablation?trial=1")
    assert missing.status_code == 404 and missing.json()["code"] == "no_ablation"
    started = httpx.post(f"{served.url}/api/v1/searches/{search}/ablation?trial=1")
    assert started.status_code == 202 and started.json()["state"] == "running"

    def complete():
        answer = httpx.get(served.url + started.headers["location"])
        return answer.status_code == 200 and answer.json()["complete"] and answer.json()

    report = until(complete, "the ablation")
    assert report["number"] == 1 and report["findings"]
    page = httpx.get(f"{served.url}/searches/{search}/ablation?trial=1").text
    assert "they tell nothing" in page and "What this cannot say" in page
    for other in ("/searches/s_aaaaaaaaaaaa/ablation", f"/searches/{search}/ablation?trial=77"):
        answer = httpx.get(served.url + other, headers={"accept": "text/html"})
        assert answer.status_code == 404, other


def test_a_wrong_trial_cannot_be_ablated(greenfast, ledger_home):
    code, _, err = greenfast("ablate", f"{ledger_home.search_id}/9")
    assert code == 2 and "has no trial 9" in err
