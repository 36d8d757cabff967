"""`greenfast search --target cuda:0,1` as a whole process: killed in its middle, and taken up."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TRIALS = 11  # all points of the album's axpy
DEADLINE_S = 120.0
SEARCH = ("search", "axpy", "--template", "right", "--strategy", "random", "--seed", "3")


@pytest.fixture
def command(tmp_path, artifacts):
    """`command(arguments, gpus, more)`: a greenfast command with stand-in GPUs, started.

    `more` are variables of its environment.
    """
    data, started = tmp_path / "data", []
    data.mkdir()
    (data / "cache").symlink_to(artifacts)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GREENFAST_")},
        "GREENFAST_DATA": str(data),
        "GREENFAST_TEMPLATE_PATH": str(HERE.parent / "kernels"),
        "GREENFAST_LEASE_S": "1",
        "GREENFAST_WINDOW": "3",
        "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)]),
    }

    def start(*arguments, gpus, **more):
        process = subprocess.Popen(
            [sys.executable, str(HERE / "standin_command.py"), json.dumps(gpus), *arguments],
            env=environment | more,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def rows(tmp_path):
    """The trials: number, attempts, verdict, candidate, GPU, when recorded."""
    return select(
        tmp_path,
        "number, attempts, verdict, candidate_digest, device_index, recorded_at "
        "FROM trials ORDER BY number",
    )


def select(tmp_path, words):
    file = tmp_path / "data" / "greenfast.sqlite3"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=10.0)) as database:
        return database.execute(f"SELECT {words}").fetchall()


def recorded(tmp_path):
    try:
        return [row for row in rows(tmp_path) if row[2] is not None]
    except sqlite3.Error:  # not there yet
        return []


def evaluators(tmp_path):
    """Processes that evaluate for a command of this test, dead or alive."""
    running = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"evaluator_child" in (process / "cmdline").read_bytes():
                running += [process] * (
                    str(tmp_path).encode() in (process / "environ").read_bytes()
                )
    return running


@pytest.mark.slow
def test_a_search_on_two_gpus_that_is_killed_goes_on_with_nothing_lost_or_doubled(
    command, tmp_path
):
    gpus, on_both = {0: {}, 1: {"speed": 1.2}}, ("--target", "cuda:0,1", "--trials", str(TRIALS))
    killed = command(*SEARCH, *on_both, gpus=gpus, STANDIN_KILLED_AT="2")
    _, err = killed.communicate(timeout=DEADLINE_S)
    assert killed.returncode == -signal.SIGKILL, err
    before = recorded(tmp_path)
    assert len(before) >= 2  # trials that ended together are recorded together
    end_s = time.monotonic() + DEADLINE_S
    while evaluators(tmp_path) and time.monotonic() < end_s:
        time.sleep(0.1)
    assert not evaluators(tmp_path)
    [(search_id,)] = select(tmp_path, "id FROM searches")
    again = command("search", "--resume", search_id, gpus=gpus)
    out, err = again.communicate(timeout=DEADLINE_S)
    assert again.returncode in (0, 1), err + out
    after = rows(tmp_path)
    assert [row[0] for row in after] == list(range(TRIALS))
    assert all(row[2] in ("green", "rejected", "accepted") for row in after), after
    assert len({row[3] for row in after}) == TRIALS
    assert {row[4] for row in after} == {0, 1}
    assert after[: len(before)] == before  # trials are recorded in order, and once
    assert max(row[1] for row in after) <= 2


def test_gpus_of_two_models_are_refused_before_anything_is_stored(command, tmp_path):
    process = command(*SEARCH, "--target", "cuda:all", gpus={0: {}, 1: {"model": "l4"}})
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2 and not out
    assert "cuda:1 is " in err and "such as cuda:0" in err
