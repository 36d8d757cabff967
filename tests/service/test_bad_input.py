"""Bad input ends in a sentence with the known choices or a remedy, a code, and exit status 2."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys

import pytest
from service_home import KERNELS, ROOT, one_sentence

from greenfast.app.cli.main import run

TRIAL = ("trial", "axpy", "--template", "right")
SEARCH = ("search", "axpy", "--trials", "2")
REFUSED = {
    "an unknown kernel": (
        ("trial", "axpi", "--template", "right"),
        "unknown_kernel",
        "known: attention, ",
    ),
    "an unknown template": (
        ("trial", "axpy", "--template", "rihgt"),
        "unknown_template",
        "broken, right",
    ),
    "an unknown parameter": (
        (*TRIAL, "--set", "warps=4"),
        "unknown_parameter",
        "per_thread, threads",
    ),
    "an unknown value": ((*TRIAL, "--set", "threads=7"), "unknown_value", "128, 256, 32, 64"),
    "a parameter without a value": ((*TRIAL, "--set", "threads"), "bad_setting_text", "NAME=VALUE"),
    "a parameter named twice": (
        (*TRIAL, "--set", "threads=64", "--set", "threads=32"),
        "repeated_parameter",
        "twice",
    ),
    "an unknown preset": ((*TRIAL, "--preset", "fast"), "unknown_preset", "plain"),
    "an unknown workload": ((*TRIAL, "--workload", "huge"), "unknown_workload", "line, odd"),
    "an unknown emulated GPU": (
        (*TRIAL, "--target", "emulator:h900"),
        "unknown_target",
        "emulator:h200",
    ),
    "an unknown target family": ((*TRIAL, "--target", "tpu:0"), "unknown_target", "cuda:0"),
    "a GPU that is not there": ((*TRIAL, "--target", "cuda:63"), "no_gpu", "emulator:h200"),
    "a point outside the constraints": (
        (*TRIAL, "--set", "threads=256", "--set", "per_thread=4"),
        "invalid_candidate",
        "larger than 512",
    ),
    "a seed below 0": ((*TRIAL, "--seed", "-1"), "bad_seed", "between 0 and"),
    "an unknown strategy": (
        (*SEARCH, "--strategy", "luck"),
        "unknown_strategy",
        "nsga2, portfolio, random, tpe",
    ),
    "a budget of no trials": (("search", "axpy", "--trials", "0"), "bad_budget", "1 to"),
    "a budget of no seconds": (("search", "axpy", "--seconds", "0"), "bad_budget", "more than 0"),
    "a budget that is not a number": (
        ("search", "axpy", "--seconds", "nan"),
        "bad_budget",
        "more than 0",
    ),
    "an unknown baseline": ((*SEARCH, "--baseline", "right:fast"), "unknown_preset", "plain"),
    "a gain of more than all": ((*SEARCH, "--min-gain", "1.5"), "bad_min_gain", "below 1"),
    "a name that is none": ((*SEARCH, "--name", "a\x1b]0;b"), "bad_name", "printable"),
    "workloads that need different sources": (
        ("search", "attention", "--workload", "mission", "--workload", "mission_bf16"),
        "mixed_workloads",
        "a search for each",
    ),
    "a command that has another name": (("kernels",), "bad_command_line", "`greenfast templates`"),
    "no kernel and nothing to resume": (("search",), "bad_command_line", "--resume"),
    "a setting beside a tuning to resume": (
        ("tune", "--resume", "t_aaaaaaaaaaaa", "--gpu-seconds", "9"),
        "bad_command_line",
        "--gpu-seconds is a setting of a new tuning",
    ),
    "an unknown search": (("pause", "s_aaaaaaaaaaaa"), "unknown_search", ""),
    "a setting beside a search to resume": (
        ("search", "--resume", "last", "--no-confirm"),
        "bad_command_line",
        "--no-confirm is a setting of a new search",
    ),
    "a budget beside a search to resume": (
        ("search", "--resume", "last", "--trials", "40"),
        "bad_command_line",
        "leave --trials out, or add --extend N",
    ),
    "an unknown search to resume here": (
        ("search", "--resume", "s_aaaaaaaaaaaa"),
        "unknown_search",
        "",
    ),
    "a bundle of an unknown search": (("bundle", "nonsense"), "unknown_search", ""),
    "an unknown source": (("source", "0123456789abcdef"), "unknown_source", ""),
    "an unknown option": (("targets", "--jsn"), "bad_command_line", "--jsn"),
    "an unknown command": (("serch",), "bad_command_line", "serch"),
    "a missing option": (("probe", "axpy"), "bad_command_line", "--template"),
    "a number that is none": (
        ("search", "axpy", "--trials", "many"),
        "bad_command_line",
        "--trials",
    ),
    "a host that does not exist": (
        ("serve", "--host", "no.such.host.invalid"),
        "token_needed",
        "GREENFAST_TOKEN",
    ),
    "listening for others without a token": (
        ("serve", "--host", "0.0.0.0"),
        "token_needed",
        "GREENFAST_TOKEN",
    ),
    "an output that cannot be written": (
        (*TRIAL, "--no-baseline", "-o", "no/such/folder.cu"),
        "unwritable_output",
        "-o",
    ),
}


def refusal(capsys, *arguments):
    """(exit code, the JSON error, the one line on stderr)."""
    code = run([*arguments, *([] if arguments[0] == "serve" else ["--json"])])
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("greenfast: ") and lines[0].isprintable(), err
    return code, json.loads(out)["error"] if out else None, lines[0]


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_with_one_sentence(what, here, capsys):
    arguments, expected, hint = REFUSED[what]
    code, error, line = refusal(capsys, *arguments)
    assert code == 2 and hint in line
    assert error is None or error["code"] == expected


@pytest.mark.slow
def test_an_unknown_command_writes_one_sentence_and_no_traceback_from_a_real_process(home):
    ended = home.run("trial", "foo", "--template", "right")
    assert ended.code == 2 and ended.out == ""
    assert one_sentence(ended).startswith("greenfast: unknown kernel 'foo' (known: attention, ")


def test_a_template_that_does_not_load_is_named_with_its_place(here, capsys, tmp_path, monkeypatch):
    code, error, _ = refused_with_damage(
        here, capsys, tmp_path, monkeypatch, "right.toml", "default = 128", "default = 100"
    )
    assert code == 2 and "axpy/right.toml" in error["message"] and error["code"] == "bad_spec"


def test_constraints_that_nothing_satisfies_are_refused_with_why_the_defaults_are_outside(
    here, capsys, tmp_path, monkeypatch
):
    code, error, _ = refused_with_damage(
        here,
        capsys,
        tmp_path,
        monkeypatch,
        "right.toml",
        "threads * per_thread <= 512",
        "threads * per_thread <= 1",
    )
    assert code == 2 and error["code"] == "empty_space" and "right" in error["message"]


def refused_with_damage(here, capsys, tmp_path, monkeypatch, file, old, new):
    folder = tmp_path / "damaged"
    shutil.copytree(KERNELS / "axpy", folder / "axpy")
    path = folder / "axpy" / file
    path.write_text(path.read_text().replace(old, new))
    monkeypatch.setenv("GREENFAST_TEMPLATE_PATH", str(folder))
    return refusal(capsys, "search", "axpy", "--template", "right")


def test_a_template_folder_that_is_not_there_is_refused(here, capsys, monkeypatch):
    monkeypatch.setenv("GREENFAST_TEMPLATE_PATH", "/no/such/folder")
    assert refusal(capsys, "templates")[:2] == (
        2,
        {
            "code": "missing_template_path",
            "message": "the template folder /no/such/folder does not exist",
            "mend": "correct GREENFAST_TEMPLATE_PATH",
        },
    )


def test_a_port_in_use_is_refused(home, service):
    ended = home.run("serve", "--port", service.url.rpartition(":")[2])
    assert ended.code == 2 and "is in use" in one_sentence(ended)


def test_settings_that_do_not_hold_are_refused_by_name_and_never_show_the_token(
    here, capsys, monkeypatch
):
    monkeypatch.setenv("GREENFAST_PORT", "eighty")
    assert refusal(capsys, "searches")[1]["code"] == "bad_setting"
    monkeypatch.delenv("GREENFAST_PORT")
    monkeypatch.setenv("GREENFAST_TOKEN", "hunter2")
    code, error, line = refusal(capsys, "searches")
    assert code == 2 and error["code"] == "weak_token" and "hunter2" not in line


def test_a_data_folder_that_cannot_be_one_is_refused(here, capsys, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GREENFAST_DATA", str(tmp_path / "file"))
    assert refusal(capsys, "searches")[1]["code"] == "bad_data_folder"


def test_a_database_of_another_program_is_refused_and_left_as_it_was(here, capsys):
    path = here.data / "greenfast.sqlite3"
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
    before = path.read_bytes()
    code, error, _ = refusal(capsys, "searches")
    assert (code, error["code"]) == (2, "database_not_ours") and path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(here, capsys):
    (here.data / "greenfast.sqlite3").write_text(
        "not a database at all, but long enough to be looked at" * 50
    )
    code, error, _ = refusal(capsys, "searches")
    assert code == 2 and error["code"] in ("database_not_ours", "database_unreadable")


def test_a_newer_database_is_refused(here, capsys):
    assert run(["searches", "--json"]) == 0
    capsys.readouterr()
    with sqlite3.connect(here.data / "greenfast.sqlite3") as newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
    code, error, _ = refusal(capsys, "searches")
    assert (code, error["code"]) == (2, "database_newer")


def test_a_locked_database_is_one_sentence_and_nothing_is_lost(here, capsys, monkeypatch):
    monkeypatch.setenv("GREENFAST_DATABASE_BUSY_S", "0.5")
    assert run(["searches", "--json"]) == 0
    capsys.readouterr()
    holder = sqlite3.connect(here.data / "greenfast.sqlite3", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        code, error, _ = refusal(capsys, "search", "axpy", "--template", "right", "--trials", "1")
        assert (code, error["code"]) == (2, "database_locked")
    finally:
        holder.close()
    assert run(["searches", "--json"]) == 0 and json.loads(capsys.readouterr().out) == []


@pytest.mark.slow
def test_no_compiler_is_refused_with_what_to_install(home, tmp_path):
    empty = tmp_path / "bin"
    empty.mkdir()
    environment = {**home.environment, "PATH": str(empty)}
    done = subprocess.run(
        [sys.executable, "-m", "greenfast", "trial", "axpy", "--template", "right", "--json"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 2 and "g++" in error["mend"] and len(done.stderr.splitlines()) == 1


def test_a_kernel_whose_files_changed_is_not_resumed(here, capsys, tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    shutil.copytree(KERNELS / "axpy", folder / "axpy")
    monkeypatch.setenv("GREENFAST_TEMPLATE_PATH", str(folder))
    from greenfast.app.settings import Settings
    from greenfast.app.wiring import Services
    from greenfast.search.loop.plan import SearchRequest

    services = Services(Settings.from_environment())
    row = services.store.submit(services.plan(SearchRequest("axpy", trials=2)))
    services.close()
    source = folder / "axpy" / "right.cu.j2"
    source.write_text(source.read_text().replace("int i =", "const int i ="))
    code, error, _ = refusal(capsys, "search", "--resume", row.id)
    assert (code, error["code"]) == (2, "kernel_changed")


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        pytest.param(">&-", 0, "", marks=pytest.mark.slow),
        pytest.param(">&- 2>&- <&-", 0, "", marks=pytest.mark.slow),
        (
            ">/dev/full",
            3,
            "greenfast: the output, or a file, cannot be written: No space left on device\n",
        ),
    ],
)
def test_an_output_that_takes_nothing_is_no_bug_of_greenfast(home, redirection, code, said):
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m greenfast targets {redirection}', sys.executable],
        env=home.environment,
        cwd=home.data,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, said)


def test_a_path_that_is_too_long_is_named_and_no_bug_of_greenfast(here, capsys):
    for command in (("publish", "x" * 3000), ("verify", "x" * 3000)):
        code, error, line = refusal(capsys, *command)
        assert code == 2 and len(line) < 1000 and "a bug" not in error["message"]
