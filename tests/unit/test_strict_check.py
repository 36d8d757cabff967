"""`greenfast check --strict`: writes of one value by several threads."""

from __future__ import annotations

import json

from greenfast.app.cli.main import run

STORES = """extern "C" __global__ void k(float* y) { y[blockIdx.x / 2] = 3; }
"""
LAUNCH = ("--entry", "k", "--grid", "4", "--block", "32", "--arg", "y:float[2]:out")


def answer(folder, capsys, *options: str):
    (folder / "k.cu").write_text(STORES)
    status = run(["check", str(folder / "k.cu"), *LAUNCH, "--json", *options])
    return status, json.loads(capsys.readouterr().out)


def test_writes_of_one_value_are_findings_only_where_they_are_asked_for(
    tmp_path, capsys, artifacts, monkeypatch
):
    monkeypatch.setenv("GREENFAST_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cache").symlink_to(artifacts)
    status, report = answer(tmp_path, capsys)
    assert (status, report["findings"]) == (0, [])
    (note,) = report["notes"]
    assert "k.cu:1" in note and note.endswith("same-value writes are tolerated")
    status, report = answer(tmp_path, capsys, "--strict")
    assert (status, report["notes"], report["clean"]) == (1, [], False)
    (finding,) = report["findings"]
    assert (finding["kind"], finding["reason"]) == ("same_value_write", "race")
    assert finding["where"][1] == 1 and [run["findings"] for run in report["runs"]] == [1, 1, 1]
