"""What lint tells once, and a reference that would end greenfast itself."""

from __future__ import annotations

import re

import pytest

from greenfast.app.cli.lint import _folders
from greenfast.app.cli.new import kernel_files_of
from greenfast.search.devices.facts import device
from greenfast.search.diagnose.lint import lint_kernel
from greenfast.search.errors import SpecError
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.kernel_file import load_kernel
from greenfast.search.oracle.reference import kernel_module
from greenfast.search.oracle.reference_module import reference_module

INCLUDES = (REPOSITORY_TEMPLATES / "include",)


def kernel_folder(root, file, change):
    files = dict(kernel_files_of("vecsum"))
    files[file] = change(files[file])
    (root / "vecsum").mkdir()
    for name, text in files.items():
        (root / "vecsum" / name).write_text(text)
    return root / "vecsum"


def test_a_mistake_in_a_template_is_told_once(tmp_path):
    folder = kernel_folder(tmp_path, "block.cu.j2", lambda text: text + "\n{{ nothing_known }}\n")
    problems = list(lint_kernel(folder, INCLUDES, device("h200"), None))
    assert [p.code for p in problems] == ["render_error"]
    assert "nothing_known" in problems[0].message


def test_a_mistake_in_a_reference_is_told_for_the_first_case_only(tmp_path):
    folder = kernel_folder(
        tmp_path,
        "reference.py",
        lambda text: re.sub(r"(def reference\(.*\n)", r"\1    raise ValueError('lost')\n", text),
    )
    problems = lint_kernel(folder, INCLUDES, device("h200"), None)
    failed = [p for p in problems if p.code == "reference_failed"]
    assert len(failed) == 1 and "lost" in failed[0].message


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("import os; os._exit(0)", "os._exit"),
        ("import os as system; system.abort()", "os.abort"),
        ("from os import _exit; _exit(0)", "os._exit"),
    ],
)
def test_a_reference_that_would_end_the_process_is_refused(tmp_path, line, name):
    """It ended `greenfast search` with success and without a word."""
    folder = kernel_folder(
        tmp_path, "reference.py", lambda text: f"{text}\n\ndef f():\n    {line}\n"
    )
    kernel = load_kernel(folder)
    with pytest.raises(SpecError, match=re.escape(f"{name} would end greenfast")) as error:
        kernel_module(kernel)
    assert re.match(r"vecsum/reference.py:\d+: ", error.value.message) and error.value.mend


def test_another_exit_is_not_confused_with_it():
    text = "class os_:\n    _exit = 1\n\ndef make_inputs(dims, options, recipe, seed, tiles):\n"
    text += "    return {'x': os_._exit}\n\ndef reference(dims, options, inputs):\n    return {}\n"
    assert reference_module("k", text).make_inputs({}, {}, "", 0, {}) == {"x": 1}


def test_a_folder_without_a_kernel_does_not_hide_the_kernel_of_its_name(tmp_path, monkeypatch):
    (tmp_path / "kernels").mkdir()
    folder = kernel_folder(tmp_path / "kernels", "block.toml", str)
    (tmp_path / "vecsum").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GREENFAST_TEMPLATE_PATH", str(tmp_path / "kernels"))
    assert _folders(["vecsum"], Catalogue.from_environment()) == (folder.resolve(),)
