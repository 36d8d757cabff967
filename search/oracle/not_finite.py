"""Inputs that hold one NaN or one infinity, and what is correct then.

The reference says it: the output is NaN where the reference gives NaN, and elsewhere what it gives.
A NaN must not leak: elements that do not depend on it stay finite and within their bound.

An element depends on an input's element when it changes as that changes from one finite value to
another. Where the reference gives NaN without that, as 0 * NaN does for a key that a mask hides, a
kernel may as well skip the product: any output is correct there.

The NaN or infinity goes into the data, the floating-point inputs with the most dims; scales and
weights, which have fewer, may be preconditions of the kernel (attention_fp8's scales are > 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import Case

Inputs = Mapping[str, np.ndarray]
Outputs = Mapping[str, Mapping[str, Any]]  # output -> "value", "bound"
Reference = Callable[[Inputs], Outputs]

# Names of what an input holds: for people, and for `planted`.
PLANTED = {"NaN": math.nan, "infinity": math.inf}
_WITH = ", one {what} in {argument}"
# Where the reference gives a finite value but no bound, only NaN and infinities are wrong.
ANY_FINITE = float(np.finfo(np.float64).max)
LONELY = -2.0  # the roominess of a size of 1
ROOM_TO_SPARE = 2.0  # of _roominess, given up for less work
FLOATING = ("fp16", "bf16", "float32")


@dataclass(frozen=True)
class Planted:
    """An input that holds one value which is not finite."""

    recipe: str  # of all other values
    value: float
    argument: str


def planted(inputs: str) -> Planted | None:
    """The planted value that a case's `inputs` name; None for a plain recipe."""
    recipe, comma, rest = inputs.partition(", one ")
    what, _, argument = rest.partition(" in ")
    return Planted(recipe, PLANTED[what], argument) if comma and what in PLANTED else None


def not_finite_cases(
    kernel: KernelSpec, derived: Sequence[Case], is_taken: Callable[[Case], bool]
) -> tuple[Case, ...]:
    """A NaN in each input, and an infinity in the last one, on the sizes of a small check.

    An infinity elsewhere may leave a row of scores with nothing but minus infinity, of which
    nobody says whether it is a row without keys. Empty where no input can hold such values. Left
    out are those that reference.py does not take.
    """
    host = _host(kernel, derived)
    if host is None:
        return ()
    cases = (
        replace(
            host,
            name=f"{what.lower()}_in_{argument}",
            inputs=host.inputs + _WITH.format(what=what, argument=argument),
        )
        for argument, what in _pairs(_data_arguments(kernel, host))
    )
    return tuple(case for case in cases if is_taken(case))


def with_planted(
    case: Case, put: Planted, inputs: Inputs, outputs: Outputs, reference: Reference
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """Inputs with the value in its place, and for each output the fields of Expected.

    `inputs` and `outputs` are those of the recipe alone.
    """
    place = _place(inputs[put.argument].shape, case.seed)
    before = float(inputs[put.argument][place])
    with np.errstate(all="ignore"):
        changed = _with(inputs, put.argument, place, put.value)
        expected = reference(changed)
        moved = reference(_with(inputs, put.argument, place, -before - math.copysign(1.0, before)))
        return changed, {
            name: _expected(fields, expected[name], moved[name]) for name, fields in outputs.items()
        }


def _pairs(arguments: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, "NaN") for name in arguments] + [(name, "infinity") for name in arguments[-1:]]


def _host(kernel: KernelSpec, derived: Iterable[Case]) -> Case | None:
    """A check with ordinary inputs that is large enough in most dims, and small in its work."""
    derived = [case for case in derived if _flop(kernel, case) > 0]
    recipes = [case.inputs for case in derived]
    usual = [
        case for case in derived if recipes.count(case.inputs) == max(map(recipes.count, recipes))
    ]
    most = max(map(_roominess, usual), default=0.0)
    return min(
        (case for case in usual if _roominess(case) >= most - ROOM_TO_SPARE),
        key=lambda case: (_flop(kernel, case), -_roominess(case), case.seed),
        default=None,
    )


def _roominess(case: Case) -> float:
    """How far a case's sizes are from 1, dim by dim; beyond 16 nothing is gained.

    A size of 1 leaves no neighbour that a NaN could leak to.
    """
    sizes = [int(size) for _, size in case.dims]
    return sum(math.log2(min(size, 16)) if size > 1 else LONELY for size in sizes)


def _flop(kernel: KernelSpec, case: Case) -> float:
    return float(kernel.work_flop(case.values(kernel)))


def _data_arguments(kernel: KernelSpec, case: Case) -> list[str]:
    dtype = dict(case.options).get("dtype")
    inputs = [argument for argument in kernel.arguments if argument.kind == "input"]
    most = max((len(argument.shape) for argument in inputs), default=0)
    return [
        argument.name
        for argument in inputs
        if len(argument.shape) == most
        and (dtype if argument.dtype == "dtype" else argument.dtype) in FLOATING
    ]


def _place(shape: tuple[int, ...], seed: int) -> tuple[int, ...]:
    """An element in the middle of things, where neighbours on both sides could be hurt."""
    random = np.random.default_rng([seed, *shape])
    return tuple(
        int(random.integers(size // 4, max(size - size // 4, size // 4 + 1))) for size in shape
    )


def _with(
    inputs: Inputs, argument: str, place: tuple[int, ...], value: float
) -> dict[str, np.ndarray]:
    changed = inputs[argument].copy()
    changed[place] = value
    return {**inputs, argument: changed}


def _expected(
    plain: Mapping[str, Any], planted_output: Mapping[str, Any], moved_output: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    value = np.asarray(planted_output["value"], np.float64)
    bound = np.asarray(planted_output["bound"], np.float64)
    depends = np.asarray(moved_output["value"]) != plain["value"]
    undefined = np.isnan(value) & ~depends
    unchanged = value == plain["value"]
    bound = np.where(np.isfinite(bound), bound, np.where(unchanged, plain["bound"], ANY_FINITE))
    return {"value": value, "bound": bound, "undefined": undefined}
