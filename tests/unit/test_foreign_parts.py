"""A part of another kernel's template: where it is found, who notices a change, who freezes it."""

from __future__ import annotations

import os
import re
import shutil
import time

import pytest

from greenfast.search.digest import digest
from greenfast.search.errors import SpecError
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue, load_kernel
from greenfast.search.kernels.freshness import LOOK_S, LoadedKernel
from greenfast.search.kernels.frozen import frozen_catalogue, kernel_files
from greenfast.search.kernels.template_text import read_template_text

PART = "gemm/wgmma/epilogue.cu.j2"


@pytest.fixture
def copied(tmp_path):
    """A template root with a copy of gemm_fp8 alone."""
    shutil.copytree(REPOSITORY_TEMPLATES / "gemm_fp8", tmp_path / "gemm_fp8")
    return tmp_path


def test_a_shipped_part_is_found_from_another_root_and_gives_the_same_kernel(copied):
    kernel = load_kernel(copied / "gemm_fp8")
    assert kernel.template("wgmma").files[PART] == REPOSITORY_TEMPLATES / PART
    assert digest(kernel) == digest(Catalogue([REPOSITORY_TEMPLATES]).kernel("gemm_fp8"))


def test_the_part_of_the_own_root_comes_first_and_a_change_of_it_is_noticed(copied):
    folder = copied / "gemm_fp8"
    before = LoadedKernel.read(folder, load_kernel)
    assert before.is_current(folder)
    own = copied / PART
    own.parent.mkdir(parents=True)
    own.write_text((REPOSITORY_TEMPLATES / PART).read_text() + "// mine\n")
    assert not before.is_current(folder), "a part that replaces the shipped one is a change"
    after = LoadedKernel.read(folder, load_kernel)
    assert after.kernel.template("wgmma").files[PART] == own
    assert digest(after.kernel) != digest(before.kernel) and after.is_current(folder)
    os.utime(own, (time.time() + LOOK_S + 5,) * 2)
    assert not after.is_current(folder)


def test_a_missing_part_of_ones_own_is_not_taken_from_a_shipped_namesake(copied):
    (copied / "gemm_fp8" / "wgmma" / "scales.cu.j2").unlink()
    with pytest.raises(SpecError, match=r"the part 'wgmma/scales.cu.j2' does not exist \(known: "):
        load_kernel(copied / "gemm_fp8")


def test_a_search_freezes_the_part_with_the_kernel(tmp_path):
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    kernel = catalogue.kernel("gemm_fp8")
    files = kernel_files(kernel, catalogue.include_dirs)
    assert dict(files.files)[PART] == (REPOSITORY_TEMPLATES / PART).read_text()
    frozen = frozen_catalogue(files, tmp_path)
    assert frozen.names() == ("gemm_fp8",) and digest(frozen.kernel("gemm_fp8")) == digest(kernel)
    assert frozen.kernel("gemm_fp8").template("wgmma").files[PART].is_relative_to(tmp_path)


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("gemm/wgmma/none.cu.j2", "does not exist (known: gemm/wgmma/epilogue.cu.j2, gemm/wgmma/"),
        ("gemm/../p.cu.j2", "is not part of template one"),
        ("nobody/wgmma/p.cu.j2", "is not part of template one"),
        ("gemm/wgmma/../../../p.cu.j2", "is not part of template one"),
        ("/gemm/wgmma/epilogue.cu.j2", "is not part of template one"),
    ],
)
def test_a_foreign_part_that_is_not_there_is_refused(tmp_path, part, says):
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "one.cu.j2").write_text(f'{{% include "{part}" %}}\n')
    with pytest.raises(SpecError, match=re.escape(says)):
        read_template_text(tmp_path / "k", "one")


def test_a_foreign_part_includes_no_other(tmp_path):
    for path, text in (
        ("k/one.cu.j2", '{% include "other/t/p.cu.j2" %}\n'),
        ("other/t/p.cu.j2", 'a\n{% include "other/t/q.cu.j2" %}\n'),
        ("other/t/q.cu.j2", "b\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    with pytest.raises(SpecError, match=r"other/t/p.cu.j2:2: a part cannot include another part"):
        read_template_text(tmp_path / "k", "one")
