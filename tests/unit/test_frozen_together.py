"""Threads and processes that need the same frozen kernel at once."""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from greenfast.search.errors import Fault
from greenfast.search.kernels import frozen
from greenfast.search.kernels.frozen import frozen_catalogue, kernel_files

AT_ONCE = 4


def test_files_that_another_thread_reads_stay_where_they_are(album, tmp_path):
    """A second writer, which began before the first had ended, once removed the first one's."""
    files = kernel_files(album.kernel("axpy"), album.include_dirs)
    kernel, _ = files.parts()
    catalogue = frozen_catalogue(files, tmp_path)
    folder = tmp_path / "kernels" / kernel.digest[:32]
    before = folder.stat().st_ino
    frozen._write(folder, kernel)
    assert folder.stat().st_ino == before
    assert catalogue.kernel("axpy").name == "axpy"
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(".fresh-")]


def test_damaged_files_are_written_again(album, tmp_path):
    files = kernel_files(album.kernel("axpy"), album.include_dirs)
    frozen_catalogue(files, tmp_path)
    kernel, _ = files.parts()
    damaged = tmp_path / "kernels" / kernel.digest[:32] / "axpy" / "kernel.toml"
    damaged.write_text("damaged")
    assert frozen_catalogue(files, tmp_path).kernel("axpy").name == "axpy"


def test_a_full_disk_leaves_no_half_written_files(album, tmp_path):
    files = kernel_files(album.kernel("axpy"), album.include_dirs)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, unlimited[1]))
    try:
        with pytest.raises(Fault) as full:
            frozen_catalogue(files, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert full.value.code == "disk_full" and not list((tmp_path / "kernels").iterdir())


def test_many_threads_get_the_same_kernel(album, tmp_path):
    files = kernel_files(album.kernel("axpy"), album.include_dirs)
    together = Barrier(AT_ONCE)

    def load(_: int) -> str:
        together.wait()
        return frozen_catalogue(files, tmp_path).kernel("axpy").name

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert list(pool.map(load, range(AT_ONCE))) == ["axpy"] * AT_ONCE
