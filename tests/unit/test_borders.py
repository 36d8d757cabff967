"""Imports go one way, between packages and between rooms, and third parties stay in their rooms."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A package or room imports only itself and its predecessors. docs/architecture.md describes the
# groups; the order within a group matters, too.
PACKAGES = ("search", "db", "app")
SEARCH = (
    "errors",
    "status",
    "text",
    "json_values",
    "digest",
    "cpu_time",
    "children",
    "confinement",
    "cores",
    "scratch",
    "compute_turns",
    "shipped",
    "verdict",
    "timing",
    "acceptance",
    "kernels",
    "devices",
    "space",
    "oracle",
    "rendering",
    "render",
    "toolchain",
    "strategies",
    "recordings",
    "targets",
    "gates",
    "executors",
    "dispatch",
    "loop",
    "diagnose",
    "peers",
)
APP = ("settings", "history", "wiring", "views", "bundle", "routes", "dashboard", "service", "cli")
ROOMS = {"search": SEARCH, "app": APP}

THIRD_PARTIES = {
    "cupy": ("search/targets/cuda/", "search/peers/duel.py"),
    "torch": ("search/peers/duel.py", "greenfast/runtime/", "greenfast/tracing.py"),
    "pynvml": ("search/targets/cuda/",),
    "cuda": ("search/toolchain/", "search/targets/cuda/", "app/cli/doctor_checks.py"),
    "ray": ("search/executors/ray_cluster.py",),
    "optuna": ("search/strategies/",),
    "jinja2": ("search/rendering/", "app/dashboard/"),
    "sqlalchemy": ("db/",),
    "alembic": ("db/",),
    "fastapi": ("app/",),
    "starlette": ("app/",),
    "typer": ("app/cli/",),
    "plotly": ("app/dashboard/",),
    "pygments": ("app/dashboard/",),
    "httpx": ("greenfast/client.py",),
}


@dataclass(frozen=True)
class Import:
    """`file` imports `module`, written out whole: `greenfast.search.cores`, `numpy`."""

    file: str
    module: str


def _imported(path: Path) -> list[str]:
    """Modules that a file imports anywhere in it; `from package import module` names the module."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            deeper = module.startswith("greenfast") and module.count(".") < 2
            modules += [f"{module}.{alias.name}" for alias in node.names] if deeper else [module]
    return modules


@cache
def _imports() -> tuple[Import, ...]:
    """Every import statement of the package; what is only downloaded with a bundle is data here."""
    files = sorted(
        path
        for package in ("greenfast", *PACKAGES)
        for path in (ROOT / package).rglob("*.py")
        if not path.is_relative_to(ROOT / "app" / "bundle" / "files")
    )
    return tuple(
        Import(path.relative_to(ROOT).as_posix(), module)
        for path in files
        for module in _imported(path)
    )


def _room(name: str) -> str:
    return name.removesuffix(".py")


def test_there_is_something_to_walk():
    assert len(_imports()) > 500
    assert len({statement.file.partition("/")[0] for statement in _imports()}) == 4


def test_packages_import_one_way_only():
    wrong = []
    for statement in _imports():
        package, parts = statement.file.partition("/")[0], statement.module.split(".")
        assert parts[0] not in (*PACKAGES, "tests", "bench"), statement
        if (
            package in PACKAGES
            and parts[0] == "greenfast"
            and len(parts) > 1
            and parts[1] in PACKAGES
            and PACKAGES.index(parts[1]) > PACKAGES.index(package)
        ):
            wrong.append(statement)
    assert wrong == []


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_are_listed(package):
    there = {
        _room(path.name)
        for path in (ROOT / package).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    } - {"__init__"}
    assert there == set(ROOMS[package])


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_import_one_way_only(package):
    order, wrong = ROOMS[package], []
    for statement in _imports():
        parts = statement.module.split(".")
        if (
            statement.file.split("/")[0] != package
            or parts[:2] != ["greenfast", package]
            or len(parts) < 3
        ):
            continue
        own = _room(statement.file.split("/")[1])
        if own != parts[2] and own != "__init__" and order.index(parts[2]) >= order.index(own):
            wrong.append(statement)
    assert wrong == []


def test_files_of_a_room_import_without_circles():
    """Within a room, too: no file reaches itself over its imports."""
    modules = {
        "greenfast."
        + statement.file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for statement in _imports()
        if statement.file.split("/")[0] in PACKAGES
    }
    edges: dict[str, set[str]] = {module: set() for module in modules}
    for statement in _imports():
        own = "greenfast." + statement.file.removesuffix(".py").replace("/", ".")
        if (
            own in edges and statement.module in modules
        ):  # a package's __init__ may gather its own files
            edges[own].add(statement.module)

    circles: list[tuple[str, ...]] = []
    visited: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        if module in visited:
            return
        if module in path:
            circles.append(path[path.index(module) :])
            return
        for imported in edges[module]:
            visit(imported, (*path, module))
        visited.add(module)

    for module in sorted(edges):
        visit(module, ())
    assert circles == []


@pytest.mark.parametrize("party", THIRD_PARTIES)
def test_a_third_party_stays_in_its_room(party):
    files = [statement.file for statement in _imports() if statement.module.split(".")[0] == party]
    assert [file for file in files if not file.startswith(THIRD_PARTIES[party])] == []


def test_every_allowance_is_for_a_place_that_is_there():
    assert [
        place
        for places in THIRD_PARTIES.values()
        for place in places
        if not (ROOT / place).exists()
    ] == []


def test_concrete_stores_targets_and_toolchains_are_named_in_wiring_only():
    named = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "app").rglob("*.py")
        if "Toolchain(" in path.read_text() or "Store.open(" in path.read_text()
    ]
    assert set(named) <= {"app/wiring.py"}
