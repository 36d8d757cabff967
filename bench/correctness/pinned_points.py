"""The candidates whose source digests recordings and results hold, as points to render again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.correctness.template_pairs import Point, groups, rendered_source
from bench.results import read_result, result_names
from greenfast.search.devices.facts import device
from greenfast.search.errors import GreenfastError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.recordings import find_recording, recording_names
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters

DEVICE = "h200"  # of the results
DIGEST = re.compile(r"[0-9a-f]{64}")
SOURCE_KEYS = ("source_digest", "source")


@dataclass(frozen=True)
class Pinned:
    """A candidate of a result: its parameters, and the digest of its source."""

    template: str  # without the kernel, which results do not always name
    parameters: tuple[tuple[str, Any], ...]
    digest: str


def recorded_points(kernels: Catalogue, names: set[str]) -> Iterator[Point]:
    """Every candidate of the shipped recordings that is of one of the templates."""
    for recording in map(find_recording, recording_names()):
        heading = recording.heading
        kernel = kernels.kernel(heading.kernel)
        compiled = heading.workloads[0].compile_time(kernel)
        for row in recording.rows:
            if f"{kernel.name}/{row.template}" in names:
                template = kernel.template(row.template)
                given = dict(recording.parameters(row))
                parameters = complete_parameters(template, given, compiled)
                candidate = Candidate(
                    kernel.name, template.name, parameters, Origin(OriginKind.SEEDED)
                )
                yield Point(candidate, compiled, heading.device)


def result_points(kernels: Catalogue, names: set[str]) -> Iterator[Point]:
    """Candidates of bench/results/ that the templates render to the source that a result names.

    Results describe their workloads in several ways, so a candidate is rendered in every group of
    options until its digest is met. A candidate of an earlier form of its template is left out.
    """
    pinned = {entry for name in result_names() for entry in _pinned(read_result(name), "")}
    for entry in sorted(pinned, key=lambda entry: (entry.template, entry.digest)):
        for name in sorted(names):
            if name.partition("/")[2] == entry.template and (point := _point(kernels, name, entry)):
                yield point


def _pinned(value: Any, template: str) -> Iterator[Pinned]:
    """The candidates in a result; `template` is what an enclosing object names."""
    if isinstance(value, list):
        for item in value:
            yield from _pinned(item, template)
    if not isinstance(value, Mapping):
        return
    template = str(value.get("template", template))
    digest = next((str(value[key]) for key in SOURCE_KEYS if value.get(key)), "")
    if DIGEST.fullmatch(digest) and isinstance(value.get("parameters"), (Mapping, list)):
        parameters = dict(value["parameters"])
        if all(isinstance(item, (str, int, float)) for item in parameters.values()):
            yield Pinned(template, tuple(sorted(parameters.items())), digest)
    for item in value.values():
        yield from _pinned(item, template)


def _point(kernels: Catalogue, name: str, entry: Pinned) -> Point | None:
    kernel = kernels.kernel(name.partition("/")[0])
    template = kernel.template(entry.template)
    for compiled in groups(kernel, template):
        try:
            parameters = complete_parameters(template, dict(entry.parameters), compiled)
            candidate = Candidate(kernel.name, template.name, parameters, Origin(OriginKind.SEEDED))
            point = Point(candidate, compiled, device(DEVICE))
            if rendered_source(kernels, point).digest == entry.digest:
                return point
        except (GreenfastError, ValueError):
            continue  # the parameters do not fit this group, or the template of today
    return None
