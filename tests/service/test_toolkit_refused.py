"""doctor, trial and search name a compiler that is known to miscompile, before any trial.

A search with packages of different releases is refused when it is submitted, and leaves no record.
"""

from __future__ import annotations

import json
import os

import pytest
from fastapi.testclient import TestClient

from greenfast.app.cli.main import run
from greenfast.app.service.application import create_app
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.search.toolchain import known_answer
from greenfast.search.toolchain.toolkit import LAYOUTS, TOOLKIT_VARIABLE


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


MIXED = ("13.0.88", "13.5.37", "13.5.37", "13.3.5.0.6")
SEARCH = {"kernel": "axpy", "templates": ["right"], "budget": {"trials": 2}}


@pytest.fixture
def mixed_packages(here, monkeypatch, tmp_path):
    """The metadata of NVRTC and of headers of another release, as pip leaves them."""
    for wheel, version in zip(LAYOUTS[0].wheels, MIXED, strict=True):
        info = tmp_path / "cuda" / f"{wheel.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {wheel}\nVersion: {version}\n"
        )
    monkeypatch.setenv(TOOLKIT_VARIABLE, str(tmp_path / "cuda"))


def stored(capsys) -> list:
    return answered(capsys, "searches")[1]


def test_a_search_with_mixed_packages_is_refused_and_not_stored(mixed_packages, capsys):
    code, output, _ = answered(capsys, "search", "axpy", "--template", "right", "--trials", "2")
    assert code == 2 and output["error"]["code"] == "toolchain_mixed", output
    assert "nvidia-cuda-nvrtc 13.0.88, nvidia-cuda-runtime 13.5.37" in output["error"]["message"]
    assert stored(capsys) == []


@pytest.mark.parametrize("workers", [0, 1])
def test_a_service_refuses_them_if_it_runs_searches_itself(mixed_packages, capsys, workers):
    services = Services(
        Settings.from_environment({**os.environ, "GREENFAST_WORKERS": str(workers)})
    )
    with TestClient(create_app(services), base_url="http://127.0.0.1") as client:
        answer = client.post("/api/v1/searches", json=SEARCH)
        page = client.post(
            "/new", data={"kernel": "axpy", "workloads": "line", "templates": "right", "trials": 1}
        )
    services.close()
    if workers:
        assert (answer.status_code, answer.json()["code"]) == (503, "toolchain_mixed")
        assert page.status_code == 503 and "of different releases" in page.text
        assert stored(capsys) == []
    else:
        assert answer.status_code == 201 and len(stored(capsys)) == 2


def test_a_recording_needs_no_packages(mixed_packages, capsys):
    arguments = ("--target", "replay:mission-mma-h200", "--trials", "1", "--no-confirm")
    code, output, _ = answered(capsys, "search", "attention", *arguments)
    assert code == 0 and output["status"] == "completed", output
