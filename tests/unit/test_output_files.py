"""`-o FILE` replaces plain files only, and leaves them the permissions that others have."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from greenfast.app.cli.files import write_output
from greenfast.search.errors import UsageError


def test_a_pipe_and_a_link_are_written_to_and_not_replaced(tmp_path):
    pipe, link, target = (tmp_path / name for name in ("pipe", "link", "target"))
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_output(pipe, "text")
    assert os.read(reader, 99) == b"text" and stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(reader)
    target.write_text("before")
    link.symlink_to(target)
    write_output(link, b"after")
    assert link.is_symlink() and target.read_text() == "after"


def test_a_device_that_takes_nothing_is_a_refusal():
    with pytest.raises(UsageError, match="/dev/full cannot be written: No space left on device"):
        write_output(Path("/dev/full"), "text")


def test_permissions_are_those_of_the_file_before_or_of_the_umask(tmp_path):
    mask = os.umask(0o027)
    try:
        write_output(tmp_path / "new", "text")
    finally:
        os.umask(mask)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640
    (tmp_path / "new").chmod(0o604)
    write_output(tmp_path / "new", "again")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o604
