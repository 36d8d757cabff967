"""Calls on this machine's CPU: the same launch, executed by greenfast's emulator of a GPU.

This needs the whole package and a C++ compiler. It is for trying a bundle, not for speed.
"""

from __future__ import annotations

import os
import re
import struct
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.runtime.archive import toml_table
from greenfast.runtime.calls import Call, Refused, Settled, choose, planned, settle
from greenfast.runtime.explanation import Explanation
from greenfast.runtime.frameworks import Framework, framework_of
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.layouts import require_no_repeats
from greenfast.runtime.nvrtc import CACHE_VARIABLE, cache_folder
from greenfast.runtime.operation import SCALAR_FORMATS, ScalarArgument
from greenfast.runtime.program import Geometry, Program, TensorFacts, bytes_of
from greenfast.search.devices.tensor_map import TensorMap
from greenfast.search.errors import UsageError
from greenfast.search.kernels.expressions import Value

MODEL = "h200"


def emulate(
    kernels: KernelSet,
    framework: Framework,
    tensors: Mapping[str, Any],
    options: Mapping[str, Value],
    constants: Mapping[str, Value],
    without: frozenset[str],
) -> dict[str, Any]:
    """All tensors of the call, with its outputs; UsageError if no kernel takes it."""
    if why := _unfit(framework, tensors):
        raise UsageError(why, code="bad_call")
    call = _call(framework, tensors, options, constants, without)
    settled = _settled(kernels, call)
    if isinstance(settled, Refused):
        chosen = choose(kernels, call).program
        if chosen is not None:
            planned(chosen, call)  # raises the refusal with a code of its own
        raise UsageError(
            f"no kernel of {kernels.origin} takes this call: {settled.why}", code="no_kernel"
        )
    program, shapes = settled.plan
    arrays = {name: _array(tensor) for name, tensor in tensors.items()}
    _require_writable(arrays, call.tensors, shapes.outputs)
    images = _run(program, shapes, arrays, settled.call.tensors)
    results = dict(tensors)
    for name, output in shapes.outputs.items():
        if name not in results:
            results[name] = framework.empty(output, next(iter(tensors.values())))
        _array(results[name])[...] = _view(images[name], output)
    return results


def _settled(kernels: KernelSet, call: Call) -> Settled[tuple[Program, Geometry]] | Refused:
    """The kernel that takes the call. The emulator copies every tensor, to any layout."""
    alone = replace(kernels, has_library=False)  # a library runs nothing on the emulator

    def plan(program: Program, adapted: Call) -> tuple[Program, Geometry]:
        return program, planned(program, adapted)

    return settle(alone, choose(alone, call), call, plan, may_copy=True)


def _require_writable(
    arrays: Mapping[str, np.ndarray], facts: Mapping[str, TensorFacts], outputs: Iterable[str]
) -> None:
    """UsageError for an output given by the caller that is read-only, or shares memory."""
    for output in outputs:
        if output not in arrays:
            continue
        require_no_repeats(output, facts[output])
        if not arrays[output].flags.writeable:
            raise UsageError(f"the output {output} is read-only", code="bad_call")
        for name, array in arrays.items():
            if name != output and np.may_share_memory(arrays[output], array):
                raise UsageError(f"the output {output} overlaps {name} in memory", code="overlap")


def explained(
    kernels: KernelSet,
    framework: Framework,
    tensors: Mapping[str, Any],
    options: Mapping[str, Value],
    constants: Mapping[str, Value],
    without: frozenset[str],
) -> Explanation:
    """The kernel that `emulate` would run, and why."""
    name = kernels.operation.name
    why = _unfit(framework, tensors)
    if not why:
        call = _call(framework, tensors, options, constants, without)
        settled = _settled(kernels, call)
        if isinstance(settled, Settled):
            program, shapes = settled.plan
            return Explanation(
                name,
                program.name,
                settled.choice.why,
                kernels.origin,
                program.source_digest,
                shapes.launches,
                settled.choice.measured,
                has_library=False,
            )
        why = settled.why
    return Explanation(name, None, why, kernels.origin, has_library=False)


def _call(
    framework: Framework,
    tensors: Mapping[str, Any],
    options: Mapping[str, Value],
    constants: Mapping[str, Value],
    without: frozenset[str],
) -> Call:
    facts = {name: framework.facts(tensor) for name, tensor in tensors.items()}
    return Call(facts, options, constants, without)


def _unfit(framework: Framework, tensors: Mapping[str, Any]) -> str:
    """Why the emulator cannot read these tensors; empty when it can."""
    if framework.name not in ("numpy", "torch"):
        return "the emulator takes NumPy arrays and PyTorch's CPU tensors"
    for name, tensor in tensors.items():
        if framework_of(tensor) is not framework:
            return f"{name} is of type {type(tensor).__name__}, and another input is not"
        if framework.name == "numpy" and not isinstance(tensor, np.ndarray):
            return f"{name} is {type(tensor).__name__}, which is not an array"
        if isinstance(tensor, np.ma.MaskedArray):
            return f"{name} has a mask, which no kernel knows"
    if framework.name == "numpy":
        return ""
    if any(tensor.device.type != "cpu" for tensor in tensors.values()):
        return "the emulator takes NumPy arrays and PyTorch's CPU tensors"
    from greenfast.runtime.torch_checks import unfit

    return unfit(tensors.values())


def _array(tensor: Any) -> np.ndarray:
    """The tensor's memory as unsigned integers of its element's size."""
    if isinstance(tensor, np.ndarray):
        array: np.ndarray = tensor.view(f"u{tensor.dtype.itemsize}")
        return array
    import torch

    signed = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    view = tensor.detach().view(signed[tensor.element_size()]).numpy()
    bits: np.ndarray = view.view(f"u{tensor.element_size()}")
    return bits


def _view(image: np.ndarray, facts: TensorFacts) -> np.ndarray:
    item = bytes_of(TensorFacts(facts.dtype, (1,), (1,)))
    return np.ndarray(
        facts.shape,
        f"u{item}",
        buffer=image.data if image.size else b"",
        strides=tuple(stride * item for stride in facts.strides),
    )


def _run(
    program: Program,
    shapes: Geometry,
    arrays: Mapping[str, np.ndarray],
    facts: Mapping[str, TensorFacts],
) -> Mapping[str, np.ndarray]:
    """Whole byte images of the outputs by name."""
    problem = _problem(program, shapes, _memory(program, shapes, arrays, facts))
    execution = next(iter(_target().execute(_emulated(program.identity, program), [problem])))
    if execution.failure is not None:
        raise UsageError(
            f"the kernel failed on the emulator: {execution.failure.sentence}", code="kernel_failed"
        )
    outputs: Mapping[str, np.ndarray] = execution.outputs
    return outputs


def _memory(
    program: Program,
    shapes: Geometry,
    arrays: Mapping[str, np.ndarray],
    facts: Mapping[str, TensorFacts],
) -> dict[str, Any]:
    """The tensors and scratch buffers of a call by name; absent tensors are left out."""
    from greenfast.search.oracle.problem import POISON, Tensor, WorkspaceMemory
    from greenfast.search.oracle.storage import DTYPES

    memory: dict[str, Any] = {
        name: WorkspaceMemory(name, size, zero) for name, size, zero in shapes.scratch_bytes
    }
    given = {**facts, **shapes.outputs}
    for argument in program.operation.tensors:
        known = given.get(argument.name)
        if known is None:
            continue
        image = np.full(bytes_of(known), POISON, np.uint8)
        if not argument.output and image.size:
            _view(image, known)[...] = arrays[argument.name]
        role = "output" if argument.output else "input"
        memory[argument.name] = Tensor(
            argument.name, role, DTYPES[known.dtype], known.shape, known.strides, image
        )
    return memory


def _problem(program: Program, shapes: Geometry, memory: Mapping[str, Any]) -> Any:
    """The call as the emulator runs it."""
    from greenfast.search.oracle.cases import Case
    from greenfast.search.oracle.problem import LaunchPlan, Problem, Tensor, WorkspaceMemory

    arguments = _arguments(program, shapes, memory)
    return Problem(
        Case("call", (), (), "", "contiguous", 0, ()),
        tuple(item for item in arguments if isinstance(item, Tensor)),
        tuple(item for item in arguments if isinstance(item, WorkspaceMemory)),
        arguments,
        tuple(
            LaunchPlan(launch.entry, launch.grid, launch.block, launch.smem_dynamic_bytes)
            for launch in shapes.launches
        ),
        0.0,
        0.0,
    )


def _arguments(program: Program, shapes: Geometry, memory: Mapping[str, Any]) -> tuple[Any, ...]:
    """The kernel's arguments in order, each with the scalar's value or the tensor's memory."""
    from greenfast.search.oracle.problem import Scalar

    scalars = [item if isinstance(item, ScalarArgument) else None for item in program.arguments]
    scalars += [None] * (len(program.scratch) + len(program.tensor_maps))
    arguments: list[Any] = []
    for packed, scalar in zip(shapes.arguments, scalars, strict=True):
        if isinstance(packed, TensorMap):
            arguments.append(packed)
        elif isinstance(packed, str):
            arguments.append(memory[packed])
        elif scalar is None:
            arguments.append(None)  # a null pointer
        else:
            (value,) = struct.unpack(SCALAR_FORMATS[scalar.dtype], packed)
            arguments.append(Scalar(scalar.dtype, value))
    return tuple(arguments)


@cache
def _target() -> Any:
    from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES
    from greenfast.search.targets import TargetSettings, open_target

    folder = cache_folder() / "emulator"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the cache {folder} cannot be created: {error.strerror}",
            code="bad_cache",
            mend=f"set {CACHE_VARIABLE} to a folder that can be written",
        ) from None
    target = open_target(
        f"emulator:{MODEL}",
        TargetSettings(folder, (REPOSITORY_TEMPLATES / "include",), os.cpu_count() or 1),
    )
    target.prepare()
    return target


_PROGRAMS: dict[str, Any] = {}


def _emulated(identity: str, program: Program) -> Any:
    """The emulator's program: the template rendered again, since the emulator has its own headers.

    UsageError when the rendering is not the bundle's source.
    """
    if identity not in _PROGRAMS:
        _PROGRAMS[identity] = _target().load(_rendered(program), None)
    return _PROGRAMS[identity]


_BASELINE_LINE = re.compile(r"^baseline\s*=.*$", re.M)


def _with_own_baseline(program: Program) -> str:
    """kernel.toml with a preset of the bundle's template as its baseline, which has to be there."""
    text = program.files["kernel.toml"].decode("utf-8")
    presets = toml_table(program.files, "template.toml").get("presets")
    if not presets or not isinstance(presets, dict):
        return text
    own = f'baseline = "{program.template}:{next(iter(presets))}"'
    return _BASELINE_LINE.sub(lambda _: own, text, count=1)


def _rendered(program: Program) -> Any:
    from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, load_kernel
    from greenfast.search.render import RenderFailed, render
    from greenfast.search.space.candidate import (
        complete_parameters,
    )
    from greenfast.search.space.space import resolve

    needed = ("kernel.toml", "template.toml", "template.cu.j2", "reference.py")
    if missing := [name for name in needed if name not in program.files]:
        raise UsageError(
            f"the emulator needs {missing[0]}, which this bundle lacks", code="not_emulated"
        )
    with tempfile.TemporaryDirectory(prefix="greenfast-runtime-") as scratch:
        folder = Path(scratch) / program.operation.name
        folder.mkdir()
        for name, data in program.files.items():
            if name.endswith("reference.py") and "/" not in name:
                (folder / name).write_bytes(data)
        (folder / "kernel.toml").write_text(_with_own_baseline(program), "utf-8")
        for ending in ("toml", "cu.j2"):
            (folder / f"{program.template}.{ending}").write_bytes(
                program.files[f"template.{ending}"]
            )
        kernel = load_kernel(folder)
        template = kernel.template(program.template)
        compiled = tuple(program.compiled.items())
        parameters = complete_parameters(template, program.parameters, compiled)
        point = resolve(template, parameters, compiled, _target().device)
        source = render(kernel, template, point, (REPOSITORY_TEMPLATES / "include",))
    if isinstance(source, RenderFailed):
        raise UsageError(
            f"the template refuses its parameters: {source.message}", code="bad_bundle"
        )
    if source.digest != program.source_digest:
        raise UsageError(
            "this version of greenfast renders another source from the bundle's template, so the "
            "emulator would run another kernel",
            code="not_emulated",
        )
    return source
