"""A cache that strangers fill keeps to its limit, and loses nothing that is in use."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from emulator_harness import prepared

from greenfast.app.cli.main import run
from greenfast.search.errors import Fault
from greenfast.search.kernels.frozen import frozen_catalogue, kernel_files
from greenfast.search.kernels.held_folders import MOST_HELD, hold, remove_unheld
from greenfast.search.targets.emulator.build import Module
from greenfast.search.toolchain.cache import ArtifactCache
from greenfast.search.toolchain.cache_room import COUNT, IN_USE_S, CacheRoom

WRITER = """
import hashlib, sys
from pathlib import Path
from greenfast.search.toolchain.cache import ArtifactCache
from greenfast.search.toolchain.cache_room import CacheRoom
cache = ArtifactCache(Path(sys.argv[1]), "cubin")
limit, files = map(int, sys.argv[3:])
cache._room = CacheRoom(Path(sys.argv[1]), limit)
for number in range(files):
    cache.put(hashlib.sha256(f"{sys.argv[2]}/{number}".encode()).hexdigest(), {}, bytes(1000))
"""


def _age(path, seconds=10 * IN_USE_S):
    os.utime(path, (time.time() - seconds,) * 2)


def _library(root, name, size, ago_s):
    """A library with its two companions, as the emulator's build leaves them."""
    folder = root / "emulator" / "d" / "modules"
    folder.mkdir(parents=True, exist_ok=True)
    for ending in (".so", ".other.so", ".unset.json"):
        (folder / f"{name}{ending}").write_bytes(bytes(size))
        _age(folder / f"{name}{ending}", ago_s)
    return folder / f"{name}.so"


def test_the_least_recently_used_go_with_all_of_their_files(tmp_path):
    kept = [_library(tmp_path, f"k{age}", 1000, age * 1000) for age in (1, 2, 3, 4, 5)]
    CacheRoom(tmp_path, 12_000).add(0)  # nobody has counted yet: 15,000 bytes are there
    assert [path.exists() for path in kept] == [True, True, True, False, False]
    names = {path.name.partition(".")[0] for path in kept[0].parent.iterdir()}
    assert names == {"k1", "k2", "k3"}


def test_what_is_in_use_stays_however_full_the_cache_is(tmp_path):
    used, old = _library(tmp_path, "used", 9000, 1), _library(tmp_path, "old", 10, 9000)
    CacheRoom(tmp_path, 100).add(1)
    assert used.exists() and not old.exists()


def test_reading_an_entry_is_using_it(tmp_path):
    cache = ArtifactCache(tmp_path, "cubin")
    for key in ("aa" * 32, "bb" * 32):
        cache.put(key, {}, bytes(1000))
        _age(tmp_path / "cubin" / key[:2] / key)
    assert cache.get("aa" * 32) is not None
    CacheRoom(tmp_path, 1500).add(1)
    assert cache.get("aa" * 32) is not None and cache.get("bb" * 32) is None


def written_by_four(folder, limit_bytes, files):
    """Whether four processes write so many files each, at the same time, without an error."""
    given = [str(limit_bytes), str(files)]
    commands = [[sys.executable, "-c", WRITER, str(folder), str(n), *given] for n in range(4)]
    with ThreadPoolExecutor() as pool:
        ended = list(pool.map(lambda words: subprocess.run(words, check=False), commands))
    return [process.returncode for process in ended] == [0, 0, 0, 0]


def test_what_others_rename_while_the_cache_is_listed_is_no_error(tmp_path):
    assert written_by_four(tmp_path, 1_000, 60)


def test_several_processes_count_together(tmp_path):
    assert written_by_four(tmp_path, 200_000, 50)
    size = sum(entry.size_bytes for entry in CacheRoom(tmp_path, 1).entries())
    assert int((tmp_path / COUNT).read_text()) == size > 200_000  # all of them are in use
    for path in (tmp_path / "cubin").rglob("*"):
        _age(path)
    CacheRoom(tmp_path, 200_000).add(1)
    assert sum(entry.size_bytes for entry in CacheRoom(tmp_path, 1).entries()) <= 150_000


def test_a_count_that_is_none_and_the_work_of_the_dead_are_no_burden(tmp_path):
    (tmp_path / COUNT).write_text("many")
    left = tmp_path / "emulator" / "d" / ".module-dead"
    left.mkdir(parents=True)
    _age(left, 2 * 86_400)
    old = _library(tmp_path, "old", 1000, 9000)
    CacheRoom(tmp_path, 100).add(1)
    assert not left.exists() and not old.exists()
    assert int((tmp_path / COUNT).read_text()) == 0


@pytest.mark.parametrize("content", ["link", "folder"])
def test_a_count_that_leads_elsewhere_is_not_written(tmp_path, content):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    root = tmp_path / "cache"
    root.mkdir()
    (root / COUNT).symlink_to(elsewhere) if content == "link" else (root / COUNT).mkdir()
    CacheRoom(root, 100).add(1)
    assert elsewhere.read_text() == "precious"


HOLDER = """
import sys
from pathlib import Path
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.frozen import frozen_catalogue, kernel_files
catalogue = Catalogue.from_environment()
files = kernel_files(catalogue.kernel(sys.argv[2]), catalogue.include_dirs)
frozen_catalogue(files, Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_the_files_of_kernels_count_and_those_that_a_process_reads_stay(tmp_path):
    room, folders = CacheRoom(tmp_path, 1000), tmp_path / "kernels"
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(
        [*command, "rmsnorm"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        held = set(folders.iterdir())  # of the kernel, and of its headers
        subprocess.run([*command, "gemm"], input=b"", check=True)  # which ends at once
        assert len(list(folders.iterdir())) > len(held) == 2
        for folder in folders.iterdir():
            _age(folder)
        room.add(0)
        assert set(folders.iterdir()) == held
        holder.communicate()
    room.add(0)
    assert not list(folders.iterdir())


def test_frozen_files_are_written_again_when_the_cache_has_lost_them(tmp_path, catalogue):
    written = []
    files = kernel_files(catalogue.kernel("rmsnorm"), catalogue.include_dirs)
    frozen_catalogue(files, tmp_path, written.append)
    frozen_catalogue(files, tmp_path, written.append)
    assert len(written) == 2  # the kernel's and its headers', once each
    for folder in (tmp_path / "kernels").iterdir():
        shutil.rmtree(folder)  # as by a process of a version without locks
    assert frozen_catalogue(files, tmp_path, written.append).kernel("rmsnorm").name == "rmsnorm"
    assert len(written) == 4 and min(written) > 1000
    assert not remove_unheld(next((tmp_path / "kernels").iterdir()))


def test_a_process_holds_a_limited_number_of_folders(tmp_path):
    folders = [tmp_path / str(number) for number in range(MOST_HELD + 1)]
    for folder in folders:
        folder.mkdir()
        assert hold(folder)
    assert remove_unheld(folders[0]) and not hold(folders[0])
    assert not remove_unheld(folders[1])
    assert not list(tmp_path.glob(".fresh-*"))


def test_a_library_that_was_removed_is_a_fault_and_never_a_verdict(tmp_path):
    """Without its companion, a check of variables that nobody sets would be left out."""
    library = _library(tmp_path, "gone", 10, 1)
    module = Module(library, "d", ("k",), "checked", 0.0)
    assert module.with_other_number is not None
    library.with_suffix(".other.so").unlink()
    assert module.with_other_number is None
    library.unlink()
    with pytest.raises(Fault, match="removed from the cache"):
        _ = module.with_other_number


def test_a_library_is_built_again_when_the_cache_has_lost_it(artifacts):
    emulator = prepared(artifacts)
    text = 'extern "C" __global__ void lost(float* y) { y[0] = 1; }\n'

    def built():
        return emulator.build_module(text, ("lost",), flavour="plain", deadline_s=60.0)

    first = built()
    assert isinstance(first, Module)
    first.path.unlink()
    again = built()
    assert isinstance(again, Module) and again.path == first.path and again.path.exists()


def test_the_command_shows_and_clears(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GREENFAST_DATA", str(tmp_path))
    library = _library(tmp_path / "cache", "k", 2**20, 9000)
    for number, build in enumerate(("old", "d")):
        program = tmp_path / "cache" / "emulator" / build / "gf-emulate"
        program.parent.mkdir(exist_ok=True)
        program.write_bytes(b"program")
        _age(program, 1000 - number)
    assert run(["cache", "--json"]) == 0
    (_, kernels, _, builds) = json.loads(capsys.readouterr().out)["kinds"]
    assert (kernels["entries"], kernels["bytes"], builds["entries"]) == (1, 3 * 2**20, 2)
    assert builds["bytes"] == 2 * len(b"program")
    assert run(["cache", "--clear"]) == 0
    assert not library.exists() and library.parents[1].is_dir()
    assert not (tmp_path / "cache" / "emulator" / "old").exists()


@pytest.mark.parametrize("text", ["63", "-1", "4096.5", "much", "٤٠٩٦"])
def test_a_limit_that_is_none_is_refused(monkeypatch, capsys, text):
    monkeypatch.setenv("GREENFAST_CACHE_MIB", text)
    assert run(["cache"]) == 2
    assert "64 to" in capsys.readouterr().err
