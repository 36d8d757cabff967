"""The launches of a candidate, which its text alone does not determine.

A kernel that reads `blockDim` has one text for every block size, so an equal text is the same work
only if the launches are equal, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from greenfast.search.kernels.expressions import Expression, Value
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import Candidate

Launch = tuple[str, Items]  # a template, and values of the parameters that its launches use


def launch_of(kernel: KernelSpec, candidate: Candidate) -> Launch:
    """What distinguishes the launches of candidates that render to the same text."""
    names = _launch_parameters(kernel.template(candidate.template))
    return candidate.template, tuple(
        (name, value) for name, value in candidate.parameters if name in names
    )


def _launch_parameters(template: TemplateSpec) -> frozenset[str]:
    """Parameters on which grids, blocks, shared memory, scalars, workspaces or maps depend."""
    names = {name for each in _launch_expressions(template) for name in each.names}
    for name, local in reversed(template.locals):
        if name in names:
            names |= local.names
    return frozenset(names) & {parameter.name for parameter in template.parameters}


def _launch_expressions(template: TemplateSpec) -> Iterator[Expression]:
    conditions: list[Expression | None] = []
    for launch in template.launches:
        yield from (*launch.grid, *launch.block, *launch.cluster, launch.smem_dynamic_bytes)
        conditions.append(launch.when)
    for scalar in template.scalars:
        yield scalar.value
        conditions.append(scalar.when)
    for workspace in template.workspaces:
        yield workspace.bytes
        conditions.append(workspace.when)
    for spec in template.tensor_maps:
        yield from (*spec.sizes, *spec.strides, *spec.box)
        yield from (spec.swizzle_bytes, spec.l2_promotion_bytes)
        conditions.append(spec.when)
    yield from filter(None, conditions)


def launch_values(template: TemplateSpec, values: Mapping[str, Value]) -> Items:
    """The values of a resolved point that its launches use: with the run-time dims they determine
    grids, blocks, shared memory, scalars, workspaces and maps.

    Points of one template for which they are equal are launched alike, whatever their parameters.
    """
    names = {name for each in _launch_expressions(template) for name in each.names}
    return tuple((name, values[name]) for name in sorted(names) if name in values)
