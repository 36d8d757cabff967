"""Reads a set of files as a bundle of its kind, with the kernels in it."""

from __future__ import annotations

from collections.abc import Mapping

from greenfast.runtime.archive import MANIFEST, bad_bundle
from greenfast.runtime.fallbacks import has_fallback
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.machine_code import code_fault
from greenfast.runtime.operation import ScalarArgument
from greenfast.runtime.program import Program, TensorMapForm
from greenfast.runtime.single_bundle import single_program
from greenfast.runtime.tensor_maps import FILLS
from greenfast.runtime.tuning_bundle import tuned_set
from greenfast.search.devices.tensor_map import ELEMENT_BYTES
from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import require_names
from greenfast.search.kernels.tensor_map_spec import MOST_AXES


def kernel_set(files: Mapping[str, bytes], name: str) -> KernelSet:
    """The kernels of a bundle's files; `name` is for messages."""
    kernels = _read(files, name)
    for program in kernels.programs.values():
        _require_computable(program)
        entries = {launch.entry: program.argument_bytes for launch in program.launches}
        for arch, image in program.cubins.items():
            if fault := code_fault(image, arch, entries):
                raise bad_bundle(f"the machine code of {program.name} for {arch} is wrong: {fault}")
    return kernels


def _read(files: Mapping[str, bytes], name: str) -> KernelSet:
    if MANIFEST in files:
        kernels = tuned_set(files, name, has_library=False)
        has_library = has_fallback(kernels.operation.name)
        return KernelSet(
            kernels.origin,
            kernels.operation,
            kernels.programs,
            kernels.groups,
            kernels.device,
            has_library,
        )
    if "launch.json" in files:
        program = single_program(files)
        return KernelSet(name, program.operation, {"k0": program})
    raise bad_bundle(f"{name} is not a bundle of greenfast: it has no launch.json")


def _require_computable(program: Program) -> None:
    """UsageError unless every size of a launch follows from a call and plain values."""
    operation = program.operation
    names = [item.name for item in (*program.arguments, *program.scratch, *program.tensor_maps)]
    if len(set(names)) < len(names):
        raise bad_bundle(f"{program.name} of the bundle: two arguments have one name")
    for name, value in program.point.items():
        if not isinstance(value, (int, float, str)):
            raise bad_bundle(
                f"{program.name} of the bundle: {name[:40]} is neither a number nor text"
            )
    known = {dim.name for dim in operation.dims} | set(operation.compiled_names)
    known |= {name for name, _ in operation.constants} | program.point.keys()
    scalars = {item.name for item in operation.arguments if isinstance(item, ScalarArgument)}
    sizes = [form.bytes for form in program.scratch]
    sizes += [item.value for item in program.scalars if item.value is not None]
    for launch in program.launches:
        sizes += (*launch.grid, *launch.block, *launch.cluster, launch.smem_dynamic_bytes)
    for form in program.tensor_maps:
        sizes += (*form.sizes, *form.box, form.swizzle_bytes, form.l2_promotion_bytes)
    try:
        for size in sizes:
            require_names(size, known)
        for form in program.tensor_maps:
            for stride in form.strides:
                require_names(stride, known | scalars)
            if fault := _map_fault(form, program):
                raise bad_bundle(f"{program.name} of the bundle, {form.name}: {fault}")
    except SpecError as error:
        raise bad_bundle(f"{program.name} of the bundle: {error.message}") from None


def _map_fault(form: TensorMapForm, program: Program) -> str:
    """Why no call can have such a tensor map; empty when one can."""
    ranks = {
        item.name: len(item.shape)
        for item in program.operation.tensors
        if not item.optional and item.read_when is None
    }
    ranks |= {item.name: 0 for item in program.scratch}
    if form.tensor not in ranks:
        return f"{form.tensor[:40]!r} is not a tensor that every call has"
    if form.dtype not in ELEMENT_BYTES or form.fill not in FILLS:
        return f"the type {form.dtype[:40]!r} or the fill {form.fill[:40]!r} is unknown"
    if not 0 < len(form.sizes) == len(form.box) <= MOST_AXES:
        return f"{len(form.sizes)} sizes and a box of {len(form.box)}"
    if form.axes and (
        len(form.axes) != len(form.sizes) or not set(form.axes) <= set(range(ranks[form.tensor]))
    ):
        return f"its axes are not {len(form.sizes)} of {form.tensor}"
    return ""
