"""tests/twins: right kernels, and wrong ones beside them, that `greenfast check` has to tell apart.

A file's first line holds the options of `greenfast check`. The second names the kind of the finding
that must come; without it, no finding may come. Lines that end with `// <<` are those that one
finding of this kind names. patches.toml holds further wrong twins, as changes of right files.
"""

from __future__ import annotations

import json
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from greenfast.app.cli.main import run

TWINS = Path(__file__).resolve().parents[1] / "twins"
IN_EVERY_RUN = (
    "tensor_copy_right",
    "tensor_copy_no_proxy_fence",
    "named_barriers_right",
    "restricted_and_written",
)
CHECK, FINDS, MARK = "// check ", "// finds ", "// <<"


@dataclass(frozen=True)
class Twin:
    """A file with the options of its check, the finding that it needs, and the lines named."""

    text: str
    options: str
    kind: str  # empty: it is right
    marked: frozenset[int]


def of_file(path: Path) -> Twin:
    text = path.read_text()
    first, second, *_ = lines = text.splitlines()
    kind = second.removeprefix(FINDS) if second.startswith(FINDS) else ""
    marked = frozenset(number for number, line in enumerate(lines, 1) if line.endswith(MARK))
    return Twin(text, first.removeprefix(CHECK), kind, marked)


def patched(right: Twin, patch: dict) -> Twin:
    text = right.text
    for old, new in patch["change"]:
        assert text.count(old) == 1, (patch["name"], old, text.count(old))
        text = text.replace(old, new)
    lines = text.splitlines()
    places = [
        [number for number, line in enumerate(lines, 1) if part in line] for part in patch["named"]
    ]
    assert all(len(numbers) == 1 for numbers in places), (patch["name"], places)
    return Twin(text, right.options, patch["finds"], frozenset(numbers[0] for numbers in places))


FILES = {path.stem: of_file(path) for path in sorted(TWINS.glob("*.cu"))}
PATCHES = tomllib.loads((TWINS / "patches.toml").read_text())["twin"]
ALL = FILES | {patch["name"]: patched(FILES[patch["of"]], patch) for patch in PATCHES}


def test_each_wrong_twin_stands_beside_a_right_one():
    wrong = {name for name, twin in ALL.items() if twin.kind}
    assert len(ALL) == len(FILES) + len(PATCHES)
    assert len(wrong) > 40 and all(name.endswith("_right") for name in ALL.keys() - wrong)
    assert not any(name.endswith("_right") for name in wrong)
    assert all(not FILES[patch["of"]].kind for patch in PATCHES)
    assert set(IN_EVERY_RUN) <= set(ALL)


@pytest.mark.parametrize(
    "name",
    [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.slow) for name in ALL],
)
def test_a_twin_is_judged_as_it_says(name, tmp_path, capsys, artifacts, monkeypatch):
    monkeypatch.setenv("GREENFAST_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cache").symlink_to(artifacts)
    monkeypatch.chdir(TWINS)
    twin, file = ALL[name], tmp_path / f"{name}.cu"
    file.write_text(twin.text)
    status = run(["check", str(file), *shlex.split(twin.options), "--json"])
    report = json.loads(capsys.readouterr().out)
    findings = report["findings"]
    if not twin.kind:
        assert (status, findings) == (0, []), findings
        return
    named = [
        {place[1] for place in (finding["where"], finding["other_where"]) if place}
        for finding in findings
        if finding["kind"] == twin.kind
    ]
    assert status == 1
    assert twin.marked in named, findings
