"""The ledger through the command, REST and the pages, over one real search on the emulator."""

from __future__ import annotations

import json

import httpx
import pytest
from planted_kernel import BUGS, write_planted
from service_home import Home, until
from sqlalchemy import text

from greenfast.app.cli.main import run
from greenfast.app.views.ledger_memory import reused_trials
from greenfast.client import Client
from greenfast.db.ledger import NoteKind
from greenfast.db.store import Store

SEARCH = ("search", "axpy", "--strategy", "random", "--seed", "1", "--json")


@pytest.fixture(scope="module")
def ledger_home(tmp_path_factory, artifacts):
    """A database with one completed search over a template with planted mistakes."""
    folder = tmp_path_factory.mktemp("ledger")
    home = Home(folder / "data", artifacts)
    home.environment["GREENFAST_TEMPLATE_PATH"] = str(write_planted(folder / "templates"))
    done = home.run(*SEARCH)
    assert done.code == 0, done.err
    home.search_id, home.first = done.json["id"], done
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


def numbers_of(home: Home, **values: object) -> list[int]:
    """The numbers of the trials with these parameter values."""
    store = store_of(home)
    trials = store.trials(home.search_id, limit=100).items
    store.close()
    wanted = values.items()
    return [each.number for each in trials if wanted <= each.parameters.items()]


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
    assert arms == ["threads=64", *(f"bug={bug}" for bug in BUGS)] and report["complete"]
    assert {each["effect"] for each in report["findings"]} == {"unclear"}
    alone, *wrong = report["findings"]
    assert "they tell nothing" in alone["sentence"]
    for each, (bug, (stage, _)) in zip(wrong, BUGS.items(), strict=True):
        assert f"the kernel is not correct with bug={bug} ({stage}:" in each["sentence"]
    assert "modelled, not measured" in report["caveats"][0]
    store = store_of(ledger_home)
    before = {note.name: note for note in store.notes(ledger_home.search_id, NoteKind.ARM, 0)}
    with store._database.writing() as session:  # as a kill before the last arm would leave it
        session.execute(text("DELETE FROM ledger_notes WHERE name = 'bug=no_tail'"))
    _, out, _ = greenfast("ablate", name, "--stored", "--json")
    assert not json.loads(out)["complete"] and len(json.loads(out)["findings"]) == 4
    _, _, err = greenfast("ablate", name, "--json")
    assert err.count("bug=none:") == 1  # one arm was measured, the others were read
    after = {note.name: note for note in store.notes(ledger_home.search_id, NoteKind.ARM, 0)}
    assert set(after) == set(before)
    assert all(after[arm] == before[arm] for arm in before if arm != "bug=no_tail")
    store.close()


@pytest.fixture(scope="module")
def served(ledger_home):
    _, url = ledger_home.serve("--workers", "0")
    with Client(url) as client:
        client.url = url
        yield client


def test_the_ablation_over_rest_and_on_its_page(served, ledger_home):
    search, other = ledger_home.search_id, numbers_of(ledger_home, bug="none")[-1]
    missing = httpx.get(f"{served.url}/api/v1/searches/{search}/ablation?trial={other}")
    assert missing.status_code == 404 and missing.json()["code"] == "no_ablation"
    started = httpx.post(f"{served.url}/api/v1/searches/{search}/ablation?trial={other}")
    assert started.status_code == 202 and started.json()["state"] == "running"

    def complete():
        answer = httpx.get(served.url + started.headers["location"])
        return answer.status_code == 200 and answer.json()["complete"] and answer.json()

    report = until(complete, "the ablation")
    assert report["number"] == other and report["findings"]
    page = httpx.get(f"{served.url}/searches/{search}/ablation?trial={other}").text
    assert "they tell nothing" in page and "What this cannot say" in page
    for path in ("/searches/s_aaaaaaaaaaaa/ablation", f"/searches/{search}/ablation?trial=77"):
        answer = httpx.get(served.url + path, headers={"accept": "text/html"})
        assert answer.status_code == 404, path


def test_a_wrong_trial_cannot_be_ablated(greenfast, ledger_home):
    wrong = numbers_of(ledger_home, bug="offset")[0]
    code, _, err = greenfast("ablate", f"{ledger_home.search_id}/{wrong}")
    assert code == 2 and "is not correct" in err


def test_each_planted_mistake_is_rejected_at_its_stage_with_a_readable_sentence(ledger_home):
    store = store_of(ledger_home)
    trials = store.trials(ledger_home.search_id, limit=100).items
    assert len(trials) == 2 * (1 + len(BUGS))
    for trial in trials:
        bug = trial.parameters["bug"]
        if bug == "none":
            assert trial.verdict == "green"
            continue
        stage, reasons = BUGS[bug]
        assert (trial.verdict, trial.stage) == ("rejected", stage), trial.sentence
        assert trial.reason in reasons
        assert 20 < len(trial.finding) < 400 and "\n" not in trial.finding
    store.close()


def test_a_wrong_trial_is_explained_by_its_ladder_its_error_and_its_findings(
    greenfast, ledger_home
):
    search = ledger_home.search_id
    offset = next(
        number
        for number in numbers_of(ledger_home, bug="offset")
        if number in numbers_of(ledger_home, threads=64)
    )
    code, out, err = greenfast("explain", f"{search}/{offset}", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert report["start"] == "planted:plain" and report["not_probed"]
    assert [(step["changed"], step["outcome"]) for step in report["rungs"]] == [
        (["threads=64"], "right"),
        (["bug=offset"], "wrong"),
    ]
    assert "the first that fails sets bug=offset" in report["conclusion"]
    assert any("100.0%" in each and "everywhere" in each for each in report["error_sentences"])
    assert "the values are too large throughout" in report["error_sentences"]
    assert report["problems"] == []
    past = numbers_of(ledger_home, bug="unwritten_shared")[0]
    code, out, _ = greenfast("explain", f"{search}/{past}", "--json")
    report = json.loads(out)
    assert report["findings_of"] == "the safety gate" and "uninitialised" in report["findings"][0]
    assert "planted.cu.j2" in report["conclusion"]
    assert report["rungs"][-1]["changed"] == ["bug=unwritten_shared"]
    code, out, _ = greenfast("explain", f"{search}/{past}")
    assert code == 0 and "unwritten_shared" in out


def test_what_is_not_wrong_is_not_explained_and_the_sentence_says_why(greenfast, ledger_home):
    search = ledger_home.search_id
    for bug, words in (("none", "is green, not rejected"), ("does_not_compile", "at compile")):
        number = numbers_of(ledger_home, bug=bug)[0]
        code, _, err = greenfast("explain", f"{search}/{number}")
        assert code == 2 and words in err, err
    assert greenfast("explain", search)[0] == 2


def test_the_page_of_a_wrong_trial_explains_it_and_rest_has_the_same(served, ledger_home):
    search, number = ledger_home.search_id, numbers_of(ledger_home, bug="no_tail")[0]
    path = f"/searches/{search}/trials/{number}"
    before = httpx.get(served.url + path)
    assert before.status_code == 200 and "Look into it" in before.text
    api = f"{served.url}/api/v1{path}/explanation"
    assert httpx.get(api).json()["code"] == "no_explanation"
    assert httpx.post(api).status_code == 202
    report = until(lambda: (r := httpx.get(api)).status_code == 200 and r.json(), "explanation")
    assert report["conclusion"]
    page = httpx.get(served.url + path).text
    assert "Why it is wrong" in page and "bug=no_tail" in page
    good = numbers_of(ledger_home, bug="none")[0]
    answer = httpx.post(f"{served.url}/api/v1/searches/{search}/trials/{good}/explanation")
    assert answer.status_code == 422 and answer.json()["code"] == "nothing_to_explain"


def test_an_identical_second_search_evaluates_nothing_twice(ledger_home):
    again = ledger_home.run(*SEARCH)
    assert again.code == 0, again.err
    total = 2 * (1 + len(BUGS))
    assert f"the ledger knows {total} trials of 1 search of this scope" in again.err
    assert f"{total} trials were known from earlier searches and not evaluated again" in again.err
    store, second = store_of(ledger_home), again.json["id"]
    reused = reused_trials(store, second)
    assert sorted(reused) == list(range(total))
    rows = [store.trials(name, limit=100).items for name in (ledger_home.search_id, second)]
    first = {row.candidate_digest: row for row in rows[0]}
    for row in rows[1]:
        same = first[row.candidate_digest]
        assert (reused[row.number].search_id, reused[row.number].number) == (
            ledger_home.search_id,
            same.number,
        )
        assert row.duration_s == 0.0 and (row.verdict, row.reason) == (same.verdict, same.reason)
        assert row.time_median_us == same.time_median_us
        assert row.ratio_to_baseline == same.ratio_to_baseline
    store.close()


def test_another_baseline_or_a_request_to_evaluate_anew_repeats_no_comparison(ledger_home):
    fresh = ledger_home.run(*SEARCH, "--trials", "3", "--fresh")
    assert fresh.code == 0 and "the ledger knows" not in fresh.err
    none = ledger_home.run(*SEARCH, "--trials", "3", "--baseline", "none")
    assert none.code == 0, none.err
    store = store_of(ledger_home)
    reused = reused_trials(store, none.json["id"])
    for row in store.trials(none.json["id"]).items:
        assert (row.number in reused) == (row.verdict == "rejected" and row.stage != "safety")
    store.close()
