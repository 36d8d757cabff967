"""From tensors to a plan: what is checked, chosen and prepared on the first call of a signature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from greenfast.runtime.driver import DeviceFacts, device_facts, driver
from greenfast.runtime.frameworks import Framework
from greenfast.runtime.kernel_set import Choice, KernelSet
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


@dataclass(frozen=True)
class Call:
    """A call without its memory."""

    tensors: Mapping[str, TensorFacts]
    options: Mapping[str, Value]
    constants: Mapping[str, Value]  # scale, eps: where the caller gives them
    without: frozenset[str] = frozenset()  # optional outputs that are not requested


@dataclass(frozen=True)
class Prepared:
    plan: CudaPlan
    choice: Choice


@dataclass(frozen=True)
class Refused:
    """No kernel of the set takes the call; `why` is for the log and for `explain`.

    `always`: it holds for every call of this signature, not for this one's memory alone.
    """

    why: str
    always: bool = False


def prepare(kernels: KernelSet, call: Call, device: int) -> Prepared | Refused:
    """The plan of a call on a CUDA device, or the reason why the set has none."""
    try:
        facts = device_facts(device)
        choice = choose(kernels, call)
    except GreenfastError as error:
        return Refused(error.message, always=True)
    if choice.program is None:
        return Refused(choice.why, always=True)
    refusals: list[str] = []
    for program in (choice.program, *kernels.instead_of(choice.program)):
        try:
            plan = _plan(program, call, facts)
        except GreenfastError as error:
            refusals.append(error.message)
            continue
        if not refusals:
            return Prepared(plan, choice)
        why = f"{choice.program.name} cannot run it: {refusals[0]}"
        return Prepared(plan, Choice(program, why))
    return Refused("; ".join(dict.fromkeys(refusals)), always=True)


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
    plan: CudaPlan, framework: Framework, tensors: Mapping[str, Any], like: Any, stream: int
) -> None:
    """Launch a plan on tensors by name, with fresh scratch memory."""
    memory = dict(tensors)
    for name, size, zero_fill in plan.scratch:
        memory[name] = framework.scratch(max(size, 16), like)
        if zero_fill and size:
            plan.driver.zero(framework.address(memory[name]), size, stream)
    plan.launch([framework.address(memory[name]) for name in plan.names], stream)


def misaligned(operation: Operation, addresses: Mapping[str, int]) -> str:
    """Why the addresses do not fit; empty when they do."""
    for name, address in addresses.items():
        if address % operation.pointer_bytes:
            return f"{name} begins at no multiple of {operation.pointer_bytes} bytes"
    return ""
