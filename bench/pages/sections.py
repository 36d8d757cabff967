"""Pages whose tables are made from results: sections between markers, and the tables in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.command_line import script_parser
from bench.results import ROOT, Row, find_result, result_file

DOCS = ROOT / "docs"
BEGIN, END = "<!-- {}: begin (bench/pages/{}.py) -->", "<!-- {}: end -->"
NOT_YET = "*not measured yet*"


def rows(name: str, what: str | None = None) -> list[Row]:
    """A result's rows, those of one kind if `what` is given; none where there is no such result."""
    stored = find_result(name).get("rows", [])
    return stored if what is None else [row for row in stored if row.get("what") == what]


def conformance_gpu() -> str:
    """The GPU that primitives were compared with, without its maker: `H200`."""
    (device,) = rows("gpu_conformance", "device")
    return str(device["device"].split()[1])


def source_of(name: str) -> str:
    """A result's file, as a table names it."""
    return f"`{result_file(name)}`"


def table(titles: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """A Markdown table, or the words for a missing measurement where it would have no line."""
    if not lines:
        return NOT_YET
    head = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return "\n".join([*head, *("| " + " | ".join(map(str, line)) + " |" for line in lines)])


def filled_page(page: Path, script: str, sections: Mapping[str, Callable[[], str]]) -> str:
    """The page's text with each section's present content between its markers."""
    text = page.read_text()
    for name, section in sections.items():
        begin, end = BEGIN.format(name, script), END.format(name)
        before, marker, rest = text.partition(begin)
        if not marker or end not in rest:
            raise SystemExit(f"{page.name} lacks the markers of section {name}: {begin} and {end}")
        text = f"{before}{begin}\n{section()}\n{end}{rest.partition(end)[2]}"
    return text


def run_page(doc: str | None, pages: Callable[[], Mapping[Path, str]]) -> None:
    """The command line of a page's script: write the files, or print those that would change."""
    parser = script_parser(doc)
    parser.add_argument("--save", action="store_true", help="write the files")
    save = parser.parse_args().save
    for path, content in pages().items():
        if path.is_file() and path.read_text() == content:
            continue
        if save:
            path.write_text(content)
        print(f"{path.relative_to(ROOT)}: {'written' if save else 'would change'}")
