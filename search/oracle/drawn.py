"""Cases of sizes that the author of a candidate cannot know.

A check's sizes follow from kernel.toml and the candidate's tiles, so a candidate can be correct on
exactly those. Drawn sizes follow from a secret that a search draws when it is planned: the same for
all its candidates with the same tiles, and others in the next search.

kernel.toml says of a dim which values it may have, and in `requires` how dims belong together. The
rest is taken from the sizes on which the kernel's checks and workloads run: a drawn size is a
multiple of their greatest common divisor and lies between the smallest and the largest of them. A
dim with a default follows it in every second case, and where one dim always was a multiple of
another, it is so here. A dim that followed its default in all of them leaves it only where the
reference computes such sizes.
"""

from __future__ import annotations

import math
import random
import statistics
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Dim, Items
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.reference import case_data, guard_of, kernel_module

DRAWN_CASES = 3
DRAWN_SHARE = 0.04  # of the derived checks' work, for one drawn case
LEAST_FLOP = 2e5  # which a drawn case may always need
DRAWN_ELEMENTS = 2**19  # of all tensors of a case
ATTEMPTS = 1000  # for all cases together; a case without a valid size is left out
LARGEST_RATIO = 4  # of a dim to one that divides it
ANSWERS_KEPT = 512


@dataclass(frozen=True)
class _Range:
    """The sizes that a dim may be drawn from."""

    smallest: int
    largest_of_checks: int
    largest: int  # of checks and workloads
    multiple: int
    known: frozenset[int]  # sizes of checks and workloads, which an author can know
    values: tuple[int, ...]  # the only ones allowed; empty: any

    @property
    def has_longer(self) -> bool:
        return not self.values and self.largest > self.largest_of_checks + self.multiple

    def draw(self, draws: random.Random) -> int:
        """A size of the checks' range."""
        return self._unknown(
            lambda: draws.uniform(self.smallest, self.largest_of_checks + 1), draws
        )

    def draw_long(self, draws: random.Random) -> int:
        """A size beyond all checks, with short ones as likely as long ones."""
        lowest, highest = math.log(self.largest_of_checks + 1), math.log(self.largest + 0.5)
        return self._unknown(lambda: math.exp(draws.uniform(lowest, highest)), draws)

    def _unknown(self, size_of: Callable[[], float], draws: random.Random) -> int:
        """A size that no check and no workload has, if a few attempts give one."""
        if self.values:
            return draws.choice(self.values)
        size = self.smallest
        for _ in range(8):
            size = max(int(size_of()) // self.multiple * self.multiple, self.multiple)
            if size not in self.known:
                break
        return size


class _Kept:
    """The last answers: candidates with the same tiles have the same cases, drawn in 20 ms.

    Keys use id(kernel), because hashing a kernel walks its whole specification. An answer holds its
    kernel, so that the id is not reused.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, tuple[KernelSpec, tuple[Case, ...]]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> tuple[Case, ...] | None:
        with self._lock:
            _, cases = self._answers.get(key, (None, None))
            if cases is not None:
                self._answers.move_to_end(key)
            return cases

    def put(self, key: Hashable, kernel: KernelSpec, cases: tuple[Case, ...]) -> None:
        with self._lock:
            self._answers[key] = kernel, cases
            while len(self._answers) > ANSWERS_KEPT:
                self._answers.popitem(last=False)


_KEPT = _Kept()


def drawn_cases(
    kernel: KernelSpec, compiled: Items, derived: Sequence[Case], secret: int, seed: int
) -> tuple[Case, ...]:
    """Up to DRAWN_CASES cases of sizes that follow from `secret`; `derived` are the checks' cases.

    Empty for a kernel without checks, or whose dims leave nothing to draw.
    """
    if not derived:
        return ()
    key = id(kernel), compiled, tuple(derived), secret, seed
    cases = _KEPT.get(key)
    if cases is None:
        cases = _drawn(kernel, compiled, derived, secret, seed)
        _KEPT.put(key, kernel, cases)
    return cases


def _drawn(
    kernel: KernelSpec, compiled: Items, derived: Sequence[Case], secret: int, seed: int
) -> tuple[Case, ...]:
    draws = random.Random(f"sizes/{secret}/{kernel.name}")
    known = {case.dims for case in derived}
    padded_flop = padded_flop_of(kernel, derived)
    derived_flop = sum(padded_flop(case.dims, case.options) for case in derived)
    budget_flop = max(DRAWN_SHARE * derived_flop, LEAST_FLOP)
    host = usual_case(derived)
    layouts = sorted({case.layout for case in derived})
    cases: list[Case] = []
    is_allowed = _requirements_met(kernel, derived)
    all_dims = _drawn_dims(kernel, compiled, derived, draws, lambda: len(cases) == DRAWN_CASES - 1)
    for attempt, dims in enumerate(all_dims):
        items = tuple((dim.name, dims[dim.name]) for dim in kernel.dims)
        layout = draws.choice(layouts)  # in each attempt, so that a secret always draws the same
        least_flop = budget_flop / 8 if attempt < ATTEMPTS / 2 else 0.0
        if items in known or _flop(kernel, items, host.options) < least_flop:
            continue  # too small to tell much, as long as there is a choice
        if padded_flop(items, host.options) > budget_flop or not is_allowed(items, host.options):
            continue
        name, case_seed = f"drawn_{len(cases) + 1}", seed + len(cases)
        case = Case(name, items, host.options, host.inputs, layout, case_seed, ())
        if not _fits(kernel, case) or not (
            _follows(kernel, derived, case) or _computes(kernel, case)
        ):
            continue
        known.add(items)
        cases.append(case)
        if len(cases) == DRAWN_CASES:
            break
    return tuple(cases)


@dataclass(frozen=True)
class DimSizes:
    """The sizes that a run-time dim may have: multiples of `multiple` up to `largest`."""

    name: str
    multiple: int
    largest: int  # of checks and workloads


def dim_sizes(kernel: KernelSpec, compiled: Items, derived: Sequence[Case]) -> list[DimSizes]:
    """The run-time dims that depend on no other dim, and may have more than some listed sizes."""
    run_dims = [dim for dim in kernel.dims if dim.time == "run"]
    of_checks, of_workloads = _known_sizes(kernel, compiled, derived)
    divisors = {dim.name: _divisor(dim, run_dims, [*of_checks, *of_workloads]) for dim in run_dims}
    free = [
        dim
        for dim in run_dims
        if not dim.values and divisors[dim.name] is None and dim.name not in divisors.values()
    ]
    ranges = {dim.name: _range(dim, of_checks, of_workloads) for dim in free}
    return [DimSizes(name, each.multiple, each.largest) for name, each in ranges.items()]


def is_allowed(kernel: KernelSpec, derived: Sequence[Case], case: Case) -> bool:
    """Whether a case has sizes as the checks have them, and is small enough."""
    return (
        _requirements_met(kernel, derived)(case.dims, case.options)
        and _follows(kernel, derived, case)
        and _fits(kernel, case)
    )


def _known_sizes(
    kernel: KernelSpec, compiled: Items, derived: Sequence[Case]
) -> tuple[list[dict[str, Value]], list[dict[str, Value]]]:
    """The dims of the checks, and of the workloads with the same compile-time values."""
    return [dict(case.dims) for case in derived], [
        dict(workload.dims)
        for workload in kernel.workloads
        if workload.compile_time(kernel) == compiled
    ]


def usual_case(cases: Iterable[Case]) -> Case:
    """The first case with the inputs that most of them have."""
    cases = list(cases)
    recipes = [case.inputs for case in cases]
    return max(cases, key=lambda case: recipes.count(case.inputs))


def _flop(kernel: KernelSpec, dims: Items, options: Items) -> float:
    return float(kernel.work_flop.amount(kernel.values_of(dict(dims), dict(options))))


def padded_flop_of(kernel: KernelSpec, derived: Sequence[Case]) -> Callable[[Items, Items], float]:
    """The work of a case as blocks do it: a short dim costs about as much as a tile.

    Tiles are taken for as long as the checks' usual sizes.
    """
    usual = {
        dim.name: int(statistics.median_low([int(dict(case.dims)[dim.name]) for case in derived]))
        for dim in kernel.dims
    }

    def padded(dims: Items, options: Items) -> float:
        least = tuple((name, max(int(size), usual[name])) for name, size in dims if name in usual)
        return _flop(kernel, least, options)

    return padded


def _drawn_dims(
    kernel: KernelSpec,
    compiled: Items,
    derived: Sequence[Case],
    draws: random.Random,
    is_last: Callable[[], bool],
) -> Iterator[dict[str, int]]:
    run_dims = [dim for dim in kernel.dims if dim.time == "run"]
    of_checks, of_workloads = _known_sizes(kernel, compiled, derived)
    ranges = {dim.name: _range(dim, of_checks, of_workloads) for dim in run_dims}
    divisors = {dim.name: _divisor(dim, run_dims, [*of_checks, *of_workloads]) for dim in run_dims}
    fixed = {dim.name: int(of_checks[0][dim.name]) for dim in kernel.dims if dim.time == "compile"}
    longer = [dim.name for dim in run_dims if ranges[dim.name].has_longer]
    for _ in range(ATTEMPTS):
        dims = dict(fixed)
        long = draws.choice(longer) if longer and is_last() else None
        # Dims that others are multiples of come first.
        for dim in sorted(run_dims, key=lambda dim: divisors[dim.name] is not None):
            divisor = divisors[dim.name]
            if dim.name == long:
                dims[dim.name] = ranges[dim.name].draw_long(draws)
            elif divisor is None:
                dims[dim.name] = ranges[dim.name].draw(draws)
            else:
                dims[dim.name] = dims[divisor] * draws.randint(1, LARGEST_RATIO)
        for dim in run_dims:
            follows = dim.default is not None and dim.name != long and divisors[dim.name] is None
            if dim.default is not None and follows and draws.random() < 0.5:
                dims[dim.name] = int(dim.default(dims))
        yield dims


def _range(
    dim: Dim, of_checks: Iterable[Mapping[str, Value]], of_workloads: Iterable[Mapping[str, Value]]
) -> _Range:
    checks, workloads = (
        {int(each[dim.name]) for each in sizes} for sizes in (of_checks, of_workloads)
    )
    positive = [size for size in checks if size > 0] or [1]
    largest = max(*positive, *workloads, 1)
    multiple = math.gcd(*positive, *workloads)
    return _Range(
        min(positive), max(positive), largest, multiple, frozenset(checks | workloads), dim.values
    )


def _divisor(dim: Dim, others: Sequence[Dim], sizes: Sequence[Mapping[str, Value]]) -> str | None:
    """The dim that divided this one in every case, and had more than one size and ratio.

    A dim is never its own multiple's multiple: of a pair the later one in kernel.toml divides.
    """
    names = [other.name for other in others]
    for other in names[names.index(dim.name) + 1 :]:
        pairs = {(int(each[dim.name]), int(each[other])) for each in sizes}
        ratios = {size // by for size, by in pairs if by > 0 and size > 0}
        whole = all(by > 0 and size % by == 0 for size, by in pairs if size > 0)
        if whole and len(ratios) > 1 and len({by for _, by in pairs}) > 1:
            return other
    return None


def _requirements_met(
    kernel: KernelSpec, derived: Sequence[Case]
) -> Callable[[Items, Items], bool]:
    """Whether sizes and options meet each requirement that all checks meet."""
    required = [
        requirement.expression
        for requirement in kernel.requirements
        if all(requirement.expression(case.values(kernel)) for case in derived)
    ]

    def met(dims: Items, options: Items) -> bool:
        values = kernel.values_of(dict(dims), dict(options))
        return all(expression(values) for expression in required)

    return met


def _follows(kernel: KernelSpec, derived: Sequence[Case], case: Case) -> bool:
    """Whether each dim has its default's value that has it in all checks and workloads."""
    cases = [
        *(dict(each.dims) for each in derived),
        *(dict(workload.dims) for workload in kernel.workloads),
    ]
    dims = dict(case.dims)
    return not any(
        dim.default is not None
        and dims[dim.name] != dim.default(dims)
        and all(sizes[dim.name] == dim.default(sizes) for sizes in cases)
        for dim in kernel.dims
    )


def _computes(kernel: KernelSpec, case: Case) -> bool:
    """Whether the reference takes the sizes; SpecError if it does not end."""
    try:
        case_data(kernel, case)
    except SpecError as error:
        if error.code == "reference_failed":
            return False
        raise
    return True


def _fits(kernel: KernelSpec, case: Case) -> bool:
    """Whether a case is small enough, and one that reference.py takes."""
    dims = dict(case.dims)
    elements = sum(
        math.prod(int(dims[name]) for name in argument.shape)
        for argument in kernel.arguments
        if argument.kind != "scalar"
    )
    if elements > DRAWN_ELEMENTS or not _flop(kernel, case.dims, case.options) > 0:
        return False
    module, guard = kernel_module(kernel), guard_of(kernel)
    if guard is not None:
        return guard.takes_sizes(kernel, case)
    try:
        module.make_inputs(dims, dict(case.options), case.inputs, case.seed, {})
    except SpecError:
        raise
    except Exception:  # sizes that the author's own inputs refuse are none of this kernel
        return False
    return True
