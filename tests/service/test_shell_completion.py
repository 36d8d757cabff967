"""The completion scripts in the shells themselves, where these are installed."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from greenfast.app.cli.completion import SCRIPTS


def answer(shell: str, script: str, folder) -> list[str]:
    """The lines that the shell prints; the script calls this checkout's command."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = folder / "bin" / "greenfast"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m greenfast "$@"\n')
    command.chmod(0o755)
    done = subprocess.run(
        [shell, *(("-f",) if shell == "zsh" else ("--no-config",)), "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={"PATH": f"{command.parent}:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"},
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.slow
def test_fish_completes_names_and_falls_back_to_files(tmp_path):
    (tmp_path / "with space.cu").touch()
    script = SCRIPTS["fish"] + (
        'complete -C "greenfast search attention --baseline wmma:stage2"\n'
        'complete -C "greenfast judge rmsnorm with"\n'
    )
    preset, file = answer("fish", script, tmp_path)
    assert preset.split("\t")[0] == "wmma:stage2" and "with space.cu" in file


@pytest.mark.slow
def test_zsh_offers_names_with_escaped_colons_and_falls_back_to_files(tmp_path):
    script = (
        "compdef() { : }\n"
        '_describe() { print -rl -- "${(@P)3}" }\n'  # -V greenfast values
        "_files() { print files }\n"
        + SCRIPTS["zsh"]
        + "words=(greenfast search attention --baseline wmma:stage2) CURRENT=5 && _greenfast\n"
        + "words=(greenfast judge rmsnorm 'with ') CURRENT=4 && _greenfast\n"
    )
    preset, files = answer("zsh", script, tmp_path)
    assert preset.startswith("wmma\\:stage2:") and files == "files"
