"""docs/tutorial.md: its files are written and its commands run, in their order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_commands import Shell
from service_home import Home
from slow_cases import quick_first

from greenfast.app.cli.new import kernel_files_of
from greenfast.runtime.nvrtc import CACHE_VARIABLE
from greenfast.search.devices.facts import device
from greenfast.search.diagnose.lint import lint_kernel
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "tutorial.md").read_text()
STEP = re.compile(
    r"^`(?P<file>kernels/[\w./]+)`\n\n```\w+\n(?P<body>.*?)^```"
    r"|^```python\n(?P<program>.*?)^```"
    r"|^```\n(?P<commands>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
FILES = {match["file"]: match["body"] for match in STEP.finditer(TEXT) if match["file"]}


def written(folder: Path) -> Path:
    for name, body in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(body)
    return folder / "kernels"


def test_the_tutorial_has_files_and_commands():
    assert len(FILES) == 8
    lines = [
        line for match in STEP.finditer(TEXT) for line in (match["commands"] or "").split("\n")
    ]
    commands = [line for line in lines if line]
    assert len(commands) >= 12
    assert all(line.startswith("greenfast ") for line in commands)


@pytest.mark.parametrize("name", quick_first(["softmax", "product"], 1))
def test_the_kernels_of_the_tutorial_have_no_problem(tmp_path, toolchain, name):
    headers = (REPOSITORY_TEMPLATES / "include",)
    assert lint_kernel(written(tmp_path) / name, headers, device("h200"), toolchain) == ()


@pytest.mark.slow
def test_every_command_of_the_tutorial_runs(tmp_path, artifacts):
    home = Home(tmp_path / "home", artifacts)
    shell, ran = Shell(home), 0
    for match in STEP.finditer(TEXT):
        if match["file"]:
            (home.data / match["file"]).write_text(match["body"])
            continue
        if match["program"]:
            done = subprocess.run(
                [sys.executable, "-c", match["program"]],
                env={**home.environment, CACHE_VARIABLE: str(home.data)},
                cwd=home.data,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0 and "softmax: block" in done.stdout, done.stderr
            continue
        for line in filter(None, match["commands"].split("\n")):
            ended = shell.run(line)
            assert ended.code == 0, f"{line}\n{ended.out}\n{ended.err}"
            ran += 1
    assert ran >= 12
    assert "correct candidate" not in ended.err


@pytest.mark.slow
def test_what_is_new_equals_what_new_writes(home):
    """The path of a new user without the searches: write, look, be told of a mistake."""
    environment = {"GREENFAST_TEMPLATE_PATH": ""}
    assert home.run("new", "kernel", "mine", **environment).code == 0
    folder = home.data / "kernels" / "mine"
    assert {path.name: path.read_text() for path in folder.glob("[!.]*")} == kernel_files_of("mine")
    path = folder / "reference.py"
    path.write_text(path.read_text().replace('"c": summed', '"d": summed'))
    ended = home.run("search", "mine", "--trials", "2", **environment)
    assert ended.code == 2, ended.err
    assert "case one_element" in ended.err and "reference returns no c" in ended.err
    assert "mine/reference.py:" in ended.err
    assert "fault" not in ended.err
    listed = home.run("searches", "--json", **environment).json
    rows = listed["items"] if isinstance(listed, dict) else listed
    assert [row["status"] for row in rows] == ["failed"]
