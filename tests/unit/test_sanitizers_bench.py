"""bench.gpu.sanitizers resumes, and counts no kernel that had too little time."""

from __future__ import annotations

import json

import pytest

from bench.gpu.sanitizers import Found, shares_of, stored, told

JOBS = [{"name": name, "entries": [f"{name}_entry"]} for name in "abcde"]
CLEAN = {"kinds": {}, "first": "", "launch": ""}


def test_a_second_call_runs_what_the_first_has_not(tmp_path):
    path = tmp_path / "out.json"
    assert all(not tools for tools in stored(path, JOBS).values())
    rows = [{"what": "summary"}, {"name": "b", "tools": {"memcheck": CLEAN}}]
    path.write_text(json.dumps({"rows": rows}))
    found: Found = stored(path, JOBS)
    assert found["b"] == {"memcheck": CLEAN}
    shares = shares_of(JOBS, found, ("memcheck", "initcheck"), 2)
    names = [(tool, "".join(job["name"] for job in share)) for tool, share in shares]
    assert names == [
        ("memcheck", "ad"),
        ("memcheck", "ce"),
        ("initcheck", "ad"),
        ("initcheck", "be"),
        ("initcheck", "c"),
    ]


@pytest.mark.parametrize(
    ("ended", "alone", "done", "counted"),
    [
        (True, True, "ab", {"a": "", "b": "", "c": "it did not end"}),  # c broke the process
        (False, True, "ab", {"a": "", "b": ""}),  # c gets another process
        (False, True, "", {"a": "it did not end"}),  # a had a whole process's time
        (False, False, "", {}),  # the call's time was over
    ],
)
def test_a_stopped_process_judges_the_kernels_that_ended(tmp_path, ended, alone, done, counted):
    lines = [line for name in done for line in ({"begin": name}, {"end": name, "error": ""})]
    lines.append({"begin": "abc"[len(done)]})
    out = tmp_path / "out"
    out.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    rows = told(JOBS, out, tmp_path / "no log", ended, alone=alone)
    assert {name: row["launch"] for name, row in rows} == counted
