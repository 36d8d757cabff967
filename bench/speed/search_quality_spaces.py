"""Complete spaces as arrays, for comparing strategies: recordings, and files of other tuners."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.recordings.rules import time_us
from greenfast.search.recordings.shelf import find_recording


@dataclass(frozen=True)
class MeasuredSpace:
    """Every configuration of a space with its time; a failed one has an infinite time."""

    name: str
    parameters: tuple[tuple[str, tuple[Any, ...]], ...]  # that vary, with their values
    codes: np.ndarray  # [points, parameters]: positions of values
    times: np.ndarray  # [points], in any unit

    def as_json(self) -> dict[str, Any]:
        """Plain data, for a process that lacks greenfast."""
        times = [time if math.isfinite(time) else None for time in self.times.tolist()]
        return {
            "name": self.name,
            "parameters": [[name, list(values)] for name, values in self.parameters],
            "codes": self.codes.tolist(),
            "times": times,
        }


def recorded_space(name: str) -> MeasuredSpace:
    """A recording: the rows of its swept template."""
    recording = find_recording(name)
    rows = [row for row in recording.rows if row.template == recording.heading.template]
    points = [dict(recording.parameters(row)) for row in rows]
    times = [time_us(row.times[0]) if row.times else math.inf for row in rows]
    return _space(name, points, times)


def _space(name: str, points: list[dict[str, Any]], times: list[float]) -> MeasuredSpace:
    parameters = []
    for key in points[0]:
        values = list(dict.fromkeys(point[key] for point in points))
        if len(values) > 1:
            numbers = all(type(value) in (int, float) for value in values)
            parameters.append((key, tuple(sorted(values) if numbers else values)))
    positions = [{value: at for at, value in enumerate(values)} for _, values in parameters]
    codes = [
        [known[point[key]] for (key, _), known in zip(parameters, positions, strict=True)]
        for point in points
    ]
    return MeasuredSpace(name, tuple(parameters), np.array(codes), np.array(times))


def file_space(path: Path) -> MeasuredSpace:
    data = json.loads(gzip.decompress(path.read_bytes()))
    points, times = [], []
    for result in data["results"]:
        points.append(result["configuration"])
        value = next(m["value"] for m in result["measurements"] if m["name"] == "time")
        times.append(float(value) if result["invalidity"] == "correct" else math.inf)
    return _space(path.name.partition(".")[0].removesuffix("_T4"), points, times)
