"""A preset as gates see it, with other parameters or a change of its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from greenfast.search.digest import digest
from greenfast.search.gates import Conditions, GateLimits, Subject
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.workloads import Items
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve
from greenfast.search.targets.base import Runner


def changed_subject(
    catalogue: Catalogue,
    target: Runner,
    kernel_name: str,
    template_name: str,
    preset: str,
    changes: Mapping[str, object] | None = None,
    old: str = "",
    new: str = "",
    compiled: Items | None = None,
) -> Subject:
    """`old` stands in the unit once. `compiled`: those of the first workload if none are given."""
    kernel = catalogue.kernel(kernel_name)
    compiled = compiled or kernel.workloads[0].compile_time(kernel)
    template = kernel.template(template_name)
    candidate = preset_candidate(template, preset, compiled, changes or {})
    point = resolve(template, candidate.parameters, compiled, target.device)
    source = render(kernel, template, point, catalogue.include_dirs)
    assert isinstance(source, RenderedSource)
    assert not old or source.unit.count(old) == 1
    unit = source.unit.replace(old, new) if old else source.unit
    source = replace(source, unit=unit, digest=digest(unit))
    return Subject(
        Conditions(kernel, compiled, (), target, GateLimits(), 0), candidate, source, None
    )
