"""`greenfast docs`, and the pages that messages name: readers of the wheel have no checkout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from greenfast.app.cli.docs import anchor_of, headings, page_named, pages
from greenfast.app.cli.main import run
from greenfast.search.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    path
    for folder in ("greenfast", "search", "db", "app")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".toml", ".txt", ".html", ".json", ".md") and path.is_file()
]
PAGE = re.compile(r"`greenfast docs ([^`\s]+)`")


def test_messages_name_pages_that_every_installation_has():
    """A path of the checkout may stand in comments and in the docstrings of modules."""
    named, paths = [], []
    for path in SOURCES:
        for number, line in enumerate(path.read_text("utf-8").splitlines()):
            named += PAGE.findall(line)
            if path.parent.name == "scaffold":  # what `new` and `import` write
                paths += re.findall(r"docs/\S+\.md", line)
            elif number:
                paths += re.findall(r"""["'][^"'#]*docs/[\w/-]+\.md""", line)
    assert paths == []
    assert len(named) >= 9
    for words in set(named) - {"PAGE"}:
        name, _, anchor = words.partition("#")
        page = page_named(name, pages())
        assert not anchor or page.section(anchor), words


def test_a_page_is_found_by_its_name_and_by_its_path():
    known = pages()
    for name in ("check", "check.md", "docs/check.md"):
        assert page_named(name, known).path == ROOT / "docs" / "check.md"
    assert page_named("cli", known).name == "reference/cli"
    assert page_named("docs/kernels/README.md", known).name == "kernels"
    with pytest.raises(UsageError, match="did you mean 'check'"):
        page_named("chek", known)


def test_every_page_has_a_title_and_its_sections_can_be_printed_alone():
    for page in pages():
        assert page.title
        for _, depth, title in list(headings(page.text))[-3:]:
            assert page.section(anchor_of(title)).startswith("#" * depth + " ")


def test_the_command_lists_prints_and_searches(capsys):
    assert run(["docs"]) == 0
    assert "check  " in capsys.readouterr().out
    assert run(["docs", "check"]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "check.md").read_text()
    assert run(["docs", "check#options"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "## Options"
    assert run(["docs", "--search", "EXIT  code is 0"]) == 0
    assert "check:26: The exit code is 0 without findings" in capsys.readouterr().out
    assert run(["docs", "--search", "no page says this"]) == 1
    assert run(["docs", "check#nowhere"]) == run(["docs", "--search", " "]) == 2
