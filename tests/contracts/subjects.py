"""Compiled candidates of the album's smallest kernel, ready for gates and targets."""

from __future__ import annotations

from search.candidate import Candidate, Origin, OriginKind
from search.cases import derived_cases, workload_case
from search.gates import GateLimits, Subject
from search.memory import Problem, problem
from search.reference import answer
from search.render import render
from search.space import resolve


def axpy_subject(album, target, toolchain, template_name="right", limits=GateLimits(), **values) -> Subject:
    """A subject of template `right` or `broken` with the given parameter values."""
    kernel = album.kernel("axpy")
    template = kernel.template(template_name)
    workload = kernel.workload("odd")
    compiled = workload.compile_time(kernel)
    parameters = tuple((one.name, values.get(one.name, one.default)) for one in template.parameters)
    candidate = Candidate("axpy", template_name, parameters, Origin(OriginKind.SEEDED))
    point = resolve(template, parameters, compiled)
    source = render(kernel, template, candidate, point, album.include_dirs)
    cubin = toolchain.compile(source, target.device.arch)
    return Subject(kernel, template, candidate, compiled, point, source, cubin, target, (workload,), limits, 0)


def problems_of(subject: Subject) -> list[Problem]:
    cases = [*derived_cases(subject.kernel, subject.compiled, subject.point.tiles, 0),
             workload_case(subject.workloads[0], 0)]
    return [problem(subject.kernel, subject.template, subject.point, case, answer(subject.kernel, case))
            for case in cases]
