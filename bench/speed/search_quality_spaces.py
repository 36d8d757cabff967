"""Complete spaces as arrays, for comparing strategies: recordings, and files of other tuners."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Parameter
from greenfast.search.kernels.workloads import Items
from greenfast.search.recordings.foreign import read_space
from greenfast.search.recordings.foreign_kernel import parameters_of
from greenfast.search.recordings.rules import time_us
from greenfast.search.recordings.shelf import find_recording, recording_names
from greenfast.search.space.points import Points
from greenfast.search.space.space import Space

SPACE_ENDINGS = (".gz", ".json", "_T4")


@dataclass(frozen=True)
class MeasuredSpace:
    """Every configuration of a space with its time; a failed one has an infinite time."""

    name: str
    parameters: tuple[Parameter, ...]  # that vary
    points: tuple[Items, ...]
    times: np.ndarray  # [points], in any unit

    def as_json(self) -> dict[str, Any]:
        """Plain data, for a process that lacks greenfast."""
        codes = Points(self.parameters, self.points).encoded
        times = [time if math.isfinite(time) else None for time in self.times.tolist()]
        return {
            "name": self.name,
            "parameters": [[each.name, list(each.values)] for each in self.parameters],
            "codes": codes.tolist(),
            "times": times,
        }

    @cached_property
    def time_of(self) -> dict[Items, float]:
        return dict(zip(self.points, self.times.tolist(), strict=True))

    def searched(self) -> Space:
        """The space as a strategy sees it: its points and nothing else."""
        return _ListedSpace(self)


class _ListedSpace(Space):
    def __init__(self, measured: MeasuredSpace) -> None:
        kernel = Catalogue.from_environment().kernel("gemm")  # of which only the frame is used
        template = replace(
            kernel.templates[0],
            name="recorded",
            parameters=measured.parameters,
            locals=(),
            constraints=(),
            launches=(),
            tensor_maps=(),
            presets=(),
        )
        super().__init__(template, (), device("h200"))
        self._listed = measured.time_of
        self._all = Points(measured.parameters, measured.points)

    def why_not(self, parameters: Items) -> str | None:
        return None if parameters in self._listed else "not in the space"

    @cached_property
    def points(self) -> Points:
        return self._all


def measured_spaces(paths: list[Path], recordings: bool = True) -> list[MeasuredSpace]:
    """The shipped recordings and the spaces of files."""
    own = [recorded_space(name) for name in recording_names()] if recordings else []
    return [*own, *map(file_space, paths)]


def recorded_space(name: str) -> MeasuredSpace:
    """A recording: the rows of its swept template."""
    return recorded_family([name])[0]


def recorded_family(names: Sequence[str]) -> tuple[MeasuredSpace, ...]:
    """Recordings of one template, with the parameters that vary in any of them."""
    recordings = [find_recording(name) for name in names]
    heading = recordings[0].heading
    kernel = Catalogue.from_environment().kernel(heading.kernel)
    rows = [
        [row for row in recording.rows if row.template == heading.template]
        for recording in recordings
    ]
    points = [
        [dict(recording.parameters(row)) for row in own]
        for recording, own in zip(recordings, rows, strict=True)
    ]
    parameters = []
    for parameter in kernel.template(heading.template).parameters:
        used = {point.get(parameter.name, parameter.default) for own in points for point in own}
        parameters.append(_narrowed(parameter, tuple(v for v in parameter.values if v in used)))
    times = [[time_us(row.times[0]) if row.times else math.inf for row in own] for own in rows]
    return tuple(map(_space, names, itertools.repeat(parameters), points, times))


def file_space(path: Path) -> MeasuredSpace:
    """A T4 file or a Kernel Tuner cache."""
    foreign = read_space(path)
    read = parameters_of(foreign)
    parameters = [
        Parameter(
            each.name,
            each.kind,
            tuple(here for _, here in each.values),
            each.values[0][1],
            "",
            False,
            None,
        )
        for each in read
    ]
    points = [
        {each.name: each.here(value) for each, value in zip(read, row.configuration, strict=True)}
        for row in foreign.results
    ]
    times = [math.inf if row.figure is None else row.figure for row in foreign.results]
    name = path.name
    while ending := next((each for each in SPACE_ENDINGS if name.endswith(each)), ""):
        name = name.removesuffix(ending)
    return _space(name, parameters, points, times)


def _narrowed(parameter: Parameter, values: tuple[Value, ...]) -> Parameter:
    default = parameter.default if parameter.default in values else values[0]
    return replace(parameter, values=values, default=default, when=None)


def _space(
    name: str, parameters: list[Parameter], points: list[dict[str, Value]], times: list[float]
) -> MeasuredSpace:
    varied = tuple(each for each in parameters if len(each.values) > 1)
    rows = tuple(
        tuple((each.name, point.get(each.name, each.default)) for each in varied)
        for point in points
    )
    return MeasuredSpace(name, varied, rows, np.array(times))
