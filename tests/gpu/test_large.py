"""Work beyond what NumPy does in a second, and beyond what 32 bits can count."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from greenfast.search.gates import GateLimits
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import POISON, Problem, Scalar, Tensor, lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.targets.cuda import target as cuda
from greenfast.search.targets.cuda.large_reference import close

FAR = 2**31 + 512  # elements from one batch to the next


@pytest.mark.parametrize("workload", ["mission", "mission_bf16", "mission_causal"])
def test_a_reference_from_the_gpu_agrees_with_numpys(workload, gpu, catalogue, monkeypatch):
    monkeypatch.setattr(cuda, "LARGE_FLOP", 0.0)
    kernel = replace(
        catalogue.kernel("attention")
    )  # another object, so that nothing is taken from memory
    case = workload_case(kernel.workload(workload), 11)
    computed = gpu.case_data(kernel, case)
    assert gpu._references[id(kernel), case.options][1], (
        "NumPy did it: the GPU's reference was not trusted"
    )
    right = case_data(replace(kernel), case)
    fields = [
        {name: vars_of(array) for name, array in each.outputs.items()} for each in (computed, right)
    ]
    assert close(*fields)


def vars_of(expected):
    return {"value": expected.value, "bound": expected.bound, "rounded": expected.rounded}


def test_a_workload_far_above_the_limit_is_answered_in_time_for_its_candidates(gpu, catalogue):
    kernel = catalogue.kernel("attention")
    case = workload_case(kernel.workload("long"), 12)
    expected = gpu.case_data(kernel, case).outputs["o"]
    assert gpu._references[id(kernel), case.options][1]
    assert np.isfinite(expected.value).all() and (expected.bound > 0).all()


@pytest.mark.skipif(
    "GREENFAST_SLOW_TESTS" not in os.environ,
    reason="takes a minute and 50 GB of memory: set GREENFAST_SLOW_TESTS to run it",
)
def test_batches_more_than_2_31_elements_apart_are_read_and_written_where_they_are(
    gpu, catalogue, toolchain
):
    kernel = catalogue.kernel("attention")
    workload = kernel.workload("small")
    compiled = workload.compile_time(kernel)
    template, preset = kernel.preset(kernel.baseline)
    candidate = preset_candidate(template, preset.name, compiled)
    context = EvaluationContext(
        kernel, compiled, (workload,), gpu, toolchain, catalogue.include_dirs, GateLimits(), 0
    )
    subject = prepare(candidate, context)
    case = workload_case(
        replace(
            workload, dims=tuple((name, 2 if name == "B" else size) for name, size in workload.dims)
        ),
        5,
    )
    right = case_data(kernel, case)
    near = lay_out(kernel, template, subject.point, case, right)
    far = with_far_batches(near, {"q": right.inputs["q"], "o": None}, kernel)
    (execution,) = gpu.execute(subject.program, [far])
    assert execution.failure is None, execution.failure
    o = next(each for each in far.tensors if each.name == "o")
    expected = right.outputs["o"]
    assert (
        np.abs(o.view(execution.outputs["o"]).astype(np.float64) - expected.value) <= expected.bound
    ).all()


def with_far_batches(near: Problem, names: dict, kernel) -> Problem:
    """The same problem with the batches of some tensors `FAR` elements apart."""
    moved: dict[int, Tensor] = {}
    for near_tensor in near.tensors:
        if near_tensor.name in names:
            strides = (FAR, *near_tensor.strides[1:])
            image = np.full(
                (FAR + near_tensor.image.size // near_tensor.dtype.itemsize)
                * near_tensor.dtype.itemsize,
                POISON,
                np.uint8,
            )
            tensor = replace(near_tensor, strides=strides, image=image)
            if names[near_tensor.name] is not None:
                tensor.view(image)[...] = names[near_tensor.name]
            vars(tensor)["digest"] = (
                f"far {near_tensor.name}"  # of so many bytes, seconds of hashing
            )
            moved[id(near_tensor)] = tensor
    arguments = []
    for argument, spec in zip(near.arguments, (*kernel.arguments, *near.workspaces), strict=True):
        if isinstance(argument, Scalar) and spec.stride_of in [(name, 0) for name in names]:
            arguments.append(Scalar(argument.dtype, FAR))
        else:
            arguments.append(moved.get(id(argument), argument))
    return replace(
        near,
        tensors=tuple(moved.get(id(tensor), tensor) for tensor in near.tensors),
        arguments=tuple(arguments),
    )
