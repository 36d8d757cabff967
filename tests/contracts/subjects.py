"""Compiled candidates of the album's smallest kernel, ready for gates and targets."""

from __future__ import annotations

from greenfast.search.gates import Conditions, GateLimits, Subject
from greenfast.search.oracle.cases import derived_cases, workload_case
from greenfast.search.oracle.problem import Problem, lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import render
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.space import resolve

LIMITS = GateLimits()


def axpy_subject(
    album, target, toolchain, template_name="right", limits=LIMITS, **values
) -> Subject:
    """A subject of template `right` or `broken` with the given parameter values."""
    kernel = album.kernel("axpy")
    template = kernel.template(template_name)
    workload = kernel.workload("odd")
    compiled = workload.compile_time(kernel)
    parameters = tuple(
        (parameter.name, values.get(parameter.name, parameter.default))
        for parameter in template.parameters
    )
    candidate = Candidate("axpy", template_name, parameters, Origin(OriginKind.SEEDED))
    point = resolve(template, parameters, compiled, target.device)
    source = render(kernel, template, point, album.include_dirs)
    cubin = toolchain.compile(source, target.device.arch)
    conditions = Conditions(kernel, compiled, (workload,), target, limits, 0)
    return Subject(conditions, candidate, source, cubin)


def problems_of(subject: Subject) -> list[Problem]:
    cases = [
        *derived_cases(subject.kernel, subject.compiled, subject.point.tiles, 0),
        workload_case(subject.workloads[0], 0),
    ]
    return [
        lay_out(
            subject.kernel, subject.template, subject.point, case, case_data(subject.kernel, case)
        )
        for case in cases
    ]
