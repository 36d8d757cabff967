"""From tensors to a plan: what is checked, chosen and prepared on the first call of a signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from greenfast.runtime.driver import DeviceFacts, device_facts, driver
from greenfast.runtime.frameworks import Framework
from greenfast.runtime.kernel_set import Choice, KernelSet
from greenfast.runtime.layouts import copies_for, misaligned_sentence
from greenfast.runtime.modules import MODULES
from greenfast.runtime.operation import Operation, completed, sizes
from greenfast.runtime.plan import CudaPlan
from greenfast.runtime.program import (
    Geometry,
    Program,
    Strides,
    TensorFacts,
    geometry,
    mismatch,
)
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.kernels.expressions import Value
from greenfast.search.text import shortened

SMALLEST_SCALE = 2.0**-126  # below it, a float32 may be 0
LARGEST_FLOAT32 = 3.4028234663852886e38
NO_COPIES: Mapping[str, TensorFacts] = MappingProxyType({})


# Refusals that a tensor's place in memory causes: a copy elsewhere may be accepted.
LAYOUT = frozenset(("bad_strides", "tensor_map"))
Planned = TypeVar("Planned")


@dataclass(frozen=True)
class Call:
    """A call without its memory."""

    tensors: Mapping[str, TensorFacts]
    options: Mapping[str, Value]
    constants: Mapping[str, Value]  # scale, eps: where the caller gives them
    without: frozenset[str] = frozenset()  # optional outputs that are not requested
    misaligned: frozenset[str] = frozenset()  # tensors whose addresses the kernels cannot take


@dataclass(frozen=True)
class Prepared:
    """A plan; tensors in `copies` are copied first, or copied back, in the layout given there."""

    plan: CudaPlan
    choice: Choice
    copies: Mapping[str, TensorFacts] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """No kernel of the set takes the call; `why` is for the log and for `explain`.

    `always`: it holds for every call of this signature, not for this one's memory alone.
    """

    why: str
    always: bool = False


def prepare(
    kernels: KernelSet, call: Call, device: int, *, may_copy: bool = False
) -> Prepared | Refused:
    """The plan of a call on a CUDA device, or the reason why the set has none."""
    try:
        facts = device_facts(device)
        choice = choose(kernels, call)
    except GreenfastError as error:
        return Refused(error.message, always=True)
    settled = settle(
        kernels,
        choice,
        call,
        lambda program, adapted: _plan(program, adapted, facts),
        may_copy=may_copy,
    )
    if isinstance(settled, Refused):
        return settled
    return Prepared(settled.plan, settled.choice, settled.copies)


@dataclass(frozen=True)
class Settled(Generic[Planned]):
    """A call that a kernel takes, if tensors in `copies` are copied to these layouts."""

    plan: Planned
    choice: Choice
    call: Call
    copies: Mapping[str, TensorFacts]


def settle(
    kernels: KernelSet,
    choice: Choice,
    call: Call,
    plan: Callable[[Program, Call], Planned],
    *,
    may_copy: bool,
) -> Settled[Planned] | Refused:
    """The first kernel that takes the call: the chosen one, another one, or one with copies.

    `plan` raises what a kernel refuses. With `may_copy`, tensors that no kernel can read where they
    lie are copied; otherwise a set that was measured against a library leaves them to it.
    """
    if (chosen := choice.program) is None:
        return Refused(choice.why, always=True)
    first = _planned(chosen, call, plan)
    if not isinstance(first, _Hindrance):
        return Settled(first, choice, call, NO_COPIES)
    hindrances = [(chosen, first)]
    by_place = may_copy and first.by_place
    for program in kernels.alike(chosen) if by_place else kernels.instead_of(chosen):
        other = _planned(program, call, plan)
        if not isinstance(other, _Hindrance):
            why = f"{chosen.name} cannot run it: {first.why}"
            return Settled(other, Choice(program, why), call, NO_COPIES)
        hindrances.append((program, other))
    reasons = [hindrance.why for _, hindrance in hindrances]
    for program, hindrance in hindrances if may_copy else ():
        if hindrance.by_place:
            settled = _with_copies(program, choice, call, plan)
            if isinstance(settled, Settled):
                return settled
            reasons.append(settled.why)
    return Refused("; ".join(dict.fromkeys(reasons)), always=not call.misaligned)


@dataclass(frozen=True)
class _Hindrance:
    """Why a kernel does not take a call, and whether that is due to where its tensors lie."""

    why: str
    by_place: bool


def _planned(
    program: Program, call: Call, plan: Callable[[Program, Call], Planned]
) -> Planned | _Hindrance:
    if call.misaligned:
        pointer_bytes = program.operation.pointer_bytes
        sentences = (misaligned_sentence(name, pointer_bytes) for name in sorted(call.misaligned))
        return _Hindrance("; ".join(sentences), by_place=True)
    try:
        return plan(program, call)
    except GreenfastError as error:
        return _Hindrance(error.message, error.code in LAYOUT)


def _with_copies(
    program: Program, choice: Choice, call: Call, plan: Callable[[Program, Call], Planned]
) -> Settled[Planned] | _Hindrance:
    """The call with copies of the tensors that the kernel cannot read."""
    needed = copies_for(program, call.tensors, call.misaligned)
    copies = {name: facts for name, (facts, _) in needed.items()}
    adapted = replace(call, tensors={**call.tensors, **copies}, misaligned=frozenset())
    planned_call = _planned(program, adapted, plan)
    if isinstance(planned_call, _Hindrance):
        return planned_call
    reasons = "; ".join(why for _, why in needed.values())
    why = f"{choice.why}; it runs on a copy of {' and '.join(needed)}, because {reasons}"
    measured = choice.measured if program is choice.program else ()
    return Settled(planned_call, Choice(program, why, measured), adapted, copies)


def _plan(program: Program, call: Call, facts: DeviceFacts) -> CudaPlan:
    shapes = planned(program, call)
    functions = [
        MODULES.function(driver(), program, facts, launch.entry, launch.smem_dynamic_bytes)
        for launch in shapes.launches
    ]
    return CudaPlan(driver(), program, shapes, functions, facts.ordinal)


def choose(kernels: KernelSet, call: Call) -> Choice:
    """The program for a call; UsageError if shapes contradict each other."""
    if why := untried_constant(kernels.operation.name, call.constants):
        return Choice(None, why)
    values = call_values(kernels.operation, call)
    dtypes = {name: facts.dtype for name, facts in call.tensors.items()}
    if "dtype" in dict(kernels.operation.options):
        values["dtype"] = call_dtype(kernels.operation, dtypes)
    return kernels.choose(values, dtypes)


def untried_constant(operation: str, constants: Mapping[str, Value]) -> str:
    """Why the kernels, which were checked with their defaults, are not right for these constants.

    Attention takes the largest score of a row before it scales, so a scale has to be above 0.
    """
    scale, eps = constants.get("scale"), constants.get("eps")
    if (
        operation in ("attention", "attention_fp8")
        and isinstance(scale, Real)
        and not SMALLEST_SCALE <= scale <= LARGEST_FLOAT32
    ):
        return f"the scale is {shortened(repr(scale), 40)}; the kernels take positive ones"
    if operation == "rmsnorm" and isinstance(eps, Real) and not 0 <= eps <= LARGEST_FLOAT32:
        return f"eps is {shortened(repr(eps), 40)}; the kernels take none below 0"
    return ""


def call_values(operation: Operation, call: Call) -> dict[str, Value]:
    """Dims and options of the call."""
    shapes = {name: facts.shape for name, facts in call.tensors.items()}
    return completed(operation, {**sizes(operation, shapes), **call.options})


def call_dtype(operation: Operation, dtypes: Mapping[str, str]) -> str:
    """The value of the option `dtype`: the type of the first input that follows it."""
    for argument in operation.tensors:
        if argument.dtype == "dtype" and argument.name in dtypes:
            return dtypes[argument.name]
    return ""


def planned(program: Program, call: Call) -> Geometry:
    """The geometry of a call; outputs follow the first input of the same dims in memory order."""
    why = mismatch(
        program, {name: facts.dtype for name, facts in call.tensors.items()}, call.options
    )
    if why:
        raise UsageError(why, code="other_kernel")
    return geometry(
        program,
        call.tensors,
        call.constants,
        without=call.without,
        output_strides=output_strides(program.operation, call.tensors),
    )


def output_strides(operation: Operation, tensors: Mapping[str, TensorFacts]) -> dict[str, Strides]:
    strides = {}
    for argument in operation.tensors:
        if not argument.output or argument.name in tensors or not argument.free_strides:
            continue
        for other in operation.tensors:
            if other.name in tensors and other.shape == argument.shape:
                strides[argument.name] = dense_strides(tensors[other.name])
                break
    return strides


def dense_strides(facts: TensorFacts) -> Strides:
    """Strides without gaps, with the axes in the memory order of `facts`; the last stays 1."""
    rank = len(facts.shape)
    order = sorted(range(rank - 1), key=lambda axis: (-facts.strides[axis], axis))
    strides, step = [1] * rank, max(facts.shape[-1], 1) if rank else 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(facts.shape[axis], 1)
    return tuple(strides)


def run(
    plan: CudaPlan,
    framework: Framework,
    tensors: Mapping[str, Any],
    like: Any,
    stream: int,
    copies: Mapping[str, TensorFacts] = NO_COPIES,
) -> None:
    """Launch a plan on tensors by name, with fresh scratch memory and copies."""
    memory = dict(tensors)
    for name, facts in copies.items():
        part = _without_repeats(facts)
        memory[name] = framework.empty(replace(facts, shape=_shape_of(facts, part)), like)
        if name not in plan.geometry.outputs:
            framework.copy(memory[name], tensors[name][part])
    for name, size, zero_fill in plan.scratch:
        memory[name] = framework.scratch(max(size, 16), like)
        if zero_fill and size:
            plan.driver.zero(framework.address(memory[name]), size, stream)
    plan.launch([framework.address(memory[name]) for name in plan.names], stream)
    for name in copies:
        if name in plan.geometry.outputs:
            framework.copy(tensors[name], memory[name])


def _without_repeats(facts: TensorFacts) -> tuple[slice, ...]:
    """The part of a tensor that holds all of its elements, where it is expanded."""
    return tuple(slice(0, 1) if stride == 0 else slice(None) for stride in facts.strides)


def _shape_of(facts: TensorFacts, part: tuple[slice, ...]) -> tuple[int, ...]:
    return tuple(len(range(size)[piece]) for size, piece in zip(facts.shape, part, strict=True))
