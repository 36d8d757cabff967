"""Commands that read, compare, save and remove what is stored."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import store_values as values
from slow_cases import quick_first

from greenfast import __version__
from greenfast.app.cli.commands import SECTIONS
from greenfast.app.cli.completing import completions
from greenfast.app.cli.completion import SCRIPTS
from greenfast.app.cli.main import run
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.db.store import Store
from greenfast.search.devices.facts import device_names
from greenfast.search.loop.plan import SearchRequest
from greenfast.search.loop.sink import Ended
from greenfast.search.loop.tuning import TuningRequest
from greenfast.search.strategies import STRATEGIES
from greenfast.search.verdict import Rejected, Stage

HOSTILE = "\x1b]0;owned\x07<script>\u202eevil $(touch owned)"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def searches(here) -> tuple[str, str]:
    """A measured search, and one with hostile names and a rejected trial."""
    store = Store.open(f"sqlite:///{here.data / 'greenfast.sqlite3'}")
    ids = []
    for name in ("measured", HOSTILE):
        claim = store.claim("worker", values.LEASE_S, store.submit(values.plan(name=name)).id)
        store.describe(claim, {"device": "h200", "toolchain": HOSTILE})
        values.run_trial(store, claim, 0)
        for number in range(1, 4):
            values.run_trial(store, claim, number, values.accepted(number, 100.0 - 9 * number))
        wrong = replace(values.rejected(), sentence=HOSTILE, log=HOSTILE)
        assert isinstance(wrong, Rejected) and wrong.stage == Stage.CORRECTNESS
        values.run_trial(store, claim, 4, wrong)
        store.finish(claim, Ended.COMPLETED, "the budget is spent")
        ids.append(claim.search_id)
    store.close()
    return ids[0], ids[1]


@pytest.fixture
def greenfast(searches, capsys):
    """Runs a command in this process: (exit code, stdout, stderr)."""

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([word.format(*searches) for word in arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return command


class TestReading:
    def test_a_search_and_a_trial_are_shown_by_a_beginning_of_an_id_and_by_last(
        self, greenfast, searches
    ):
        _, other = searches
        for name in ("{1}", other[:9], "last"):
            code, out, _ = greenfast("show", name, "--json")
            assert code == 0 and json.loads(out)["id"] == other
        code, out, _ = greenfast("show", "last/4")
        assert code == 0 and "rejected" in out and "greenfast check attention" in out
        assert "greenfast source" in out
        assert greenfast("show", "last/99")[0] == greenfast("show", "s_zz")[0] == 2
        code, _, err = greenfast("show", "s_")
        assert code == 2 and err.startswith("greenfast: ")

    def test_a_search_in_vain_says_what_failed_and_how_to_see_all_of_it(self, greenfast, here):
        store = Store.open(f"sqlite:///{here.data / 'greenfast.sqlite3'}")
        claim = store.claim("worker", values.LEASE_S, store.submit(values.plan()).id)
        wrong = replace(values.rejected(), sentence=f"mine.cu.j2(4): error {HOSTILE}")
        values.run_trial(store, claim, 0, wrong)
        store.finish(claim, Ended.COMPLETED, "the budget is spent")
        store.close()
        _, out, _ = greenfast("show", claim.search_id)
        assert "No candidate was correct. The baseline was rejected at correctness: mine" in out
        assert f"`greenfast show {claim.search_id}/0`" in out and not CONTROL.search(out)

    @pytest.mark.parametrize("command", quick_first(["cancel", "promote", "bundle", "pause"], 2))
    def test_every_command_knows_the_last_search(self, greenfast, searches, command):
        code, _, by_name = greenfast(command, "last")
        assert "'last'" not in by_name
        assert (code, by_name) == greenfast(command, "{1}")[::2]

    def test_trials_are_selected_sorted_as_numbers_and_cut(self, greenfast):
        def numbers(*options: str) -> list[int]:
            return [row["number"] for row in json.loads(greenfast("trials", "{0}", *options)[1])]

        assert numbers("--json") == [0, 1, 2, 3, 4]
        assert numbers("--json", "--sort", "tile_m", "--descending") == [4, 3, 2, 1, 0]
        assert numbers("--json", "--sort", "time") == [3, 2, 1, 0, 4]  # without a time: last
        assert numbers("--json", "--sort", "time", "--descending")[-1] == 4
        assert numbers("--json", "--where", "tile_m=32", "--where", "padding=true") == [1]
        assert numbers("--json", "--verdict", "accepted", "--limit", "2") == [1, 2]
        code, _, err = greenfast("trials", "{0}", "--columns", "number,nothing")
        assert code == 2 and "tile_m" in err and "known" in err

    def test_rows_for_programs_are_whole_and_have_no_padding(self, greenfast):
        _, out, _ = greenfast("trials", "{0}", "--columns", "number,design,sentence")
        lines = out.splitlines()
        assert len(lines) == 6 and all(line == line.rstrip() for line in lines)
        assert "scale=0.5" in lines[1]

    def test_csv_has_every_digit_under_its_title(self, greenfast):
        _, out, _ = greenfast("export", "{0}", "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(out)))
        assert [row["parameter.tile_m"] for row in rows] == ["16", "32", "48", "64", "80"]
        assert float(rows[1]["time_median_us"]) == 91.0
        _, out, _ = greenfast("export", "{0}")
        assert len(json.loads(out)["trials"]) == 5

    def test_trials_are_compared_and_a_search_stands_for_its_best(self, greenfast, searches):
        code, out, _ = greenfast("compare", "{0}/1", "{0}", "--json")
        report = json.loads(out)
        assert code == 0 and report["b"]["number"] == 3
        assert {row["name"] for row in report["parameters"]} == {"tile_m"}
        assert report["source"]["added"] == report["source"]["removed"] == 1
        assert report["time"]["decision"] == "ambiguous" and report["time"]["ratio_low"] is None
        code, out, _ = greenfast("compare", "{0}/1", "{0}/4")
        assert code == 0 and "has no time" in out
        assert greenfast("compare", "{0}/1", "{0}/1")[0] == 2

    def test_importances_say_that_trials_are_too_few(self, greenfast):
        code, out, _ = greenfast("importance", "{0}")
        assert code == 0 and "too few" in out

    def test_nothing_hostile_reaches_the_terminal(self, greenfast):
        for arguments in (
            ("show", "{1}"),
            ("show", "{1}/4"),
            ("trials", "{1}", "--columns", "number,why,sentence"),
            ("trials", "{1}", "--format", "csv", "--columns", "sentence"),
            ("export", "{1}", "--format", "csv"),
            ("compare", "{0}", "{1}/4"),
            ("searches",),
            ("show", HOSTILE),
            ("trials", "{1}", "--where", HOSTILE),
            ("compare", HOSTILE, "{1}"),
            ("rm", "{1}", "--dry-run"),
        ):
            code, out, err = greenfast(*arguments)
            assert code in (0, 2), err
            assert CONTROL.search(out + err) is None, arguments
            assert "a bug of greenfast" not in err


class TestRemoving:
    def test_it_is_said_first_what_goes_and_nobody_is_asked_without_a_terminal(
        self, greenfast, searches
    ):
        code, _, err = greenfast("rm", "{0}")
        assert code == 2 and "1 search and 5 trials" in err and "--yes" in err
        code, out, err = greenfast("rm", "{0}", "--yes", "--json")
        assert code == 0 and json.loads(out)["trials"] == 5 and "removed" in err
        code, out, _ = greenfast("searches", "--json")
        assert [row["id"] for row in json.loads(out)] == [searches[1]]


class TestExtending:
    @pytest.mark.slow
    def test_a_completed_search_goes_on_and_knows_what_it_tried(self, home):
        begun = home.run(
            "search", "axpy", "--template", "right", "--trials", "2", "--seed", "1",
            "--max-registers", "200", "--json",
        ).json  # fmt: skip
        ended = home.run("search", "--resume", begun["id"][:8], "--extend", "2", "--json")
        assert ended.code == 0 and ended.json["trials_done"] == 4, ended.err
        trials = json.loads(home.run("trials", "last", "--json").out)
        assert len({row["candidate_digest"] for row in trials}) == 4
        refused = home.run("search", "axpy", "--extend", "2")
        assert refused.code == 2 and "--resume" in refused.err

    @pytest.mark.slow
    def test_a_register_limit_rejects_and_the_terminal_says_why(self, home):
        ended = home.run(
            "search", "axpy", "--template", "right", "--trials", "1", "--max-registers", "1"
        )
        assert "ptxas: over_request_limit" in ended.err and "/0` has more" in ended.err


class TestTiming:
    @pytest.mark.slow
    def test_a_preset_and_a_stored_trial_are_timed_beside_each_other(self, home):
        search = home.run("search", "axpy", "--template", "right", "--trials", "2", "--json").json
        ended = home.run("bench", "axpy/right:plain", f"{search['id']}/1", "--json")
        first, second = ended.json["rows"]
        assert ended.code == 0 and first["is_first"] and second["same_source"] is True
        assert second["ratio_to_baseline"] > 0

    def test_candidates_that_cannot_stand_together_are_refused(self, greenfast):
        for names, code in (
            (("attention/wmma:stage2", "rmsnorm/row:plain"), "different_kernels"),
            (("attention/wmma:stage2", "attention/wmma:stage2"), "repeated_candidate"),
            (("attention/wmma:nothing",), "unknown_preset"),
            (("nothing/wmma:stage2",), "unknown_kernel"),
        ):
            ended, out, _ = greenfast("bench", *names, "--json")
            assert ended == 2 and json.loads(out)["error"]["code"] == code, names


class TestTheCommandItself:
    def test_alone_it_shows_the_three_first_commands(self, greenfast):
        code, out, _ = greenfast()
        assert code == 2 and all(word in out for word in ("doctor", "search", "serve"))
        assert len(out.splitlines()) < 12
        assert greenfast("--version")[:2] == (0, f"greenfast {__version__}\n")

    def test_every_command_has_short_help_and_search_names_what_there_is(self, greenfast):
        for section in SECTIONS.values():
            for command in section:
                code, out, _ = greenfast(command.name, "-h")
                assert code == 0 and "Usage:" in out, command.name
        words = greenfast("search", "-h")[1].replace("\n", " ")
        assert all(name in words for name in (*STRATEGIES, *device_names(), "--max-registers"))

    def test_settings_say_where_they_come_from_and_hide_secrets(self, greenfast, monkeypatch):
        monkeypatch.setenv("GREENFAST_TOKEN", "a-secret-of-20-letters")
        code, out, _ = greenfast("config", "--json")
        rows = {row["variable"]: row for row in json.loads(out)}
        assert code == 0 and "a-secret" not in out
        assert rows["GREENFAST_DATA"]["from"] == "environment"
        assert rows["GREENFAST_PORT"] == {
            **rows["GREENFAST_PORT"],
            "from": "default",
            "value": 8741,
        }


class TestCompletion:
    def test_words_are_completed_from_what_is_installed_and_stored(self, searches):
        def offered(*words: str) -> list[str]:
            return [value for value, _ in completions(words)]

        assert {"search", "serve", "show"} <= set(offered("s"))
        assert offered("search", "atten") == ["attention", "attention_fp8"]
        assert "--strategy" in offered("search", "attention", "--s")
        assert "wmma" in offered("trial", "attention", "--template", "")
        assert "wmma:stage2" in offered("search", "attention", "--baseline", "wmma:s")
        assert "swizzle=xor" in offered(
            "trial", "attention", "--template", "wmma", "--set", "swizzle="
        )
        assert set(searches) <= set(offered("show", "")) and "last" in offered("show", "")
        assert offered("trials", "last", "--format", "") == ["table", "csv", "json"]
        assert offered("nonsense", "") == []

    def test_a_word_that_a_shell_would_run_is_never_offered(self, here, tmp_path, monkeypatch):
        (tmp_path / "$(touch owned).cu").write_text("")
        (tmp_path / "plain.cu").write_text("")
        monkeypatch.chdir(tmp_path)
        assert [value for value, _ in completions(["check", ""])][-1] == "plain.cu"
        assert all("\t" not in text and "\n" not in text for _, text in completions(["s"]))

    def test_no_database_is_made_for_a_completion(self, here):
        (here.data / "greenfast.sqlite3").unlink()
        assert completions(["show", ""]) == []
        assert not (here.data / "greenfast.sqlite3").exists()

    def test_bash_takes_the_script_and_fills_in_behind_a_colon(self, here):
        script = (
            f'greenfast() {{ {sys.executable} -m greenfast "$@"; }}\n{SCRIPTS["bash"]}\n'
            'COMP_LINE="greenfast search attention --baseline wmma:stage2"\n'
            'COMP_POINT=${#COMP_LINE}\n_greenfast\nprintf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        assert done.stdout == "stage2\n", done.stderr


def test_light_commands_import_no_heavy_library(here):
    heavy = {"sqlalchemy", "fastapi", "optuna", "cupy", "plotly", "numpy", "pygments"}
    for arguments in ([], ["--help"], ["--version"], ["completion", "bash"]):
        code = (
            "import sys; from greenfast.app.cli.main import run; "
            f"run({arguments!r}); print('|'.join(sys.modules), file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert not heavy & set(done.stderr.split("|")), arguments


def test_the_seconds_of_each_stage_are_shown_and_exported(here, greenfast, searches):
    store = Store.open(f"sqlite:///{here.data / 'greenfast.sqlite3'}")
    claim = store.claim("worker", values.LEASE_S, store.submit(values.plan(name="stages")).id)
    proposal = values.proposal(0)
    store.begin(claim, 0, proposal)
    stages = (("render", 0.0001), ("compile", 0.25), ("correctness", 1.5), ("waiting", 0.02))
    store.record(claim, replace(values.trial(0), stage_seconds=stages), values.source(0))
    store.finish(claim, Ended.COMPLETED, "the budget is spent")
    store.close()
    shown = greenfast("show", f"{claim.search_id}/0")[1]
    assert "compile 250 ms, correctness 1.5 s, waiting 20 ms" in shown and "render 0" not in shown
    listed = ("trials", claim.search_id, "--columns", "compile_s,safety_s", "--format", "csv")
    assert greenfast(*listed)[1] == "compile_s,safety_s\n0.25,\n"
    (row,) = csv.DictReader(io.StringIO(greenfast("export", claim.search_id, "--format", "csv")[1]))
    assert (row["render_s"], row["correctness_s"], row["safety_s"]) == ("0.0001", "1.5", "")
    assert "took" in greenfast("show", f"{searches[0]}/0")[1]  # of a trial without stages


class TestTunings:
    def test_there_is_none_at_first(self, here, capsys):
        assert run(["tunings"]) == 0
        assert "`greenfast tune KERNEL --workloads FILE` starts one" in capsys.readouterr().err

    def test_the_newest_comes_first_with_its_searches(self, here, capsys):
        services = Services(Settings.from_environment())
        rows = []
        for name in ("old", HOSTILE.replace("\x1b", "").replace("\x07", "").replace("\u202e", "")):
            search = SearchRequest("axpy", templates=("right",), trials=1, name=name)
            workloads = (("N=96,dtype=fp16", 1.0), ("N=96,dtype=bf16", 1.0))
            rows.append(services.submit_tuning(TuningRequest(search, workloads)))
        services.store.request_control(rows[1].searches[0].id, "cancel")
        services.close()
        capsys.readouterr()
        assert run(["tunings"]) == 0
        shown = capsys.readouterr().out
        assert shown.index(rows[1].id) < shown.index(rows[0].id) and not CONTROL.search(shown)
        assert f"1 of 2 ended: {rows[1].searches[0].id}" in shown
        assert run(["tunings", "--limit", "1", "--json"]) == 0
        (listed,) = json.loads(capsys.readouterr().out)
        assert listed["id"] == rows[1].id and len(listed["searches"]) == 2
