"""Temporary folders go with their process, also if it is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from greenfast.search.scratch import scratch, scratch_of

HOLDS = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from greenfast.search.scratch import scratch
with scratch("other") as folder:
    (folder / "large").write_bytes(bytes(1000))
    print(folder, flush=True)
    sys.stdin.read()
"""


class Owner:
    pass


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def holder(place: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that holds a folder until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())


def test_a_folder_of_a_process_that_was_killed_is_removed_by_the_next(place):
    with holder(place) as (process, folder):
        with scratch("own"):
            assert (folder / "large").exists()  # somebody is using it
        process.send_signal(signal.SIGKILL)
    assert folder.exists()
    with scratch("own") as own:
        assert [*place.iterdir()] == [own]
    assert [*place.iterdir()] == []


def test_a_folder_goes_with_its_owner_or_before(place):
    owner = Owner()
    folder, remove = scratch_of(owner, "own")
    other, _ = scratch_of(owner, "own")
    assert folder.is_dir() and folder != other and folder.stat().st_mode & 0o077 == 0
    remove()
    remove()
    assert not folder.exists() and other.exists()
    del owner
    assert not other.exists()


def test_what_only_looks_like_an_abandoned_folder_stays(place):
    (place / "kept").mkdir()
    (place / "greenfast-scratch-link").symlink_to(place / "kept")
    (place / "greenfast-scratch-file").write_text("kept")
    with scratch("own"):
        assert len([*place.iterdir()]) == 4


def test_a_folder_beside_a_result_is_hidden_and_removed_like_the_others(place):
    beside = place / "beside"
    beside.mkdir()
    abandoned = beside / ".greenfast-scratch-own-1"
    abandoned.mkdir()
    (place / "greenfast-scratch-own-1").mkdir()
    with scratch("own", beside) as folder:
        assert [*beside.iterdir()] == [folder] and folder.name.startswith(".")
        folder.joinpath("new").mkdir()
        folder.joinpath("new").rename(beside / "result")
    assert [*beside.iterdir()] == [beside / "result"]
