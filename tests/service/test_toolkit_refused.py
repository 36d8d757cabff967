"""doctor, trial and search name a compiler that is known to miscompile, before any trial."""

from __future__ import annotations

import json

import pytest

from greenfast.app.cli.main import run
from greenfast.search.toolchain import known_answer


@pytest.fixture
def wrong_compiler(here, monkeypatch):
    """Treats this environment's compiler as the release that miscompiles the known kernel."""
    monkeypatch.setattr(
        known_answer, "wrong_answer", lambda cubin: "every output is 0" if cubin else ""
    )


def answered(capsys, *arguments: str) -> tuple[int, object, str]:
    code = run([*arguments, "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def test_doctor_does_not_call_it_ok(wrong_compiler, capsys):
    _, checks, _ = answered(capsys, "doctor")
    (check,) = [check for check in checks if check["name"] == "NVRTC and CUDA headers"]
    assert check["status"] == "missing" and "to wrong code (every output is 0)" in check["detail"]
    assert "`greenfast toolkit install`" in check["mend"]


def test_a_trial_does_not_begin(wrong_compiler, capsys):
    code, output, _ = answered(capsys, "trial", "axpy", "--template", "right", "--workload", "line")
    assert (
        code == 2
        and output["error"]["code"] == "toolchain_wrong"
        and "`greenfast toolkit install`" in output["error"]["mend"]
    )


def test_a_search_ends_at_once_and_its_closing_sentence_says_why(wrong_compiler, capsys):
    code, output, heard = answered(capsys, "search", "axpy", "--template", "right", "--trials", "3")
    assert code == 3 and output["status"] == "failed" and output["counts"]["total"] == 0, output
    assert (
        "compiles a known kernel to wrong code (every output is 0)" in output["why"]
        and "in a row" not in heard
    )


def test_a_recording_is_replayed_nevertheless(wrong_compiler, capsys):
    """It compiles nothing."""
    _, targets, _ = answered(capsys, "targets")
    replays = [target["name"] for target in targets if target["name"].startswith("replay:")]
    code, output, _ = answered(
        capsys, "search", "attention", "--target", replays[0], "--trials", "2", "--no-confirm"
    )
    assert code == 0 and output["status"] == "completed", output
