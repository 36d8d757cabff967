"""Each list of names has one definition, and what dresses the names leaves none out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from greenfast.app.cli.output import VERDICT_STYLES
from greenfast.app.cli.trial_run import EXIT_CODES
from greenfast.app.dashboard.page_search import CONTROLS
from greenfast.db.models import SearchRecord, TrialRecord
from greenfast.search.status import SearchStatus
from greenfast.search.verdict import Outcome, Reason, VerdictName

ROOT = Path(__file__).resolve().parents[2]
DEFINED_IN = {"search/verdict.py", "search/status.py"}
FROZEN = "db/migrations/"  # describes tables as they were


def sources() -> list[Path]:
    folders = (ROOT / name for name in ("search", "db", "app", "greenfast"))
    return [
        path
        for folder in folders
        for ending in ("*.py", "*.html")
        for path in sorted(folder.rglob(ending))
        if FROZEN not in path.as_posix() and str(path.relative_to(ROOT)) not in DEFINED_IN
    ]


@pytest.mark.parametrize("names", [VerdictName, SearchStatus], ids=lambda names: names.__name__)
def test_no_other_file_lists_the_names(names):
    first, second, *_ = names
    quoted = rf"""['"](?:{"|".join(names)})['"]\s*,\s*"""
    listed = re.compile(rf"""(?:{quoted}){{2}}['"]|['"]{first}['"]\s*,\s*['"]{second}['"]""")
    assert [str(path) for path in sources() if listed.search(path.read_text())] == []


def test_every_verdict_and_status_has_its_glyph_style_exit_code_and_controls():
    parts = (ROOT / "app/dashboard/templates/_parts.html").read_text()
    style = (ROOT / "app/dashboard/static/dashboard.css").read_text()
    verdicts, statuses, outcomes = (
        set(re.findall(r'"(\w+)":', line)) for line in re.findall(r"set glyphs = (\{.*\})", parts)
    )
    assert verdicts == set(VerdictName)
    assert statuses == set(SearchStatus)
    assert outcomes == {*Outcome, "fault"}
    meanings = set(re.findall(r'"(\w+)":', re.findall(r"set meanings = (\{.*\})", parts)[0]))
    assert meanings == {*verdicts, "interrupted"}  # a state of a trial without a verdict
    assert all(re.search(rf"\.{name}\b", style) for name in VerdictName)
    assert EXIT_CODES.keys() == set(VerdictName) and set(VerdictName) <= VERDICT_STYLES.keys()
    assert CONTROLS.keys() == set(SearchStatus)


def test_the_tables_accept_these_names_and_no_others():
    checks = {
        str(check.name): str(check.sqltext)
        for table in (TrialRecord.__table__, SearchRecord.__table__)
        for check in table.constraints
        if hasattr(check, "sqltext")
    }
    assert re.findall(r"'(\w+)'", checks["ck_trials_verdict"]) == [*VerdictName]
    assert re.findall(r"'(\w+)'", checks["ck_searches_status"]) == [*SearchStatus]


def test_every_reason_is_given_somewhere():
    """A reason that nothing gives would be offered by filters and never match."""
    texts = [path.read_text() for path in (ROOT / "search").rglob("*.py")]
    given = {name for text in texts for name in re.findall(r"Reason\.([A-Z_]+)", text)}
    assert given == {reason.name for reason in Reason}
