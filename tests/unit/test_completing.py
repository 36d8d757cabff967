"""Completion in a real bash: what a press of the tabulator inserts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from greenfast.app.cli.completing import completions
from greenfast.app.cli.completion import BASH

LINES = {
    "greenfast sea": "search searches",
    "greenfast search attention --target emulator:h20": "h200",  # bash keeps what is before a colon
    "greenfast search attention --target=emulator:h20": "h200",
    "greenfast new ": "kernel template",
    "greenfast nothing ": "",
}


@pytest.mark.slow
def test_bash_completes_words_after_colons_and_equals_signs(tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    command = tmp_path / "greenfast"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m greenfast "$@"\n')
    command.chmod(0o755)
    tries = "".join(
        f"COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; _greenfast greenfast\n"
        'echo "${COMPREPLY[*]}"\n'
        for line in LINES
    )
    done = subprocess.run(
        [bash, "--noprofile", "--norc", "-c", f"compopt() {{ :; }}\n{BASH}\n{tries}"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.split("\n")[:-1] == list(LINES.values())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["search", "attention", "--strategy=ran"], ["--strategy=random"]),
        (["trial", "attention", "--template=wm"], ["--template=wmma"]),
        (["new", ""], ["kernel", "template"]),
        (["search", "attention", "--unknown=a"], []),
        (["search", "attention", "--target=nowhere:"], []),
    ],
)
def test_an_option_with_an_equals_sign_has_the_same_values(words, offered):
    assert [value for value, _ in completions(words)] == offered
