"""docs/architecture.svg: the rooms in the order of their imports, and a candidate's way.

    python -m bench.pages.architecture_page [--save]

Rooms and their order come from tests/unit/test_borders.py, gates from the registry.
tests/unit/test_architecture.py compares the file with today's drawing.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

from bench.pages.sections import DOCS, run_page
from bench.results import ROOT
from greenfast.search.gates import GATES

PICTURE = DOCS / "architecture.svg"
BORDERS = ROOT / "tests" / "unit" / "test_borders.py"

# What each room is for, in the words of the page. A new room needs a line here.
CAPTIONS = {
    "search/kernels": "what authors write: kernels and templates, read and checked",
    "search/devices": "facts about GPUs, occupancy, clusters",
    "search/space": "candidates and the valid points of a template",
    "search/oracle": "test cases, problems in memory, float64 references",
    "search/rendering": "Jinja in child processes, with limits",
    "search/render.py": "template and candidate to CUDA source",
    "search/toolchain": "source to cubin: NVRTC, ptxas, the cache",
    "search/strategies": "which candidate comes next",
    "search/recordings": "recorded sweeps of real GPUs",
    "search/targets": "where candidates run: CUDA, emulator, replay",
    "search/gates": "ptxas, correctness, performance, safety",
    "search/executors": "whose cores and GPUs: this machine's, a cluster's",
    "search/dispatch": "which kernels serve a set of workloads",
    "search/loop": "plan, evaluate, run, confirm",
    "search/diagnose": "check, probe, profile, the album",
    "search/peers": "other libraries' kernels beside a winner",
    "db": "models, migrations, claims, the store",
    "app/wiring.py": "the only file that names concrete classes",
    "app/views": "schemas and figures that every interface shows",
    "app/bundle": "downloads: written, opened, verified",
    "app/routes": "REST and event streams",
    "app/dashboard": "pages rendered by the server",
    "app/service": "the server and its workers",
    "app/cli": "the greenfast command",
}


@dataclass(frozen=True)
class Step:
    """One step of a candidate's way: what happens, what comes out, and the files that do it."""

    title: str
    result: str
    files: tuple[str, ...]


def steps() -> tuple[Step, ...]:
    """The way of a candidate, from request to download."""
    gates = tuple(f"{type(gate).__module__.split('.')[-1]}.py" for gate in GATES)
    return (
        Step("make_plan", "SearchRequest → SearchPlan", ("search/loop/plan.py",)),
        Step(
            "Strategy.ask",
            "→ Candidate",
            ("search/strategies/base.py", "search/space/candidate.py"),
        ),
        Step("render", "→ RenderedSource", ("search/render.py",)),
        Step("Toolchain.compile", "→ Cubin", ("search/toolchain/nvrtc.py",)),
        *(
            Step(f"gate {number}: {gate.name}", "→ GateResult", (f"search/gates/{file}",))
            for number, (gate, file) in enumerate(zip(GATES, gates, strict=True), 1)
        ),
        Step("verdict", "Accepted | Green | Rejected | Faulted", ("search/verdict.py",)),
        Step("Sink.record", "→ database", ("db/sink.py", "db/store.py")),
        Step(
            "shown",
            "REST | dashboard | command | bundle",
            ("app/routes/", "app/dashboard/", "app/cli/", "app/bundle/"),
        ),
    )


def order(name: str) -> tuple[str, ...]:
    """A list of rooms as tests/unit/test_borders.py holds it: `SEARCH` or `APP`."""
    for node in ast.parse(BORDERS.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return tuple(ast.literal_eval(node.value))
    raise SystemExit(f"{BORDERS.name} has no list {name}")


def place(package: str, room: str) -> str:
    """Where a room lives: `search/kernels` for a folder, `search/render.py` for a module."""
    path = f"{package}/{room}"
    return path if (ROOT / path).is_dir() else f"{path}.py"


def rooms(package: str) -> tuple[str, ...]:
    """Rooms of a package in the order of their imports."""
    return tuple(place(package, room) for room in order(package.upper()))


WIDTH, LINE, PAD = 1060, 17, 10
ROOMS_LEFT, ROOMS_WIDTH = 16, 560
WAY_LEFT, WAY_WIDTH = 650, 394
HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#59636e"/></marker></defs>'
)
TOP = 62
INK, FAINT = "#1f2328", "#59636e"
FILLS = {"search": "#ddf4ff", "db": "#fff8c5", "app": "#dafbe1", "package": "#f6f8fa"}
BORDERS_OF = {"search": "#54aeff", "db": "#d4a72c", "app": "#4ac26b", "package": "#d1d9e0"}


def text(x: float, y: float, words: str, style: str = "", colour: str = INK) -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}" {style}>{escape(words)}</text>'


MONO = 'font-family="ui-monospace, monospace"'
BOLD = 'font-weight="600"'


def box(x: int, y: int, width: int, height: int, package: str) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" '
        f'fill="{FILLS[package]}" stroke="{BORDERS_OF[package]}"/>'
    )


def room_rows(package: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """(names, caption) of each row: folders with a caption alone, plain modules together."""
    for captioned, group in groupby(rooms(package), key=lambda room: room in CAPTIONS):
        names = tuple(group)
        if captioned:
            yield from (((name,), CAPTIONS[name]) for name in names)
        else:
            yield names, ""


def mapped() -> tuple[tuple[str, str], ...]:
    """(imported name, folder) of each part of the installed package, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = project["tool"]["setuptools"]["package-dir"]
    return tuple((name, f"{folder}/") for name, folder in folders.items())


def draw_package(y: int) -> tuple[list[str], int]:
    """The box of folders and the names that they are imported by, and where it ends."""
    height = LINE * (len(mapped()) + 1) + 2 * PAD
    parts = [
        box(ROOMS_LEFT, y, ROOMS_WIDTH, height, "package"),
        text(ROOMS_LEFT + PAD, y + PAD + 12, "Installed as one package", BOLD),
    ]
    for row, (name, folder) in enumerate(mapped(), 1):
        at = y + PAD + 12 + row * LINE
        parts.append(text(ROOMS_LEFT + PAD, at, folder, MONO))
        parts.append(text(ROOMS_LEFT + 165, at, name, MONO, FAINT))
    return parts, y + height + 14


def draw_rooms() -> tuple[list[str], int]:
    """The left column, and where it ends."""
    parts, y = [], TOP
    for package in ("search", "db", "app"):
        rows = list(room_rows(package)) if package != "db" else [(("db",), CAPTIONS["db"])]
        lines: list[tuple[str, str]] = []
        for names, caption in rows:
            if caption:
                lines.append((names[0], caption))
            else:
                short = [name.rpartition("/")[2].removesuffix(".py") for name in names]
                lines += [(line, "") for line in wrapped(short, 68)]
        height = LINE * len(lines) + 2 * PAD + (LINE if package != "db" else 0)
        parts.append(box(ROOMS_LEFT, y, ROOMS_WIDTH, height, package))
        at = y + PAD + 12
        if package != "db":
            parts.append(text(ROOMS_LEFT + PAD, at, f"{package}/", f"{BOLD}"))
            at += LINE
        for name, caption in lines:
            parts.append(text(ROOMS_LEFT + PAD, at, name, MONO))
            if caption:
                parts.append(text(ROOMS_LEFT + 165, at, caption, "", FAINT))
            at += LINE
        y += height + 14
    package_parts, y = draw_package(y)
    return parts + package_parts, y


def wrapped(names: list[str], width: int) -> list[str]:
    """Names in lines of at most `width` characters."""
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) + 2 > width:
            lines.append("")
        lines[-1] += f"{', ' if lines[-1] else ''}{name}"
    return lines


def draw_way() -> tuple[list[str], int]:
    """The right column, and where it ends."""
    parts, y, places = [], TOP, {}
    for number, step in enumerate(steps()):
        package = step.files[0].partition("/")[0]
        file_lines = wrapped(list(step.files), 46)
        height = LINE * (1 + len(file_lines)) + PAD + 4
        parts.append(box(WAY_LEFT, y, WAY_WIDTH, height, package))
        parts.append(text(WAY_LEFT + PAD, y + 18, step.title, BOLD))
        right = f'text-anchor="end" {MONO} font-size="11.5"'
        parts.append(text(WAY_LEFT + WAY_WIDTH - PAD, y + 18, step.result, right))
        for line_number, line in enumerate(file_lines, 1):
            parts.append(text(WAY_LEFT + PAD, y + 18 + line_number * LINE, line, MONO, FAINT))
        places[step.title] = (y, y + height)
        if number + 1 < len(steps()):
            middle = WAY_LEFT + WAY_WIDTH / 2
            parts.append(arrow(f"M{middle} {y + height} v11"))
        y += height + 14
    return parts + way_back(places), y


def arrow(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="{FAINT}" marker-end="url(#head)"/>'


def way_back(places: dict[str, tuple[int, int]]) -> list[str]:
    """Strategy.tell: from the verdict back to the strategy, along the left of the column."""
    start = sum(places["verdict"]) // 2
    end = sum(places["Strategy.ask"]) // 2
    label_y = (start + end) // 2
    turned = f'text-anchor="middle" transform="rotate(-90 {WAY_LEFT - 30} {label_y})"'
    return [
        arrow(f"M{WAY_LEFT} {start} h-24 V{end} h20"),
        text(
            WAY_LEFT - 30,
            label_y,
            "Strategy.tell(objective | infeasible), never a fault",
            turned,
            FAINT,
        ),
    ]


def picture() -> str:
    """The SVG text."""
    left, left_end = draw_rooms()
    right, right_end = draw_way()
    height = max(left_end, right_end) + 4
    title, small = f'{BOLD} font-size="17"', 'font-size="12"'
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="system-ui, sans-serif" font-size="12.5">'
    )
    parts = [
        opening,
        "<title>Rooms of greenfast and the way of a candidate</title>",
        HEAD,
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        text(ROOMS_LEFT, 28, "Rooms", title),
        text(ROOMS_LEFT, 47, "each imports only from those above it", small, FAINT),
        text(WAY_LEFT, 28, "A candidate's way", title),
        text(
            WAY_LEFT, 47, "search/loop/evaluate.py, in the loop of search/loop/run.py", small, FAINT
        ),
        *left,
        *right,
        "</svg>\n",
    ]
    return "\n".join(parts)


def pages() -> dict[Path, str]:
    """The picture as the code makes it."""
    return {PICTURE: picture()}


if __name__ == "__main__":
    run_page(__doc__, pages)
