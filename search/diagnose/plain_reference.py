"""A plain kernel taken as truth: what the unmodified text computes, run on the emulator.

reference.py of a kernel that `greenfast import` wrote calls `plain_outputs`. Such a reference finds
where a candidate differs from the plain kernel. It cannot find a mistake that both make.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.diagnose.order_dependence import shown_number, steps_between
from greenfast.search.errors import SpecError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.expressions import expression
from greenfast.search.kernels.template_text import Line
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import (
    GivenArgument,
    LaunchPlan,
    Problem,
    Scalar,
    Tensor,
    WorkspaceMemory,
    poison_of,
)
from greenfast.search.oracle.storage import DTYPES
from greenfast.search.render import assemble
from greenfast.search.scratch import scratch_of
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Execution, Runner, runner
from greenfast.search.targets.emulator.target import CannotCompile
from greenfast.search.text import one_line
from greenfast.search.verdict import Reason

TARGET = "emulator:h200"
_FIRST_INCLUDES = re.compile(r"(?:(?:[ \t]*(?://[^\n]*)?\n)*[ \t]*#[ \t]*include[ \t]*<[^\n]*\n)*")
_FITTING = (
    "correct the plain kernel; or, where it does not take such a size, import again with "
    "--multiple NAME=64, or remove the check from kernel.toml"
)
# Times what rounding explains: an imported kernel may be given a wide tolerance.
STEPS_OF_ANOTHER_ANSWER = 16
MENDS = {
    Reason.MISALIGNED: _FITTING,
    Reason.LAUNCH_ERROR: _FITTING,
    Reason.TIMEOUT: "take smaller sizes, or compute the outputs with NumPy",
    Reason.OUT_OF_BOUNDS: "correct the plain kernel; or, where it uses an input as an index, let "
    "make_inputs of reference.py draw valid ones; or, where it does not take such a size, import "
    "again with --multiple NAME=64, or with numbers for the sizes that do not change, or remove "
    "the check from kernel.toml",
}


@dataclass(frozen=True)
class PlainKernel:
    """A CUDA text, its entry, and the sizes of its launch.

    `first_entry`, if there is one, runs before it in a block of 256 threads with the same
    arguments. `scratch`: (name, bytes, whether it begins as zeros) of each memory that is neither
    an input nor an output.
    """

    text: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_dynamic_bytes: int = 0
    first_entry: str = ""
    scratch: Sequence[tuple[str, int, bool]] = ()

    @property
    def memories(self) -> tuple[WorkspaceMemory, ...]:
        return tuple(WorkspaceMemory(*each) for each in self.scratch)


def value_of(text: str, values: Mapping[str, float]) -> float:
    """The value of an expression of the launch, in kernel.toml's language."""
    return float(expression(text, "the launch of the plain kernel")(values))


def three(sizes: Sequence[float]) -> tuple[int, int, int]:
    """One to three sizes of a launch as three whole numbers."""
    x, y, z = (*(int(size) for size in sizes), 1, 1)[:3]
    return x, y, z


Outputs = Mapping[str, tuple[str, tuple[int, ...]]]
Arguments = Sequence[str | tuple[str, float]]


def plain_outputs(
    kernel: PlainKernel,
    inputs: Mapping[str, np.ndarray],
    outputs: Outputs,
    arguments: Arguments,
    whole: bool = False,
) -> dict[str, np.ndarray]:
    """The outputs of one run, in float64; with `whole`, an int64 output stays as it is.

    `outputs` gives type and shape by name. `arguments` are names of tensors and of scratch memory,
    or (type, value) for scalars. SpecError when the plain kernel does not run to its end, leaves
    elements unwritten or reads an output before it writes it.
    """
    images = _images(kernel, inputs, outputs, arguments, None)
    for name, (dtype, shape) in outputs.items():
        values = images[name].reshape(-1, DTYPES[dtype].itemsize)
        # In an integer the poison is a number, so it shows over another start only.
        untouched = (values == poison_of(DTYPES[dtype])).all(axis=1)
        if values.size and (untouched.any() or _holds_nan(values, dtype)):
            again = _images(kernel, inputs, outputs, arguments, 0)[name]
            again = again.reshape(values.shape)
            _require_written(kernel, name, (dtype, shape), values, again, untouched)
        if values.size and _holds_nan(values, dtype):
            _require_clean(kernel, inputs, outputs, arguments, name)
    return {
        name: image.view(DTYPES[dtype])
        .reshape(shape)
        .astype(np.int64 if whole and dtype == "int64" else np.float64)
        for (name, (dtype, shape)), image in zip(outputs.items(), images.values(), strict=True)
    }


def _require_clean(
    kernel: PlainKernel,
    inputs: Mapping[str, np.ndarray],
    outputs: Outputs,
    arguments: Arguments,
    name: str,
) -> None:
    """SpecError for NaN in `name` after an access that the checks of `greenfast check` find."""
    tensors, passed = _laid_out(kernel, inputs, outputs, arguments, None)
    program, problem = _program(kernel), _problem(kernel, tuple(tensors.values()), passed)
    for run in _target().check(program, [problem], is_called_once=True) or ():
        for finding in run.findings:
            raise SpecError(
                f"the plain kernel {kernel.entry} computes NaN for {name} at these sizes: "
                f"{finding.sentence}",
                code="reference_failed",
                mend=MENDS[Reason.OUT_OF_BOUNDS],
            )


def _holds_nan(values: np.ndarray, dtype: str) -> bool:
    return not np.issubdtype(DTYPES[dtype], np.integer) and bool(
        np.isnan(np.ascontiguousarray(values).view(DTYPES[dtype]).astype(np.float64)).any()
    )


def _require_written(
    kernel: PlainKernel,
    name: str,
    kind: tuple[str, tuple[int, ...]],
    over_poison: np.ndarray,
    over_zeros: np.ndarray,
    untouched: np.ndarray,
) -> None:
    """SpecError for elements that are as they were before, or that depend on it."""
    entry, (dtype, shape) = kernel.entry, kind
    unwritten = untouched & (over_zeros == 0).all(axis=1)
    if unwritten.all():
        raise SpecError(
            f"the plain kernel {entry} writes nothing to {name}",
            code="reference_failed",
            mend=" ".join(
                f"if {memory.name} must be zero before a launch, import it as --arg "
                f"{memory.name}:...=zeros:workspace"
                for memory in kernel.memories[-1:]
                if not memory.zero_fill
            ),
        )
    if unwritten.any():
        first = ", ".join(map(str, np.unravel_index(int(unwritten.argmax()), shape)))
        raise SpecError(
            f"the plain kernel {entry} leaves {int(unwritten.sum()):,} of {unwritten.size:,} "
            f"elements of {name} unwritten, the first at [{first}]",
            code="reference_failed",
            mend=f"if it writes a part of {name} only, as a stencil leaves its border, import "
            f"again with --arg {name}:{dtype}[...]:inout: the rest keeps its first values; if not, "
            f"give {name} the size that it writes, or remove the checks of sizes that the kernel "
            "does not take from kernel.toml",
        )
    if (over_poison != over_zeros).any():
        raise SpecError(
            f"the plain kernel {entry} computes {name} from its earlier content",
            code="reference_failed",
            mend=f"import again with --arg {name}:{dtype}[...]:inout",
        )


def _images(
    kernel: PlainKernel,
    inputs: Mapping[str, np.ndarray],
    outputs: Outputs,
    arguments: Arguments,
    start: int | None,
) -> dict[str, np.ndarray]:
    """The bytes of each output after a run over memory full of the byte `start`, or of poison."""
    tensors, passed = _laid_out(kernel, inputs, outputs, arguments, start)
    problem = _problem(kernel, tuple(tensors.values()), passed)
    orders = 2 if start is None else 1  # forward, reverse
    try:
        executions = tuple(_target().execute(_program(kernel), [problem] * orders))
    except CannotCompile as failed:
        first = next((line for line in failed.log.splitlines() if "error" in line), failed.log)
        raise SpecError(
            f"the plain kernel {kernel.entry} does not compile on the emulator: {one_line(first)}",
            code="reference_failed",
        ) from failed
    for execution in executions:
        if execution.failure is not None:
            raise SpecError(
                f"the plain kernel {kernel.entry} does not run: {execution.failure.sentence}",
                code="reference_failed",
                mend=MENDS.get(execution.failure.reason, ""),
            )
    for name in outputs:
        _require_one_answer(kernel, tensors[name], executions)
    return {name: executions[0].outputs[name] for name in outputs}


def _require_one_answer(
    kernel: PlainKernel, tensor: Tensor, executions: Sequence[Execution]
) -> None:
    """SpecError for an output that depends on the order of the threads by more than rounding."""
    images = [tensor.view(execution.outputs[tensor.name]) for execution in executions]
    for execution, image in zip(executions[1:], images[1:], strict=True):
        steps = steps_between(images[0], image)
        if not (steps > STEPS_OF_ANOTHER_ANSWER).any():
            continue
        index = tuple(int(each) for each in np.unravel_index(int(steps.argmax()), steps.shape))
        raise SpecError(
            f"the plain kernel {kernel.entry} is no reference, because {tensor.name} depends on "
            f"the order of its threads: {tensor.name}{list(index)} is "
            f"{shown_number(images[0][index])} in the order {executions[0].order} and "
            f"{shown_number(image[index])} in {execution.order}",
            code="reference_failed",
            mend="`greenfast check FILE.cu` finds races; if atomics decide the order, as in a list "
            "that threads append to, let the kernel write an output without it",
        )


def _laid_out(
    kernel: PlainKernel,
    inputs: Mapping[str, np.ndarray],
    outputs: Outputs,
    arguments: Arguments,
    start: int | None,
) -> tuple[dict[str, Tensor], tuple[GivenArgument, ...]]:
    """The tensors, outputs full of the byte `start` or of poison, and the launch's arguments."""
    tensors = {name: _tensor(name, "input", array) for name, array in inputs.items()}
    for name, (dtype, shape) in outputs.items():
        byte = poison_of(DTYPES[dtype]) if start is None else start
        memory = np.full(int(np.prod(shape)) * DTYPES[dtype].itemsize, byte, np.uint8)
        tensors[name] = replace(
            _tensor(name, "output", memory.view(DTYPES[dtype]).reshape(shape)),
            filled=start is not None,
        )
    by_name: dict[str, Tensor | WorkspaceMemory] = {**tensors}
    by_name |= {memory.name: memory for memory in kernel.memories}
    passed = tuple(
        by_name[argument]
        if isinstance(argument, str)
        else Scalar(argument[0], float(argument[1]) if "float" in argument[0] else int(argument[1]))
        for argument in arguments
    )
    return tensors, passed


def _problem(
    kernel: PlainKernel, tensors: tuple[Tensor, ...], passed: tuple[GivenArgument, ...]
) -> Problem:
    launches = [
        LaunchPlan(kernel.entry, kernel.grid, kernel.block, kernel.smem_dynamic_bytes, passed)
    ]
    if kernel.first_entry:
        launches.insert(0, LaunchPlan(kernel.first_entry, (1, 1, 1), (256, 1, 1), 0, passed))
    case = Case("plain", (), (), "", "contiguous", 0, ())
    return Problem(case, tensors, kernel.memories, passed, tuple(launches), 0.0, 0.0)


def _program(kernel: PlainKernel) -> Any:
    entries = dict.fromkeys(filter(None, (kernel.first_entry, kernel.entry)))
    lines = [
        (text, Line("plain.cu", number)) for number, text in enumerate(kernel.text.split("\n"), 1)
    ]
    source = assemble(lines, list(entries), Catalogue.from_environment().include_dirs)
    return _target().load(source, None)


def _tensor(name: str, role: str, array: np.ndarray) -> Tensor:
    array = np.ascontiguousarray(array)
    image = array.reshape(-1).view(np.uint8).copy()
    image.flags.writeable = False
    strides = tuple(stride // array.dtype.itemsize for stride in array.strides)
    return Tensor(name, role, array.dtype, array.shape, strides, image)


@cache
def _target() -> Runner:
    """An emulator of its own: the one that runs candidates may be in use."""
    folder = Path(os.environ.get("GREENFAST_DATA", "greenfast-data")) / "cache"
    if not folder.is_dir():  # this is not a command of greenfast
        folder, _ = scratch_of(Catalogue, "plain")  # until this process ends
    target = runner(
        open_target(TARGET, TargetSettings(folder, Catalogue.from_environment().include_dirs, 1))
    )
    target.prepare()
    return target


def with_defines(text: str, defines: Mapping[str, object]) -> str:
    """The text with a #define for each name; its own #define of a name is replaced."""
    lines = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    text = own_defines_off(text, defines)
    after = behind_includes(text)
    return text[:after] + lines + text[after:]


def behind_includes(text: str) -> int:
    """Where the includes that a text begins with end: a macro may mean another thing in them."""
    return _FIRST_INCLUDES.match(text).end()  # type: ignore[union-attr]


def own_defines_off(text: str, names: Container[str]) -> str:
    """The text without its own #define of these names."""
    lines = []
    for line in text.split("\n"):
        define = re.match(r"\s*#\s*define\s+(\w+)(?!\()", line)
        off = define is not None and define[1] in names
        lines.append(f"// {line.strip()}  (a parameter)" if off else line)
    return "\n".join(lines)
