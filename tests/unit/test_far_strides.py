"""Layouts whose strides exceed 32 bits, without the memory."""

from __future__ import annotations

import math

import numpy as np
import pytest

from greenfast.search.devices.facts import device
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.far import FARTHEST_ELEMENTS, axis_of, far_cases
from greenfast.search.oracle.problem import Scalar, Tensor, lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve
from greenfast.search.targets.emulator.far_buffers import (
    GUARD_BYTES,
    PAGE_BYTES,
    tensor_buffers,
    whole_outputs,
)


def _laid_out(kernel):
    template, preset = kernel.preset(kernel.baseline)
    compiled = kernel.workloads[0].compile_time(kernel)
    candidate = preset_candidate(template, preset.name, compiled)
    point = resolve(template, candidate.parameters, compiled, device("h200"))
    derived = derived_cases(kernel, compiled, point.tiles, 0)
    return [
        lay_out(kernel, template, point, case, case_data(kernel, case))
        for case in far_cases(kernel, derived)
    ]


@pytest.mark.parametrize(("name", "axes"), [("attention", [0, 2]), ("rmsnorm", [0]), ("tile", [])])
def test_each_kernel_with_strides_has_its_cases(album, name, axes):
    problems = _laid_out(album.kernel(name))
    assert [axis_of(problem.case) for problem in problems] == axes
    for problem in problems:
        axis = axis_of(problem.case)
        spread = [tensor for tensor in problem.tensors if tensor.spread is not None]
        assert len(spread) >= 3
        for tensor in spread:
            reach = sum(
                stride * (size - 1)
                for stride, size in zip(
                    tensor.passed_strides[: axis + 1], tensor.shape, strict=False
                )
            )
            assert reach >= FARTHEST_ELEMENTS > 2**32
        # No two tensors have the same strides, or another's would do.
        assert len({tensor.passed_strides for tensor in spread}) == len(spread)


def test_a_kernel_is_given_the_far_strides(album):
    for problem in _laid_out(album.kernel("attention")):
        tensors = {tensor.name: tensor for tensor in problem.tensors}
        scalars = [argument for argument in problem.arguments if isinstance(argument, Scalar)]
        wide = [scalar.value for scalar in scalars if scalar.dtype == "int64"]
        assert wide == [stride for name in "qkvo" for stride in tensors[name].passed_strides[:3]]
        assert tensors["lse"].spread is None  # its strides are no arguments


def test_parts_lie_as_far_apart_as_the_strides_say_and_hold_the_whole_image(album):
    for problem in _laid_out(album.kernel("attention")):
        for tensor in (tensor for tensor in problem.tensors if tensor.spread is not None):
            buffers = list(tensor_buffers(tensor))
            parts = [buffer for buffer in buffers if buffer.filled != "reserved"]
            assert np.array_equal(np.concatenate([part.image for part in parts]), tensor.image)
            place, places = 0, []  # as native/global_memory.cpp lays buffers out, by their ends
            for buffer in buffers:
                pages = (
                    PAGE_BYTES
                    + math.ceil(math.ceil(buffer.image.nbytes / 256) * 256 / PAGE_BYTES)
                    * PAGE_BYTES
                )
                place += pages + GUARD_BYTES
                if buffer.filled != "reserved":
                    places.append(place)
            assert set(np.diff(places)) == {tensor.spread.distance_bytes}


def test_outputs_come_back_whole(album):
    problem = _laid_out(album.kernel("attention"))[1]
    outputs = {
        buffer.name: buffer.image + np.uint8(1)
        for tensor in problem.tensors
        for buffer in tensor_buffers(tensor)
        if buffer.role == "output"
    }
    joined = whole_outputs(problem, outputs)
    tensors = {tensor.name: tensor for tensor in problem.tensors if tensor.role == "output"}
    assert set(joined) == set(tensors) == {"o", "lse"}
    assert all(joined[name].size == tensors[name].image.size for name in joined)
    assert tensors["o"].gaps_changed(joined["o"]) == 0
    assert isinstance(tensors["o"], Tensor) and tensors["o"].view(joined["o"]).shape[-1] == 64
