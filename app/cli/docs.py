"""`greenfast docs`: lists, prints and searches the pages of docs/, which the wheel carries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import console, panel_width, print_json, table
from greenfast.search.errors import UsageError, unknown_name
from greenfast.search.text import file_line, visible

EXIT_FOUND, EXIT_NOTHING = 0, 1
FENCE = "```"


@dataclass(frozen=True)
class Page:
    """A page of docs/, by its path without the ending: `check`, `reference/cli`."""

    name: str
    path: Path

    @property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @property
    def title(self) -> str:
        return next(title for _, depth, title in headings(self.text) if depth == 1)

    def section(self, anchor: str) -> str:
        """The part below a heading, as links name it: `security#limits`."""
        lines, found = self.text.splitlines(), list(headings(self.text))
        anchors = [anchor_of(title) for _, _, title in found]
        if anchor not in anchors:
            raise unknown_name("section", anchor, set(anchors), where=f"the page {self.name}")
        first, depth, _ = found[anchors.index(anchor)]
        end = next((line for line, other, _ in found if line > first and other <= depth), None)
        return "\n".join(lines[first:end]) + "\n"


def docs(
    page: Annotated[
        str | None,
        typer.Argument(
            metavar="PAGE[#SECTION]",
            help="A page, such as check, reference/cli or security#limits.",
        ),
    ] = None,
    words: Annotated[
        str | None,
        typer.Option(
            "--search", metavar="TEXT", help="Print the lines that contain TEXT, in any case."
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """List the pages of the documentation, print one, or search them.

    A terminal gets a page laid out in its width. A pipe or a file gets the Markdown as it is. Pages
    are files in the installed package, too; the list names their folder.

    Exit codes: 0 pages or lines were found, 1 --search found nothing.
    """
    known = pages()
    name, _, anchor = (page or "").partition("#")
    chosen = page_named(name, known) if name else None
    if words is not None:
        lines = found_lines(words, [chosen] if chosen else known)
        _show_lines(lines, as_json)
        return EXIT_FOUND if lines else EXIT_NOTHING
    if chosen is None:
        _show_list(known, as_json)
        return EXIT_FOUND
    _show_text(chosen, chosen.section(anchor) if anchor else chosen.text, as_json)
    return EXIT_FOUND


def pages() -> list[Page]:
    """Every page, the top folder's first."""
    folder = _folder()
    known = []
    for path in folder.rglob("*.md"):
        inside = path.relative_to(folder)
        name = inside.parent if path.stem == "README" else inside.with_suffix("")
        known.append(Page(name.as_posix(), path))
    return sorted(known, key=lambda page: ("/" in page.name, page.name))


def page_named(name: str, known: list[Page]) -> Page:
    """By its name, or as a path below docs/; `cli` is short for `reference/cli`."""
    plain = name.removeprefix("./").removeprefix("docs/").removesuffix(".md").strip("/")
    plain = plain.removesuffix("/README")
    for page in known:
        if plain in (page.name, page.name.rpartition("/")[2]):
            return page
    raise unknown_name("page", name, [page.name for page in known])


def headings(text: str) -> Iterator[tuple[int, int, str]]:
    """(line from 0, depth, title) of each heading outside blocks of code."""
    inside_code = False
    for line, words in enumerate(text.splitlines()):
        if words.startswith(FENCE):
            inside_code = not inside_code
        elif not inside_code and (heading := re.match(r"(#+) (.+)", words)):
            yield line, len(heading[1]), heading[2]


def anchor_of(title: str) -> str:
    """The anchor that links use for a heading, as on GitHub."""
    return re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-")


def found_lines(words: str, known: list[Page]) -> list[dict[str, object]]:
    """The lines with `words`, in the order of the pages."""
    sought = " ".join(words.split()).casefold()
    if not sought:
        raise UsageError("--search is empty", code="bad_command_line", mend="--search tolerance")
    return [
        {"page": page.name, "line": number, "text": line}
        for page in known
        for number, line in enumerate(page.text.splitlines(), 1)
        if sought in line.casefold()
    ]


def _folder() -> Path:
    return Path(next(iter(import_module("greenfast.docs").__path__)))


def _show_list(known: list[Page], as_json: bool) -> None:
    if as_json:
        print_json([{"page": page.name, "title": page.title} for page in known])
        return
    console().print(table(("page", ""), [(page.name, page.title) for page in known]))
    print(f"\n`greenfast docs PAGE` prints one. The files are in {visible(_folder())}.")


def _show_lines(lines: list[dict[str, object]], as_json: bool) -> None:
    if as_json:
        print_json(lines)
        return
    for line in lines:
        print(f"{file_line(str(line['page']), int(str(line['line'])))}: {line['text']}")


def _show_text(page: Page, text: str, as_json: bool) -> None:
    if as_json:
        print_json({"page": page.name, "title": page.title, "text": text})
        return
    out = console()
    if not out.is_terminal:
        print(text, end="")
        return
    from rich.markdown import Markdown

    out.print(Markdown(text, hyperlinks=False), width=panel_width(out))
