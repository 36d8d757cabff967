"""docs/architecture.md and its picture follow the code, and every path that is named exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from bench.pages import architecture_page
from bench.pages.architecture_page import CAPTIONS, PICTURE, mapped, picture, rooms, steps
from greenfast.search.gates import GATES

ROOT = Path(__file__).resolve().parents[2]
SAVE = "run `python -m bench.pages.architecture_page --save`"
PARTS = (
    "search",
    "db",
    "app",
    "bench",
    "tests",
    "scripts",
    "docs",
    "kernel_templates",
    "recordings",
)
# A path in prose: two parts or more, none of them a placeholder in capitals or a pattern.
NAMED_PATH = re.compile(rf"(?<![\w./-])((?:greenfast/)?(?:{'|'.join(PARTS)})/[\w./-]*\w)")
PLACEHOLDER = re.compile(r"\b[A-Z]{4,}\b")


def test_the_picture_is_that_of_todays_rooms():
    assert PICTURE.read_text() == picture(), SAVE


def test_the_picture_shows_rooms_in_the_order_of_imports(monkeypatch):
    lines = [row.removesuffix(".py") for row in rooms("search")]
    assert lines.index("search/kernels") < lines.index("search/render") < lines.index("search/loop")
    swapped = tuple(reversed(architecture_page.order("SEARCH")))
    monkeypatch.setattr(
        architecture_page, "order", lambda name: swapped if name == "SEARCH" else ()
    )
    assert picture() != PICTURE.read_text()


@pytest.mark.parametrize("package", ["search", "app"])
def test_every_room_that_is_a_folder_has_a_caption(package):
    folders = {room for room in rooms(package) if (ROOT / room).is_dir()}
    assert folders and folders <= CAPTIONS.keys(), "write its caption in architecture_page.py"


def test_captions_are_of_rooms():
    assert CAPTIONS.keys() <= {"db", *rooms("search"), *rooms("app")}


def test_a_candidates_way_names_files_that_are_there():
    assert [step.title for step in steps()][4:8] == [
        f"gate {number}: {gate.name}" for number, gate in enumerate(GATES, 1)
    ]
    missing = [file for step in steps() for file in step.files if not (ROOT / file).exists()]
    assert missing == []


def test_results_of_the_way_are_types_of_those_files():
    for step in steps():
        text = "".join((ROOT / file).read_text() for file in step.files if (ROOT / file).is_file())
        for name in re.findall(r"\b[A-Z]\w+", step.result) if step.title != "shown" else ():
            if not step.title.startswith("gate"):
                assert re.search(rf"\b(?:class )?{name}\b", text), f"{step.title}: {name}"


def test_the_page_shows_the_picture_and_each_package():
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert page.count(f"]({PICTURE.name})") == 1
    for _, folder in mapped():
        assert f"`{folder}`" in page, folder


def _prose_of(path: Path) -> str:
    """Markdown as it is; of Python with paths the docstrings, and the comments as written."""
    text = path.read_text()
    if path.suffix == ".md":
        return text
    if not NAMED_PATH.search(text):
        return ""  # there is nothing to look for in it
    tree = ast.parse(text)
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [
        ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, owners)
    ]
    comments = re.findall(r"(?:^|\s)#\s(.*)$", text, re.M)
    return "\n".join([*docstrings, *comments])


@cache
def _named_paths() -> tuple[tuple[str, str], ...]:
    """(file, path that it names)."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")]
    code = [path for part in ("greenfast", *PARTS[:6]) for path in (ROOT / part).rglob("*.py")]
    named = []
    for path in sorted({*pages, *code, ROOT / "recordings" / "README.md"}):
        for target in NAMED_PATH.findall(_prose_of(path)):
            if not PLACEHOLDER.search(target) or (ROOT / target).exists():
                named.append((path.relative_to(ROOT).as_posix(), target))
    return tuple(named)


def _exists(target: str) -> bool:
    """As a file or folder, a module without its ending, or a name inside the installed package.

    A result may be compressed: bench/results.py adds .gz where a file grows large.
    """
    inside = target.removeprefix("greenfast/")
    candidates = (target, f"{target}.py", f"{target}.gz", inside, f"{inside}.py")
    return any((ROOT / path).exists() for path in candidates)


def test_there_are_paths_to_check():
    assert len(_named_paths()) > 150


def test_every_path_in_docs_and_docstrings_exists():
    missing = sorted(
        {f"{file}: {target}" for file, target in _named_paths() if not _exists(target)}
    )
    assert missing == []
