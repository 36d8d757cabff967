"""The ledger through the command, REST and the pages, over one real search on the emulator."""

from __future__ import annotations

import hashlib
import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import httpx
import pytest
from planted_kernel import BUGS, write_planted
from service_home import Home, until
from sqlalchemy import text

from greenfast.app.cli.main import run
from greenfast.app.views.ledger_exchange import export_lines, foreign_out, import_file
from greenfast.app.views.ledger_memory import reused_trials
from greenfast.client import Client
from greenfast.db.ledger import NoteKind
from greenfast.db.store import Store
from greenfast.search.errors import UsageError

PATIENCE_S = 600  # a loaded machine is no failure
SEARCH = ("search", "axpy", "--strategy", "random", "--seed", "1", "--json")


def run_here(home: Home, patch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    """A command in this process, where no deadline can pass under load."""
    for name, value in home.environment.items():
        if name.startswith("GREENFAST_"):
            patch.setenv(name, value)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(list(arguments))
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def ledger_home(tmp_path_factory, artifacts):
    """A database with one completed search over a template with planted mistakes."""
    folder = tmp_path_factory.mktemp("ledger")
    home = Home(folder / "data", artifacts)
    home.environment["GREENFAST_TEMPLATE_PATH"] = str(write_planted(folder / "templates"))
    with pytest.MonkeyPatch.context() as patch:
        code, out, err = run_here(home, patch, *SEARCH)
    assert code == 0, err
    home.search_id = json.loads(out)["id"]
    yield home
    home.end_all()


@pytest.fixture
def greenfast(ledger_home, monkeypatch):
    """Runs a command in this process: (exit code, stdout, stderr)."""
    return lambda *arguments: run_here(ledger_home, monkeypatch, *arguments)


def store_of(home: Home) -> Store:
    return Store.open(f"sqlite:///{home.data / 'greenfast.sqlite3'}")


def numbers_of(home: Home, **values: object) -> list[int]:
    """The numbers of the trials with these parameter values."""
    store = store_of(home)
    trials = store.trials(home.search_id, limit=100).items
    store.close()
    wanted = values.items()
    return [each.number for each in trials if wanted <= each.parameters.items()]


@pytest.mark.slow
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
    assert "they prove nothing" in alone["sentence"]
    for each, (bug, (stage, _)) in zip(wrong, BUGS.items(), strict=True):
        outcome = "not correct" if stage in ("correctness", "safety") else "rejected"
        assert f"the kernel is {outcome} with bug={bug} ({stage}:" in each["sentence"]
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


@pytest.mark.slow
def test_the_ablation_over_rest_and_on_its_page(served, ledger_home):
    search, other = ledger_home.search_id, numbers_of(ledger_home, bug="none")[-1]
    missing = httpx.get(f"{served.url}/api/v1/searches/{search}/ablation?trial={other}")
    assert missing.status_code == 404 and missing.json()["code"] == "no_ablation"
    started = httpx.post(f"{served.url}/api/v1/searches/{search}/ablation?trial={other}")
    assert started.status_code == 202 and started.json()["state"] == "running"

    def complete():
        answer = httpx.get(served.url + started.headers["location"])
        return answer.status_code == 200 and answer.json()["complete"] and answer.json()

    report = until(complete, "the ablation", PATIENCE_S)
    assert report["number"] == other and report["findings"]
    page = httpx.get(f"{served.url}/searches/{search}/ablation?trial={other}").text
    assert "they prove nothing" in page and "What this does not show" in page
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


@pytest.mark.slow
def test_the_page_of_a_wrong_trial_explains_it_and_rest_has_the_same(served, ledger_home):
    search, number = ledger_home.search_id, numbers_of(ledger_home, bug="no_tail")[0]
    path = f"/searches/{search}/trials/{number}"
    before = httpx.get(served.url + path)
    assert before.status_code == 200 and "Explain it" in before.text
    api = f"{served.url}/api/v1{path}/explanation"
    assert httpx.get(api).json()["code"] == "no_explanation"
    assert httpx.post(api).status_code == 202
    report = until(
        lambda: (r := httpx.get(api)).status_code == 200 and r.json(), "explanation", PATIENCE_S
    )
    assert report["conclusion"]
    page = httpx.get(served.url + path).text
    assert "Why it is wrong" in page and "bug=no_tail" in page
    good = numbers_of(ledger_home, bug="none")[0]
    answer = httpx.post(f"{served.url}/api/v1/searches/{search}/trials/{good}/explanation")
    assert answer.status_code == 422 and answer.json()["code"] == "nothing_to_explain"


def test_an_identical_second_search_evaluates_nothing_twice(greenfast, ledger_home):
    code, out, err = greenfast(*SEARCH)
    assert code == 0, err
    total = 2 * (1 + len(BUGS))
    assert f"the ledger knows {total} trials of 1 search of this scope" in err
    assert f"{total} trials were known from earlier searches and not evaluated again" in err
    store, second = store_of(ledger_home), json.loads(out)["id"]
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


def test_another_baseline_or_a_request_to_evaluate_anew_repeats_no_comparison(
    greenfast, ledger_home
):
    code, _, err = greenfast(*SEARCH, "--trials", "2", "--fresh")
    assert code == 0 and "the ledger knows" not in err
    code, out, err = greenfast(*SEARCH, "--trials", "3", "--baseline", "none")
    assert code == 0, err
    none = json.loads(out)["id"]
    store = store_of(ledger_home)
    reused = reused_trials(store, none)
    for row in store.trials(none).items:
        assert (row.number in reused) == (row.verdict == "rejected" and row.stage != "safety")
    store.close()


def test_negatives_answer_by_what_was_tried_and_are_grouped_into_themes(
    greenfast, served, ledger_home
):
    search = ledger_home.search_id

    def listed(*filters: str) -> set[tuple[str, int]]:
        code, out, err = greenfast("negatives", "--search", search, "--json", *filters)
        assert code == 0, err
        rows = json.loads(out)["negatives"]
        assert all(row["expired"] == "" for row in rows)
        return {(row["parameters"]["bug"], row["parameters"]["threads"]) for row in rows}

    every = {(bug, threads) for bug in BUGS for threads in (64, 128)}
    assert listed() == every
    assert listed("--feature", "threads") == {pair for pair in every if pair[1] == 64}
    assert listed("--set", "bug=offset", "--set", "threads=64") == {("offset", 64)}
    assert listed("--reason", "uninitialised") == {("unwritten_shared", n) for n in (64, 128)}
    assert listed("--text", "no_such_function") == {("does_not_compile", n) for n in (64, 128)}
    for filters in (("--device", "h200"), ("--dtype", "fp16"), ("--workload", "line")):
        assert listed(*filters) == every
        assert listed(filters[0], filters[1] + "0") == set()
    answer = httpx.get(
        f"{served.url}/api/v1/negatives",
        params={"search_id": search, "where": "bug=offset", "feature": "threads"},
    )
    assert [each["parameters"]["threads"] for each in answer.json()["items"]] == [64]
    page = httpx.get(f"{served.url}/negatives?search={search}&where=bug%3Doffset").text
    assert page.count('class="changes"') == 2
    near = httpx.get(f"{served.url}/api/v1/searches/{search}/trials/0/near").json()
    assert {(each["parameter"], each["value"]) for each in near} == {("bug", bug) for bug in BUGS}


@pytest.mark.slow
def test_a_changed_kernel_expires_advice_and_a_recheck_stands_beside_the_record(
    greenfast, ledger_home
):
    file = Path(ledger_home.environment["GREENFAST_TEMPLATE_PATH"]) / "axpy" / "planted.cu.j2"
    number = numbers_of(ledger_home, bug="offset")[0]
    name, text_before = f"{ledger_home.search_id}/{number}", file.read_text()
    file.write_text(text_before.replace("+ b + 1.0f);", "+ b);"))  # somebody corrected it
    try:
        code, out, _ = greenfast("negatives", "--set", "bug=offset", "--json")
        expired = {row["expired"] for row in json.loads(out)["negatives"]}
        assert expired == {"the files of kernel axpy have changed since"}
        code, out, err = greenfast("recheck", name, "--json")
    finally:
        file.write_text(text_before)
    assert code == 1, err
    (result,) = json.loads(out)
    assert (result["before"], result["verdict"], result["now"], result["holds"]) == (
        "correctness: wrong_values",
        "green",
        "",
        False,
    )
    store = store_of(ledger_home)
    assert store.trial(ledger_home.search_id, number).verdict == "rejected"  # the record stays
    store.close()
    code, out, _ = greenfast("recheck", name, "--json")
    assert code == 0 and json.loads(out)[0]["holds"]
    good = numbers_of(ledger_home, bug="none")[0]
    code, _, err = greenfast("recheck", f"{ledger_home.search_id}/{good}")
    assert "is not a negative" in err


NUMBERED = re.compile(r"\[([^\]]+)\]\(#(s_\w+)-(\d+)\)")


def test_every_number_of_a_report_is_that_of_the_trial_that_it_links_to(greenfast, ledger_home):
    search = ledger_home.search_id
    code, out, err = greenfast("report", search)
    assert code == 0, err
    store = store_of(ledger_home)
    rows = {row.number: row for row in store.trials(search, limit=100).items}
    links = NUMBERED.findall(out)
    assert len(links) >= 4 and {name for _, name, _ in links} == {search}
    kinds = set()
    for text_of_link, _, number in links:
        row = rows[int(number)]
        expected = {
            "number": str(row.number),
            "name": f"trial {row.number}",
            "time": f"{row.time_median_us:.2f} us" if row.time_median_us else None,
            "ratio": f"{row.ratio_to_baseline:.3f}" if row.ratio_to_baseline else None,
        }
        kind = next((kind for kind, value in expected.items() if value == text_of_link), None)
        assert kind is not None, (text_of_link, number)
        assert f'<a id="{search}-{number}"></a>' in out  # the link leads somewhere
        kinds.add(kind)
    assert kinds == {"number", "name", "time", "ratio"}
    store.close()


def test_a_report_counts_what_the_store_holds_and_puts_the_expectation_to_the_result(
    greenfast, ledger_home
):
    code, out, err = greenfast(
        *SEARCH,
        "--hypothesis",
        "64 <b>threads</b> win",
        "--expected-gain",
        "0.1",
        "--cost",
        "a day",
    )
    assert code == 0, err
    search = json.loads(out)["id"]
    (report,) = json.loads(greenfast("report", search, "--json")[1])["searches"]
    store = store_of(ledger_home)
    rows = store.trials(search, limit=100).items
    assert report["trials"] == report["reused"] == len(rows) == 2 * (1 + len(BUGS))
    for step in report["funnel"]:
        passed = {"compile": "ptxas", "correctness": "performance"}.get(step["stage"])
        beyond = next((each for each in report["funnel"] if each["stage"] == passed), None)
        assert beyond is None or step["passed"] == beyond["reached"]
    wrong = [row for row in rows if row.verdict == "rejected"]
    assert sum(report["by_reason"].values()) == len(wrong)
    assert all(
        report["by_reason"][reason] == sum(row.reason == reason for row in wrong)
        for reason in report["by_reason"]
    )
    best = store.best(search)
    assert report["winner"] == best.number and report["question"]["expected_gain"] == 0.1
    gain = None if best.is_baseline else 1 - best.ratio_to_baseline
    assert report["question"]["gain"] == gain
    for theme in report["themes"]:
        having = [row for row in rows if theme["values"].items() <= row.parameters.items()]
        assert theme["trials"] == len(having) and theme["numbers"] == [r.number for r in having]
        assert theme["correct"] == sum(row.verdict == "green" for row in having)
    store.close()
    page = greenfast("report", search, "--html")[1]
    assert "64 &lt;b&gt;threads&lt;/b&gt; win" in page and "<b>threads" not in page
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")
    assert "64 \\<b\\>threads" in greenfast("report", search)[1]


def test_the_report_over_rest_and_on_its_page(served, ledger_home):
    path = f"/searches/{ledger_home.search_id}/report"
    report = httpx.get(f"{served.url}/api/v1{path}").json()
    assert report["searches"][0]["id"] == ledger_home.search_id
    text_form = httpx.get(f"{served.url}/api/v1{path}?form=markdown")
    assert text_form.headers["content-type"].startswith("text/markdown")
    assert text_form.text.startswith("# axpy line")
    page = httpx.get(served.url + path)
    assert page.status_code == 200 and "What to try next" in page.text
    number = report["searches"][0]["winner"]
    assert f'href="/searches/{ledger_home.search_id}/trials/{number}"' in page.text
    file = httpx.get(f"{served.url}{path}.html")
    assert "attachment" in file.headers["content-disposition"]
    assert httpx.get(f"{served.url}/api/v1/searches/s_aaaaaaaaaaaa/report").status_code == 404


def exported(greenfast, ledger_home) -> list[str]:
    code, out, err = greenfast("ledger", "export", "--search", ledger_home.search_id)
    assert code == 0, err
    return out.splitlines()


def test_a_ledger_goes_to_another_database_as_foreign_records_only(
    greenfast, ledger_home, tmp_path
):
    lines = exported(greenfast, ledger_home)
    assert len(lines) == 1 + 2 * (1 + len(BUGS))
    file = tmp_path / "theirs.jsonl"
    file.write_text("\n".join(lines) + "\n")
    other = Store.open(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    assert import_file(other, file) == (len(lines) - 1, len(lines) - 1)
    assert import_file(other, file) == (len(lines) - 1, 0)
    records = foreign_out(other)
    assert {each.record.search_id for each in records} == {ledger_home.search_id}
    # None of it shows among what this database has measured.
    assert other.search_ids() == () and other.negatives().items == ()
    assert other.champions().items == () and export_count(other) == 0
    other.close()


def export_count(store: Store) -> int:
    return json.loads(next(export_lines(store, [])))["records"]


def changed(lines: list[str], at: int, **fields: object) -> list[str]:
    """A line with other fields of its record, and the digests that an honest writer would give."""
    content = json.loads(lines[at])
    content["record"].update(fields)
    canonical = json.dumps(content["record"], sort_keys=True, separators=(",", ":"))
    content["digest"] = hashlib.sha256(canonical.encode()).hexdigest()
    body = [*lines[1:at], json.dumps(content), *lines[at + 1 :]]
    header = json.loads(lines[0])
    whole = hashlib.sha256("".join(f"{json.loads(line)['digest']}\n" for line in body).encode())
    header.update(records=len(body), digest=whole.hexdigest())
    return [json.dumps(header), *body]


def test_a_foreign_newer_or_tampered_ledger_is_refused_with_its_line_and_nothing_is_imported(
    greenfast, ledger_home, tmp_path
):
    lines = exported(greenfast, ledger_home)
    header = json.loads(lines[0])
    green = next(n for n in range(1, len(lines)) if json.loads(lines[n])["record"]["time_kind"])
    wrong = next(n for n in range(1, len(lines)) if json.loads(lines[n])["record"]["reason"])
    cases = {
        "foreign 1": [["{}"], ["no json"], [""], ["[1]"], ['{"ledger": true}'], ["\x00"]],
        "newer 1": [[json.dumps({**header, "ledger": 2}), *lines[1:]]],
        "invalid 1": [[json.dumps({**header, "more": 1}), *lines[1:]]],
        "tampered 1": [
            lines[:-1],
            [*lines, lines[-1]],
            [lines[0], *lines[:0:-1]],
            [json.dumps({**header, "records": 3}), *lines[1:]],
        ],
        "tampered 3": [[*lines[:2], lines[2].replace("planted", "planned"), *lines[3:]]],
        f"invalid {green + 1}": [
            changed(lines, green, verdict="accepted"),
            changed(lines, green, time_median_us=-1.0),
            changed(lines, green, reason="race"),
            changed(lines, green, extra="field"),
            changed(lines, green, kernel_digest="0"),
        ],
        f"invalid {wrong + 1}": [changed(lines, wrong, reason=None)],
        f"invalid {len(lines) + 1}": [[*lines, "{"], [*lines, '{"record": NaN, "digest": ""}']],
    }
    other = Store.open(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    file = tmp_path / "theirs.jsonl"
    for expected, files in cases.items():
        kind, line = expected.split()
        for content in files:
            file.write_text("\n".join(content) + "\n")
            with pytest.raises(UsageError) as refused:
                import_file(other, file)
            assert refused.value.code == f"ledger_{kind}", (expected, content[:1], refused.value)
            assert f"line {line}:" in str(refused.value)
            assert "nothing of it was imported" in str(refused.value)
    assert other.foreign() == ()
    file.write_text("\n".join(changed(lines, green, sentence="checked by another")) + "\n")
    assert import_file(other, file)[1] == len(lines) - 1  # the writer of these tests is honest
    other.close()


def test_the_ledger_is_published_as_plain_pages_that_escape_everything(
    greenfast, ledger_home, tmp_path
):
    code, _, err = greenfast(*SEARCH, "--trials", "1", "--name", "<script>alert(1)</script> & co")
    assert code == 0, err
    folder = tmp_path / "site"
    assert greenfast("publish", str(folder))[0] == 0
    pages = sorted(folder.rglob("*.html"))
    assert len(pages) >= 5 and (folder / "index.html") in pages
    for page in pages:
        text_of_page = page.read_text()
        assert "<script" not in text_of_page and "&amp;lt;" not in text_of_page
        for target in re.findall(r'(?:href|src)="([^"#]+)"', text_of_page):
            assert (page.parent / target).resolve().is_file(), (page.name, target)
    assert "&lt;script&gt;alert(1)" in (folder / "index.html").read_text()
    assert "unwritten_shared" in (folder / "negatives.html").read_text()
    (kernel, *_) = (folder / "kernels").glob("*.cu")
    assert "axpy_planted" in kernel.read_text()
    assert greenfast("publish", str(folder), "--search", ledger_home.search_id)[0] == 0
    assert len(list((folder / "searches").iterdir())) == 1  # the copy before is gone
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    code, _, err = greenfast("publish", str(tmp_path / "mine"))
    assert code == 2 and "holds other files" in err
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
