"""A template's space on a device: its valid points, and for any other point why it is invalid."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from greenfast.search.devices.clusters import Shape, device_lacks
from greenfast.search.devices.facts import Device
from greenfast.search.devices.tensor_map import box_misfit
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.expressions import SM_COUNT, Value
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.kernels.tensor_map_spec import whole
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.columns import encoded_points
from greenfast.search.space.draw import draw_order, drawn_point, no_valid_point
from greenfast.search.space.lattice import (
    Level,
    combinations,
    launch_names,
    levels_of,
)
from greenfast.search.space.points import Points
from greenfast.search.space.validity import Validity
from greenfast.search.text import filled


@dataclass(frozen=True)
class Resolved:
    """A point with the values that rendering and launching use."""

    parameters: Items
    values: Mapping[str, Value]  # compile-time values, parameters, locals, `sm_count`
    tiles: Mapping[str, int]
    threads_per_block: int
    smem_dynamic_bytes: int
    clusters: tuple[tuple[str, Shape], ...] = ()  # by entry, in blocks


def resolve(template: TemplateSpec, parameters: Items, compiled: Items, device: Device) -> Resolved:
    """A point with its locals, tiles and block on `device`; it may be invalid."""
    values: dict[str, Value] = {**dict(_known_before(compiled, device)), **dict(parameters)}
    for name, local in template.locals:
        values[name] = local(values)
    figures = _figures(template, values)
    return Resolved(
        parameters, values, {name: tile.whole(values) for name, tile in template.tiles}, *figures
    )


def _known_before(compiled: Items, device: Device) -> Items:
    """The values that a template's expressions may use before any parameter has one."""
    return (*compiled, (SM_COUNT, device.multiprocessors))


def _figures(
    template: TemplateSpec, values: Mapping[str, Value]
) -> tuple[int, int, tuple[tuple[str, Shape], ...]]:
    """Threads of a block, bytes of dynamic shared memory, and each entry's cluster."""
    launches = template.launched(values)
    clusters = []
    for launch in launches:
        x, y, z = launch.cluster
        clusters.append((launch.entry, (x.whole(values), y.whole(values), z.whole(values))))
    return (
        max((prod(size.whole(values) for size in launch.block) for launch in launches), default=0),
        max((launch.smem_dynamic_bytes.whole(values) for launch in launches), default=0),
        tuple(clusters),
    )


def device_refusal(template: TemplateSpec, device: Device) -> str:
    """The reason why no point of the template runs on the device; empty when some may."""
    if device.sm < template.minimum_sm:
        return (
            f"template {template.name} needs sm_{template.minimum_sm}, and {device.name} is "
            f"{device.arch}"
        )
    if template.arch_specific and device.sm != template.minimum_sm:
        return (
            f"template {template.name} is compiled for sm_{template.minimum_sm}a, which runs on "
            f"sm_{template.minimum_sm} only, and {device.name} is {device.arch}"
        )
    return ""


def _unmappable(template: TemplateSpec, values: Mapping[str, Value]) -> str | None:
    """The reason why a point's boxes fit no tensor map; None when they do."""
    for spec in template.mapped(values):
        dtype = str(values["dtype"]) if spec.dtype == "dtype" else spec.dtype
        box = tuple(whole(size, values) for size in spec.box)
        swizzle, promotion = (
            whole(number, values) for number in (spec.swizzle_bytes, spec.l2_promotion_bytes)
        )
        if reason := box_misfit(box, dtype, swizzle, promotion):
            return f"tensor map {spec.name}: {reason}"
    return None


class Space:
    """The points of `template` that satisfy its constraints and the device's launch limits."""

    def __init__(self, template: TemplateSpec, compiled: Items, device: Device) -> None:
        self.template, self.compiled, self.device = template, compiled, device

    def why_not(self, parameters: Items) -> str | None:
        """The reason why a point is invalid, with computed numbers; None when it is valid."""
        template, device = self.template, self.device
        if reason := device_refusal(template, device):
            return reason
        point = resolve(template, parameters, self.compiled, device)
        for constraint in template.constraints:
            if not constraint.expression(point.values):
                return filled(constraint.because, point.values)
        return self._misfit(
            (point.threads_per_block, point.smem_dynamic_bytes, point.clusters)
        ) or _unmappable(template, point.values)

    def _fits(self, values: Mapping[str, Value]) -> bool:
        return self._misfit(_figures(self.template, values)) is None and not _unmappable(
            self.template, values
        )

    def _misfit(self, figures: tuple[int, int, tuple[tuple[str, Shape], ...]]) -> str | None:
        """The reason why the device cannot launch such blocks; None when it can."""
        device, (threads, smem_bytes, clusters) = self.device, figures
        if not clusters:
            return "there is no launch for these values: each `when` is false"
        if not 1 <= threads <= device.threads_per_block:
            return (
                f"a block of {threads} threads; {device.name} runs 1 to {device.threads_per_block}"
            )
        if smem_bytes < 0:
            return f"{smem_bytes} bytes of dynamic shared memory; a launch has none or more"
        if smem_bytes > device.smem_per_block_bytes:
            return (
                f"{smem_bytes} bytes of dynamic shared memory; a block may have "
                f"{device.smem_per_block_bytes} on {device.name}"
            )
        return next(filter(None, (device_lacks(cluster, device) for _, cluster in clusters)), None)

    def require(self, parameters: Items) -> Resolved:
        """The resolved point; UsageError with the reason when it is invalid."""
        reason = self.why_not(parameters)
        if reason is not None:
            raise UsageError(
                f"template {self.template.name} cannot have "
                + ", ".join(f"{name}={value}" for name, value in parameters)
                + f": {reason}",
                code="invalid_candidate",
            )
        return resolve(self.template, parameters, self.compiled, self.device)

    @cached_property
    def points(self) -> Points:
        """Every valid point once, in a fixed order; SpecError when the space is too large."""
        parameters = self.template.parameters
        if device_refusal(self.template, self.device):
            return Points(parameters, ())
        known = _known_before(self.compiled, self.device)
        walked = self._walked
        codes = encoded_points(walked, known, self._fits, launch_names(walked))
        places = [walked.parameters.index(each) for each in parameters]
        return Points(parameters, np.ascontiguousarray(codes[:, places]))

    @cached_property
    def is_listed(self) -> bool:
        """Whether the space is small enough to list its points."""
        try:
            return len(self.points) >= 0
        except SpecError as error:
            if error.code != "space_too_large":
                raise
            return False

    def sample(self, count: int, seed: int) -> list[Items]:
        """Up to `count` different valid points; SpecError when a large space shows none."""
        dice = random.Random(seed)
        if not self.is_listed:
            return list(dict.fromkeys(self.drawn(dice) for _ in range(count)))
        chosen = dice.sample(range(len(self.points)), min(count, len(self.points)))
        return [self.points[number] for number in sorted(chosen)]

    def is_valid(self, parameters: Items) -> bool:
        """Whether a point of known values satisfies every rule."""
        complete = complete_parameters(self.template, dict(parameters), self.compiled)
        return complete == parameters and self.why_not(parameters) is None

    def are_valid(self, codes: np.ndarray) -> np.ndarray:
        """[rows]: whether each row of positions of values satisfies every rule."""
        if device_refusal(self.template, self.device):
            return np.zeros(len(codes), bool)
        return self._validity(codes)

    @cached_property
    def _validity(self) -> Validity:
        return Validity(self.template, self.compiled, self.device, self._fits)

    def drawn(self, rng: random.Random, near: Items = ()) -> Items:
        """A random valid point, or one near to `near`, without listing the space.

        SpecError `no_valid_point` when none is found.
        """
        known = _known_before(self.compiled, self.device)
        point = drawn_point(self._levels, known, self._fits, rng, dict(near))
        if point is None:
            raise no_valid_point(self.template)
        values = dict(point)
        return tuple((each.name, values[each.name]) for each in self.template.parameters)

    @cached_property
    def _levels(self) -> list[Level]:
        return levels_of(draw_order(self.template))

    @cached_property
    def _walked(self) -> TemplateSpec:
        """The template with its parameters in an order in which each `when` can be evaluated."""
        return replace(self.template, parameters=self.template.by_need)

    def each_point(self) -> Iterator[Items]:
        """Yields the valid points; the first one costs little."""
        if device_refusal(self.template, self.device):
            return
        known = _known_before(self.compiled, self.device)
        for point in combinations(self._walked, known, self._fits):
            values = dict(point)
            yield tuple((each.name, values[each.name]) for each in self.template.parameters)

    def nearest(self, parameters: Items, allowed: np.ndarray, rng: random.Random) -> Items:
        """A valid point closest to `parameters`, which may be invalid, chosen by `rng` among ties.

        `allowed` has a bool for each point. Distances are as in `Points.distances`.
        """
        distance = self.points.distances(parameters)
        distance[~allowed] = np.iinfo(distance.dtype).max
        nearest = np.flatnonzero(distance == distance.min())
        return self.points[int(nearest[rng.randrange(len(nearest))])]
