"""Inputs that hold one NaN or one infinity, and what is correct then.

The reference says it. The output is NaN or infinite where the reference gives that, and a NaN must
not leak: what does not depend on it stays as it was, within its bound. A reference in which a NaN
may be dropped says so by np.fmax and np.fmin, which drop it, in place of np.maximum.

Four kinds of elements are left open, because kernels may differ there and be correct:
- The reference gives NaN, yet the element does not depend on the input's. (It does when it changes
  as that changes from one finite value to another.) So it is with 0 * NaN for a key that a mask
  hides: a kernel may as well skip the product.
- The reference gives another finite value than without the NaN or infinity. A comparison or a
  clip hid it, and code that compares the other way round gives another result.
- The reference gives an infinity, and NaN where its intermediate results are rounded ("rounded"):
  a probability of 1e-9 times infinity, which in fp16 is 0 times infinity.
- The reference gives NaN or infinity in an output of whole numbers (comparison.py).

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
# E4M3 has no infinities, and conversions to both saturate or do not, as the kernel chooses.
FORMATS_THAT_SATURATE = frozenset({"e4m3", "e5m2"})
LONELY = -2.0  # the roominess of a size of 1
ROOM_TO_SPARE = 2.0  # of _roominess, given up for less work
EARLY = 16  # rows
FLOATING = ("fp16", "bf16", "float32", "float64")


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
    nobody says whether it is a row without keys; in a kernel that converts to an 8-bit format it
    may saturate. Empty if no input can hold such values. Left out are those that reference.py
    does not take.
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
        for argument, what in _pairs(kernel, _data_arguments(kernel, host))
    )
    return tuple(case for case in cases if is_taken(case))


def planted_inputs(seed: int, put: Planted, inputs: Inputs) -> dict[str, np.ndarray]:
    """The inputs of the recipe alone, with the value in its place."""
    place = _place(inputs[put.argument].shape, seed)
    with np.errstate(all="ignore"):
        return _with(inputs, put.argument, place, put.value)


def with_planted(
    seed: int, put: Planted, inputs: Inputs, outputs: Outputs, reference: Reference
) -> dict[str, dict[str, np.ndarray]]:
    """For each output the fields of Expected, with the value in its place.

    `inputs` and `outputs` are those of the recipe alone.
    """
    place = _place(inputs[put.argument].shape, seed)
    before = float(inputs[put.argument][place])
    with np.errstate(all="ignore"):
        expected = reference(_with(inputs, put.argument, place, put.value))
        moved = reference(_with(inputs, put.argument, place, -before - math.copysign(1.0, before)))
        return {
            name: _expected(fields, expected[name], moved[name]) for name, fields in outputs.items()
        }


def _pairs(kernel: KernelSpec, arguments: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [(name, "NaN") for name in arguments]
    if any(FORMATS_THAT_SATURATE & set(option.values) for option in kernel.options):
        return pairs
    return pairs + [(name, "infinity") for name in arguments[-1:]]


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
    sizes = [size for _, size in case.dims if isinstance(size, int)]
    return sum(math.log2(min(size, 16)) if size > 1 else LONELY for size in sizes)


def _flop(kernel: KernelSpec, case: Case) -> float:
    return case.flop(kernel)


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
    """An element with neighbours on both sides, which a leak would hurt.

    Its row is an early one, of which a causal mask leaves something to see.
    """
    random = np.random.default_rng([seed, *shape])
    spans = [min(size, EARLY) for size in shape[:-1]] + [*shape[-1:]]
    return tuple(
        int(random.integers(span // 4, max(span - span // 4, span // 4 + 1))) for span in spans
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
    unchanged = value == plain["value"]
    undefined = (np.isnan(value) & ~depends) | (np.isfinite(value) & ~unchanged)
    if planted_output.get("rounded") is not None:
        rounded = np.asarray(planted_output["rounded"], np.float64)
        undefined |= np.isinf(value) & np.isnan(rounded)
    bound = np.where(np.isfinite(bound), bound, plain["bound"])
    return {"value": value, "bound": bound, "undefined": undefined}
