"""Users of `tune` drawn from recorded times, to learn how good their tables are (table_regret).

A user has 4 to 16 workloads (3 where few fit) of one group of compile-time values, and kernels that
were timed on all of them. The other cells inside of the region are the sizes that it calls later.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from bench.gpu.grid_shapes import FAMILIES
from bench.gpu.linear_pool import FORMS
from bench.gpu.measured_gpu import result_of
from bench.gpu.runtime_pool import Point, own_times, stored_points
from bench.results import Row, find_result, read_result
from greenfast.search.devices.facts import device
from greenfast.search.dispatch.waves import Waves, waves_of
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import resolve

ATTENTION_DIMS, GEMM_DIMS = ("B", "H", "H_kv", "S_q", "S_kv"), ("M", "N", "K")
ATTENTION_RESULTS = ("runtime_grid", "runtime_between", "runtime_pool")
LIBRARY_NAMES = ("torch-default", "library")
FEWEST_KERNELS = 3  # that were timed on all workloads of a user
MANY_KERNELS = 12  # a cell on which a whole pool was timed has more
SHARE_TIMED = 0.8  # of a user's kernels, on a cell that it calls later
MOST_WORKLOADS, MOST_DRAWS = 16, 300
LENGTHS = ("S_q", "S_kv")
Compiled = tuple[tuple[str, object], ...]


@dataclass(frozen=True, eq=False)
class Cell:
    """A measured shape."""

    sizes: Mapping[str, int]
    kind: str
    times_us: Mapping[str, float]  # of kernels, by label
    library_us: float


@dataclass(frozen=True)
class Group:
    """Cells of the same compile-time values, and the points behind the labels."""

    kernel: str
    compiled: Compiled
    cells: tuple[Cell, ...]
    points: Mapping[str, Point]
    gpu: str

    def waves(self, label: str) -> Waves | None:
        return _waves(self.kernel, self.points[label].template, self.compiled, _frozen(self, label))


@dataclass(frozen=True)
class User:
    group: Group
    workloads: tuple[Cell, ...]
    kernels: tuple[str, ...]  # labels, sorted
    later: tuple[Cell, ...]


@dataclass(frozen=True)
class Sort:
    """A sort of user: the dims on which its workloads differ; without any, cells at random."""

    kinds: tuple[str, ...]
    axes: tuple[tuple[str, ...], ...] = ()
    fewest: int = 4  # workloads


KINDS = ("encoder", "prefill", "decode", "cross")
SORTS = {
    "attention": {
        "batches": Sort(("encoder",), (("B",),), 3),
        "lengths": Sort(("encoder", "prefill"), (LENGTHS,)),
        "batches and lengths": Sort(("encoder", "prefill"), (("B",), LENGTHS)),
        "decode": Sort(("decode",), (("B",), ("S_kv",))),
        "cross": Sort(("cross",), (("B",), ("S_q",), ("S_kv",))),
        "mixed": Sort(KINDS),
    },
    "gemm": {
        "tokens": Sort(("layer",), (("M",),), 3),
        "layers": Sort(("layer",), (("N", "K"),)),
        "tokens and layers": Sort(("layer",), (("M",), ("N",), ("K",))),
        "mixed": Sort(("layer",)),
    },
}


def groups(kernel: str, dtype: str, gpu: str) -> list[Group]:
    """All recorded cells of a kernel, by compile-time values; none where nothing was measured."""
    return attention_groups(dtype, gpu) if kernel == "attention" else gemm_groups(dtype, gpu)


def attention_groups(dtype: str, gpu: str) -> list[Group]:
    cells: dict[Compiled, dict[tuple[int, ...], Cell]] = defaultdict(dict)
    points: dict[str, Point] = {}
    for name in ATTENTION_RESULTS:
        result = read_result(result_of(name, dtype, gpu))
        points = {**stored_points(result), **points}
        for row in result["rows"]:
            dims = row["dims"]
            kind = FAMILIES[row["family"]].kind if "family" in row else row["shape"].split()[0]
            compiled = (("D", dims["D"]), ("dtype", dtype), ("mask", row["mask"]))
            cell = _cell({name: dims[name] for name in ATTENTION_DIMS}, kind, row, own_times(row))
            _keep(cells[compiled], cell)
    return [
        Group("attention", compiled, tuple(some.values()), points, gpu)
        for compiled, some in sorted(cells.items(), key=repr)
    ]


def gemm_groups(dtype: str, gpu: str) -> list[Group]:
    result = find_result(result_of("linear_grid", dtype, gpu))
    forms = {form.name: form for form in FORMS}
    cells: dict[str, dict[tuple[int, ...], Cell]] = defaultdict(dict)
    for row in result.get("rows", ()):
        own = {name: us for name, us in row["times"].items() if name not in LIBRARY_NAMES}
        sizes = {name: row["dims"][name] for name in GEMM_DIMS}
        _keep(cells[row["form"]], _cell(sizes, "layer", row, own))
    return [
        Group(
            "gemm",
            tuple(forms[form].compiled(dtype).items()),
            tuple(some.values()),
            stored_points(result),
            gpu,
        )
        for form, some in sorted(cells.items())
    ]


def _cell(sizes: Mapping[str, int], kind: str, row: Row, own: Mapping[str, float]) -> Cell:
    (library,) = (row["times"][name] for name in LIBRARY_NAMES if name in row["times"])
    return Cell(sizes, kind, own, library["us"] if isinstance(library, dict) else library)


def _keep(cells: dict[tuple[int, ...], Cell], cell: Cell) -> None:
    """The cell, unless one of its sizes was timed with more kernels."""
    sizes = tuple(cell.sizes.values())
    if sizes not in cells or len(cells[sizes].times_us) < len(cell.times_us):
        cells[sizes] = cell


def _frozen(group: Group, label: str) -> tuple[tuple[str, object], ...]:
    return (("gpu", group.gpu), *group.points[label].parameters.items())


@cache
def _waves(kernel: str, template: str, compiled: Compiled, point: Compiled) -> Waves | None:
    (_, gpu), *parameters = point
    spec = _catalogue().kernel(kernel).template(template)
    complete = complete_parameters(spec, dict(parameters), compiled)  # type: ignore[arg-type]
    model = device(str(gpu))
    values = resolve(spec, complete, compiled, model).values  # type: ignore[arg-type]
    return waves_of(spec, values, model.multiprocessors)


@cache
def _catalogue() -> Catalogue:
    return Catalogue([REPOSITORY_TEMPLATES])


# ---- drawing ----


def users(some: Sequence[Group], sort: Sort, count: int, seed: str) -> Iterator[User]:
    """Up to `count` users, taken from the groups and the sort's kinds in turn."""
    numbers = random.Random(seed)
    places = [
        (group, kinds)
        for group in some
        for kinds in (
            (sort.kinds,) if sort.axes else (*((kind,) for kind in sort.kinds), sort.kinds)
        )
        if any(cell.kind in kinds for cell in group.cells)
    ]
    for number in range(count if places else 0):
        group, kinds = places[number % len(places)]
        user = _drawn(group, kinds, sort, numbers)
        if user is not None:
            yield user


def _drawn(group: Group, kinds: tuple[str, ...], sort: Sort, numbers: random.Random) -> User | None:
    cells = [cell for cell in group.cells if cell.kind in kinds]
    dense = [cell for cell in cells if len(cell.times_us) >= MANY_KERNELS]
    few = dense if not sort.axes and len(dense) > 2 * sort.fewest else cells
    cells = [cell for cell in few if len(cell.times_us) >= FEWEST_KERNELS]
    for _ in range(MOST_DRAWS if len(cells) > sort.fewest else 0):
        workloads = _workloads(cells, sort, numbers)
        if len(workloads) < sort.fewest:
            continue
        kernels = set.intersection(*(set(cell.times_us) for cell in workloads))
        later = _later(group.cells, workloads, kernels)
        if len(kernels) >= FEWEST_KERNELS and later:
            return User(group, workloads, tuple(sorted(kernels)), later)
    return None


def _workloads(cells: Sequence[Cell], sort: Sort, numbers: random.Random) -> tuple[Cell, ...]:
    """Some of the sizes on each axis, on all of their crossings that were measured."""
    if not sort.axes:
        most = min(MOST_WORKLOADS, len(cells) - 1)
        return tuple(numbers.sample(cells, numbers.randint(sort.fewest, most)))
    base, free = numbers.choice(cells), {name for axis in sort.axes for name in axis}
    fixed = {name: size for name, size in base.sizes.items() if name not in free}
    kept = [cell for cell in cells if all(cell.sizes[name] == fixed[name] for name in fixed)]
    fewest, most = {1: (3, 8), 2: (2, 4), 3: (2, 3)}[len(sort.axes)]
    for axis in sort.axes:
        sizes = sorted({tuple(cell.sizes[name] for name in axis) for cell in kept})
        if len(sizes) <= fewest:
            return ()
        some = set(numbers.sample(sizes, numbers.randint(fewest, min(most, len(sizes) - 1))))
        kept = [cell for cell in kept if tuple(cell.sizes[name] for name in axis) in some]
    if len(kept) > MOST_WORKLOADS:
        kept = numbers.sample(kept, MOST_WORKLOADS)
    return tuple(kept)


def _later(cells: Sequence[Cell], workloads: Sequence[Cell], kernels: set[str]) -> tuple[Cell, ...]:
    """The other cells inside of the region on which most of the kernels were timed."""
    region = {
        name: (
            min(cell.sizes[name] for cell in workloads),
            max(cell.sizes[name] for cell in workloads),
        )
        for name in workloads[0].sizes
    }
    return tuple(
        cell
        for cell in cells
        if all(low <= cell.sizes[name] <= high for name, (low, high) in region.items())
        and len(kernels & cell.times_us.keys()) >= SHARE_TIMED * len(kernels)
        and not any(cell is workload for workload in workloads)
    )
