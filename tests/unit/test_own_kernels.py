"""Own kernels are found in ./kernels and on GREENFAST_TEMPLATE_PATH; nothing else changes."""

from __future__ import annotations

import json
import os

import pytest

from greenfast.app.cli import main
from greenfast.app.cli.new import kernel_files_of
from greenfast.app.settings import Settings
from greenfast.app.views.own_kernels import own_folders, own_problems
from greenfast.app.wiring import Services
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.frozen import kernel_files


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GREENFAST_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("GREENFAST_TEMPLATE_PATH", raising=False)
    return tmp_path


def write(root, name, title="x"):
    files = kernel_files_of(name)
    files["kernel.toml"] = files["kernel.toml"].replace('title = "', f'title = "{title} ')
    (root / name).mkdir(parents=True)
    for file, text in files.items():
        (root / name / file).write_text(text)
    return root / name


def test_a_kernel_in_the_current_folder_is_known_to_every_command(folder, capsys):
    assert main.run(("new", "kernel", "mine")) == 0
    assert "export" not in capsys.readouterr().out
    assert main.run(("workloads", "mine")) == 0
    assert main.run(("templates", "mine")) == 0
    assert main.run(("new", "template", "mine", "other")) == 0
    assert (folder / "kernels" / "mine" / "other.toml").exists()
    assert Services(Settings.from_environment()).catalogue.kernel("mine").name == "mine"


def test_a_kernel_that_is_written_later_is_found_by_what_runs_already(folder):
    catalogue = Catalogue.from_environment()
    with pytest.raises(UsageError, match="unknown kernel 'mine'") as refused:
        catalogue.kernel("mine")
    assert refused.value.mend.endswith("found in ./kernels and on GREENFAST_TEMPLATE_PATH")
    write(folder / "kernels", "mine")
    assert catalogue.kernel("mine").name == "mine"


def test_a_kernel_stays_found_when_the_process_changes_its_folder(folder, monkeypatch):
    write(folder / "kernels", "mine")
    catalogue = Catalogue.from_environment()
    monkeypatch.chdir("/")
    assert catalogue.kernel("mine").folder == folder / "kernels" / "mine"


def test_the_path_replaces_shipped_kernels_and_the_current_folder_none(folder, monkeypatch):
    write(folder / "kernels", "mine", "here")
    write(folder / "listed", "mine", "listed")
    same_name = write(folder / "kernels", "gemm")
    assert Catalogue.from_environment().folders["gemm"] == REPOSITORY_TEMPLATES / "gemm"
    assert any(str(same_name) in each for each in own_problems(Catalogue.from_environment()))
    monkeypatch.setenv("GREENFAST_TEMPLATE_PATH", str(folder / "listed"))
    catalogue = Catalogue.from_environment()
    assert catalogue.kernel("mine").title.startswith("listed")
    assert folder / "kernels" / "mine" in catalogue.hidden()
    monkeypatch.setenv("GREENFAST_TEMPLATE_PATH", "kernels")
    assert Catalogue.from_environment().folders["gemm"].resolve() == same_name.resolve()


def test_a_broken_folder_is_refused_only_where_it_is_named(folder, capsys):
    (write(folder / "kernels", "aaa") / "kernel.toml").write_text('name = "aaa"\ntitle =\n')
    catalogue = Catalogue.from_environment()
    assert catalogue.kernel("rmsnorm").name == "rmsnorm"
    with pytest.raises(GreenfastError, match=r"aaa/kernel\.toml:2: not valid TOML"):
        catalogue.kernel("aaa")
    assert main.run(("templates", "--json")) == 0
    assert "left out: aaa/kernel.toml" in capsys.readouterr().err
    assert main.run(("workloads", "rmsnorm")) == 0
    assert main.run(("workloads", "aaa")) == 2


def test_headers_of_the_current_folder_serve_its_kernels_and_harm_no_other(folder):
    headers = folder / "kernels" / "include" / "gf"
    headers.mkdir(parents=True)
    (headers / "mine.cuh").write_text("#pragma once\n")
    (headers / "reduce.cuh").write_text("#error mine\n")
    catalogue = Catalogue.from_environment()
    assert headers.parent in catalogue.include_dirs
    texts = dict(kernel_files(catalogue.kernel("rmsnorm"), catalogue.include_dirs).files)
    assert "include/gf/mine.cuh" in texts and "#error" not in texts["include/gf/reduce.cuh"]
    (headers / "mine.cuh").write_bytes(b"\xff\xfe\x00")
    catalogue = Catalogue.from_environment()
    assert kernel_files(catalogue.kernel("rmsnorm"), catalogue.include_dirs).files


def test_a_current_folder_that_was_removed_has_no_kernels(folder, monkeypatch):
    (folder / "gone").mkdir()
    monkeypatch.chdir(folder / "gone")
    os.rmdir(folder / "gone")
    assert Catalogue.from_environment().kernel("rmsnorm").name == "rmsnorm"


def test_config_shows_the_folder_that_is_used(folder, capsys):
    def row():
        assert main.run(("config", "--json")) == 0
        rows = json.loads(capsys.readouterr().out)
        return next(each for each in rows if each["variable"] == "./kernels")

    assert row()["value"] is None
    write(folder / "kernels", "mine")
    assert row()["value"] == str(folder / "kernels")
    assert own_folders(Catalogue.from_environment()) == (f"{folder / 'kernels'}: mine",)
