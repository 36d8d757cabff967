"""Errors that are not finite: every answer is strict JSON (RFC 8259) and names them."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from greenfast.client import Client
from greenfast.search.diagnose.album import catalogue_of, entries

ENTRY = "attention-first_factor_not_written"
NAMES = {"NaN", "Infinity", "-Infinity"}


@pytest.fixture
def patched(tmp_path) -> str:
    """A template folder with the album's kernel; its outputs hold NaN."""
    folder = tmp_path / "templates"
    catalogue_of(next(entry for entry in entries() if entry.id == ENTRY), folder)
    return str(folder)


def strictly_read(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def errors_of(gates: dict[str, Any]) -> set[str]:
    """The names among the relative errors of the failed checks."""
    checks = gates["correctness"]["checks"]
    return {
        check["frobenius_error"] for check in checks if isinstance(check["frobenius_error"], str)
    }


@pytest.mark.slow
def test_a_trial_on_the_command_line_and_over_rest(home, patched):
    ended = home.run(
        "trial",
        "attention",
        "--template",
        "wmma",
        "--preset",
        "stage2",
        "--workload",
        "mission",
        "--no-baseline",
        "--json",
        GREENFAST_TEMPLATE_PATH=patched,
    )
    assert ended.code == 1, ended.err
    report = strictly_read(ended.out)
    assert (report["verdict"], report["reason"]) == ("rejected", "not_finite")
    assert errors_of(report["gates"]) and errors_of(report["gates"]) <= NAMES

    _, url = home.serve(GREENFAST_TEMPLATE_PATH=patched)
    with Client(url) as api:
        row = api.submit(
            kernel="attention",
            workloads=["mission"],
            templates=["wmma"],
            baseline="wmma:stage2",
            budget={"trials": 1},
            seed=0,
        )
        api.wait(row["id"], deadline_s=600)
    place = f"/api/v1/searches/{row['id']}"
    trial = strictly_read(httpx.get(f"{url}{place}/trials/0", trust_env=False).text)
    assert errors_of(trial["gates"]) == errors_of(report["gates"])
    events = httpx.get(f"{url}{place}/events", trust_env=False).text
    data = [
        strictly_read(line.removeprefix("data: "))
        for line in events.splitlines()
        if line.startswith("data: ")
    ]
    assert any(item.get("reason") == "not_finite" for item in data)
    page = httpx.get(f"{url}/searches/{row['id']}/trials/0", trust_env=False)
    assert page.status_code == 200 and any(name in page.text for name in NAMES)
