"""A catalogue that lives long, as that of `serve`, follows changes of the kernels' files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels import freshness
from greenfast.search.kernels.catalogue import Catalogue

KERNELS = Path(__file__).resolve().parents[1] / "kernels"


@pytest.fixture
def folder(tmp_path) -> Path:
    copy = tmp_path / "axpy"
    shutil.copytree(KERNELS / "axpy", copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_a_changed_kernel_is_read_again(folder, monkeypatch):
    monkeypatch.setattr(freshness, "LOOK_S", 0.0)
    catalogue = Catalogue([folder.parent])
    before = catalogue.kernel("axpy")
    assert catalogue.kernel("axpy") is before, "nothing has changed"
    place = folder / "kernel.toml"
    original = place.read_text()
    place.write_text(original.replace(f'title = "{before.title}"', 'title = "another title"'))
    assert catalogue.kernel("axpy").title == "another title"
    place.write_text(original + "\nunknown_key = 1\n")
    with pytest.raises(SpecError):
        catalogue.kernel("axpy")
    place.write_text(original)
    assert catalogue.kernel("axpy") == before
    shutil.rmtree(folder)
    with pytest.raises(UsageError):
        catalogue.kernel("axpy")


def test_the_files_are_examined_at_intervals_only(folder, monkeypatch):
    monkeypatch.setattr(freshness, "LOOK_S", 3600.0)
    catalogue = Catalogue([folder.parent])
    before = catalogue.kernel("axpy")
    shutil.rmtree(folder)
    assert catalogue.kernel("axpy") is before
