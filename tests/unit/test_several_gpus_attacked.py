"""Processes of a search on two stand-in GPUs die at random moments: nothing is lost or doubled.

The victims are the measuring children, the workers that judge outputs, the compiling and rendering
children, the strategy's process, and the searching process itself, which is started again.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from test_several_gpus_killed import DEADLINE_S, SEARCH, TRIALS, command, recorded, rows, select

__all__ = ["command"]
GPUS = {0: {"sleep_s": 0.05}, 1: {"sleep_s": 0.05, "speed": 1.2}}
VICTIMS = (
    "standin_gpus",
    "judging_child",
    "nvrtc_child",
    "rendering.child",
    "apart_child",
    "parent",
)
SHOTS = 4  # in a search
LONGEST_PAUSE_S = 1.5


@pytest.fixture(autouse=True)
def workers(monkeypatch):
    """Outputs are judged in workers also on a machine with few cores; set before `command`."""
    monkeypatch.setenv("STANDIN_WORKERS", "2")


def descendants(pid):
    """(process, command line) of all that a process has started, and of what those have."""
    rows = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            line = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, IndexError):
            continue
        rows.append((int(stat.parent.name), parent, line))
    known = {pid}
    while more := {child for child, parent, _ in rows if parent in known} - known:
        known |= more
    return [(child, line) for child, _, line in rows if child in known - {pid}]


def shoot(process, words, dice):
    """Kill a child of this kind, if there is one; whether the search itself was killed."""
    if words == "parent":
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
    if targets := [child for child, line in descendants(process.pid) if words in line]:
        with suppress(ProcessLookupError):
            os.kill(dice.choice(targets), signal.SIGKILL)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_whatever_dies_no_trial_is_lost_doubled_or_blamed(command, tmp_path, seed):
    dice = random.Random(seed)
    process = command(*SEARCH, "--target", "cuda:0,1", "--trials", str(TRIALS), gpus=GPUS)
    end = time.monotonic() + DEADLINE_S
    before = {}

    def completed():
        return select(tmp_path, "status FROM searches") == [("completed",)]

    def search_id():
        try:
            return [row[0] for row in select(tmp_path, "id FROM searches")]
        except Exception:  # no database yet
            return []

    while not search_id() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    [name] = search_id()
    for words in [*dice.choices(VICTIMS, k=SHOTS - 1), "parent"]:
        time.sleep(dice.uniform(0.0, LONGEST_PAUSE_S))
        if process.poll() is not None:
            break
        if shoot(process, words, dice):
            if completed():  # it died between its last record and its end
                break
            process = command("search", "--resume", name, gpus=GPUS)
        # What was recorded stays as it is.
        now = {row[0]: row for row in recorded(tmp_path)}
        assert all(now[number] == row for number, row in before.items())
        before = now
    out, err = process.communicate(timeout=DEADLINE_S)
    if not completed():
        process = command("search", "--resume", name, gpus=GPUS)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (0, 1, -signal.SIGKILL) and completed(), err + out
    after = rows(tmp_path)
    assert [row[0] for row in after] == list(range(TRIALS)), err
    assert len({row[3] for row in after}) == TRIALS
    assert all(row[2] in ("green", "rejected", "accepted") for row in after), (after, err)
    assert all(after[number] == row for number, row in before.items())
