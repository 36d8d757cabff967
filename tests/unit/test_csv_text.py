"""CSV files: nothing that a spreadsheet would compute or a terminal obey."""

from __future__ import annotations

import csv
import io

import pytest

from greenfast.app.cli.csv_text import csv_text


@pytest.mark.parametrize(
    "text", ['=HYPERLINK("http://x")', "+1+1", "-cmd", "@SUM(A1)", "\t=1", "\n=1", "\uff1d1+1"]
)
def test_text_is_no_formula(text):
    (_, row) = csv.reader(io.StringIO(csv_text(["a"], [[text]])))
    assert row[0].startswith("'")


def test_numbers_stay_numbers_and_control_characters_become_escapes():
    text = csv_text(["a,b", "n"], [['x\x1b[31m"y"\nz\u202e', -1.5], [True, None]])
    rows = list(csv.reader(io.StringIO(text)))
    assert rows == [["a,b", "n"], ['x\\x1b[31m"y"\nz\\u202e', "-1.5"], ["true", ""]]
    assert "\x1b" not in text and "\u202e" not in text
