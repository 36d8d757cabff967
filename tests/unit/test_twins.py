"""tests/twins: right kernels, and wrong ones beside them, that `greenfast check` has to tell apart.

A file's first line holds the options of `greenfast check`. The second names the kind of the finding
that must come; without it, no finding may come. Lines that end with `// <<` are those that one
finding of this kind names.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from greenfast.app.cli.main import run

TWINS = Path(__file__).resolve().parents[1] / "twins"
FILES = sorted(path.stem for path in TWINS.glob("*.cu"))
IN_EVERY_RUN = ("tensor_copy_right", "tensor_copy_no_proxy_fence")
CHECK, FINDS, MARK = "// check ", "// finds ", "// <<"


def test_each_wrong_twin_stands_beside_a_right_one():
    wrong = {name for name in FILES if FINDS in (TWINS / f"{name}.cu").read_text()}
    right = set(FILES) - wrong
    assert len(wrong) > 40 and all(name.endswith("_right") for name in right)
    assert not any(name.endswith("_right") for name in wrong)
    assert set(IN_EVERY_RUN) <= set(FILES)


@pytest.mark.parametrize(
    "name",
    [
        name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.slow)
        for name in FILES
    ],
)
def test_a_twin_is_judged_as_it_says(name, tmp_path, capsys, artifacts, monkeypatch):
    monkeypatch.setenv("GREENFAST_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cache").symlink_to(artifacts)
    monkeypatch.chdir(TWINS)
    lines = Path(f"{name}.cu").read_text().splitlines()
    options = shlex.split(lines[0].removeprefix(CHECK))
    status = run(["check", f"{name}.cu", *options, "--json"])
    report = json.loads(capsys.readouterr().out)
    findings = report["findings"]
    if not lines[1].startswith(FINDS):
        assert (status, findings) == (0, []), findings
        return
    kind = lines[1].removeprefix(FINDS)
    marked = {number for number, line in enumerate(lines, 1) if line.endswith(MARK)}
    named = [
        {place[1] for place in (one["where"], one["other_where"]) if place}
        for one in findings
        if one["kind"] == kind
    ]
    assert status == 1
    assert marked in named, findings
