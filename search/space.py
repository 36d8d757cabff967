"""A template's space on one device: its valid points, and for any other point the sentence that says why not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from search.candidate import complete_parameters
from search.devices import Device
from search.errors import SpecError, UsageError
from search.expressions import Value
from search.spec import Items, TemplateSpec

LARGEST_ENUMERATED = 2_000_000      # points tried one by one; ten seconds or so


@dataclass(frozen=True)
class Resolved:
    """A point with everything that rendering and launching need."""

    parameters: Items
    values: Mapping[str, Value]          # compile-time values, parameters, locals
    tiles: Mapping[str, int]
    threads_per_block: int
    smem_dynamic_bytes: int


def resolve(template: TemplateSpec, parameters: Items, compiled: Items) -> Resolved:
    """Compute a point's locals, tiles and block; the point need not be valid."""
    values: dict[str, Value] = {**dict(compiled), **dict(parameters)}
    for name, local in template.locals:
        values[name] = local(values)
    threads = max(prod(int(one(values)) for one in launch.block) for launch in template.launches)
    smem = max(int(launch.smem_dynamic_bytes(values)) for launch in template.launches)
    return Resolved(parameters, values, {name: int(tile(values)) for name, tile in template.tiles}, threads, smem)


class Space:
    """The points of `template` that hold its constraints and the device's launch limits."""

    def __init__(self, template: TemplateSpec, compiled: Items, device: Device) -> None:
        self.template, self.compiled, self.device = template, compiled, device

    def why_not(self, parameters: Items) -> str | None:
        """None for a valid point, else one sentence with the computed numbers."""
        template, device = self.template, self.device
        if device.sm < template.minimum_sm:
            return f"template {template.name} needs sm_{template.minimum_sm} and {device.name} is {device.arch}"
        point = resolve(template, parameters, self.compiled)
        for constraint in template.constraints:
            if not constraint.expression(point.values):
                return _because(constraint.because, point.values)
        if point.threads_per_block > device.threads_per_block or point.threads_per_block < 1:
            return (f"a block of {point.threads_per_block} threads; {device.name} runs 1 to "
                    f"{device.threads_per_block}")
        if point.smem_dynamic_bytes > device.smem_per_block_bytes:
            return (f"{point.smem_dynamic_bytes} bytes of dynamic shared memory; a block may have "
                    f"{device.smem_per_block_bytes} on {device.name}")
        return None

    def require(self, parameters: Items) -> Resolved:
        """The point, or UsageError with the sentence that says why it is outside."""
        reason = self.why_not(parameters)
        if reason is not None:
            raise UsageError(f"template {self.template.name} cannot have "
                             + ", ".join(f"{k}={v}" for k, v in parameters) + f": {reason}", code="invalid_candidate")
        return resolve(self.template, parameters, self.compiled)

    @cached_property
    def points(self) -> tuple[Items, ...]:
        """Every valid point once, in a fixed order."""
        return tuple(self.each_point())

    def each_point(self) -> Iterator[Items]:
        """The valid points one by one: the first is cheap."""
        size = prod(len(one.values) for one in self.template.parameters)
        if size > LARGEST_ENUMERATED:
            raise SpecError(f"template {self.template.name} has {size} points before constraints; "
                            f"{LARGEST_ENUMERATED} are supported", code="space_too_large")
        names = [one.name for one in self.template.parameters]
        seen: set[Items] = set()
        for combination in itertools.product(*(one.values for one in self.template.parameters)):
            parameters = complete_parameters(self.template, dict(zip(names, combination)), self.compiled)
            if parameters not in seen and self.why_not(parameters) is None:
                seen.add(parameters)
                yield parameters

    @cached_property
    def index(self) -> dict[Items, int]:
        """A point's position in `points`."""
        return {point: position for position, point in enumerate(self.points)}

    @cached_property
    def _encoded(self) -> np.ndarray:
        """[points, parameters]: positions of values."""
        return np.array([self._encode(point) for point in self.points], dtype=np.int16)

    def nearest(self, parameters: Items, allowed: np.ndarray, rng: random.Random) -> Items:
        """A valid point closest to `parameters` (which may be invalid) among those that `allowed` marks.

        Distance: steps between ordered values, 1 between different unordered ones. `allowed` has one bool a point.
        """
        steps = np.abs(self._encoded - np.array(self._encode(parameters), dtype=np.int16))
        ordered = np.array([one.type == "int" for one in self.template.parameters])
        distance = np.where(ordered, steps, steps != 0).sum(axis=1)
        distance[~allowed] = np.iinfo(distance.dtype).max
        return self.points[rng.choice(np.flatnonzero(distance == distance.min()).tolist())]

    def _encode(self, parameters: Items) -> list[int]:
        return [one.values.index(value) for one, (_, value) in zip(self.template.parameters, parameters)]


def _because(sentence: str, values: Mapping[str, Value]) -> str:
    try:
        return sentence.format_map(dict(values))
    except (KeyError, ValueError, IndexError, AttributeError):
        return sentence
