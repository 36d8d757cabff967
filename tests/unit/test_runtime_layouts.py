"""Tensors that a kernel cannot read where they lie: another kernel, a copy, or a refusal.

Kernels run on the emulator, on NumPy arrays; addresses are those of a driver that runs nothing.
"""

from __future__ import annotations

import dataclasses
import json
import struct

import numpy as np
import pytest
from runtime_bundles import RECORDED, SETS, use_for_attention
from test_runtime_calls import FAR, far_call, with_map, without_mask

import greenfast
from greenfast.runtime.calls import Prepared, Refused, output_strides, prepare, run
from greenfast.runtime.frameworks import NumpyArrays
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.layouts import alignment, copies_for
from greenfast.runtime.loaded import LoadedKernels
from greenfast.runtime.nvrtc import CACHE_VARIABLE
from greenfast.runtime.program import TensorFacts, contiguous_strides, geometry
from greenfast.runtime.read_bundle import kernel_set
from greenfast.search.errors import UsageError
from greenfast.search.kernels.expressions import expression
from tests.unit.rows_bundles import layouts_of_x, rows_bundles


@pytest.fixture
def stub(stub_library, monkeypatch):
    return use_for_attention(stub_library, monkeypatch)


@pytest.fixture
def emulator_cache(artifacts, tmp_path, monkeypatch):
    (tmp_path / "emulator").symlink_to(artifacts, target_is_directory=True)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    return rows_bundles(tmp_path_factory.mktemp("templates"))


def loaded(bundles, *names: str) -> LoadedKernels:
    """The kernels of these bundles as one set, on the emulator."""
    programs = {
        f"k{number}": kernel_set(bundles[name], name).programs["k0"]
        for number, name in enumerate(names)
    }
    return LoadedKernels(KernelSet("rows", programs["k0"].operation, programs), "emulator")


@pytest.mark.parametrize("layout", layouts_of_x())
def test_a_kernel_gives_the_same_for_every_layout_of_its_input(bundles, emulator_cache, layout):
    x = layouts_of_x()[layout]
    alone = loaded(bundles, "boxes")
    assert np.array_equal(alone(x), x)
    direct = ("even", "an odd address", "expanded")  # the emulator's memory is aligned
    assert ("copy of x" in alone.explain(x).why) == (layout not in direct)


def test_the_next_kernel_takes_what_the_copy_engine_cannot(bundles, emulator_cache):
    kernels, layouts = loaded(bundles, "boxes", "plain"), layouts_of_x()
    assert kernels.explain(layouts["even"]).kernel.startswith("boxes")
    told = kernels.explain(layouts["odd rows"])
    assert told.kernel.startswith("plain") and "copy" not in told.why
    assert "the tensor map x_map: the stride of axis 1 is 258 bytes" in told.why
    assert np.array_equal(kernels(layouts["odd rows"]), layouts["odd rows"])
    # No kernel reads a row backwards, so that the first one gets a copy.
    told = kernels.explain(layouts["from the last column"])
    assert told.kernel.startswith("boxes")
    assert "it runs on a copy of x, because x has the stride -1 in dim 2" in told.why


def test_an_output_is_written_wherever_it_lies(emulator_cache):
    kernels = greenfast.load(SETS / "rmsnorm-h200.zip", device="emulator")
    random = np.random.default_rng(0)
    x, residual = (random.standard_normal((3, 4096)).astype(np.float16) for _ in range(2))
    weight = random.standard_normal(4096).astype(np.float16)
    h, y = kernels(x, residual, weight)
    outputs = np.zeros((2, 3, 4097), np.float16)
    odd_h, turned_y = outputs[0, :, 1:], outputs[1, ::-1, 4095::-1]
    result = kernels(x, residual, weight, h=odd_h, y=turned_y)
    assert result[0] is odd_h and result[1] is turned_y
    assert np.array_equal(odd_h, h) and np.array_equal(turned_y, y)
    assert not outputs[0, :, 0].any() and not outputs[1, :, 4096:].any()
    one = np.lib.stride_tricks.as_strided(np.zeros(4096, np.float16), (3, 4096), (0, 2))
    with pytest.raises(UsageError, match="the output y has the stride 0 in dim 0") as refused:
        kernels(x, residual, weight, y=one)
    assert refused.value.code == "overlap"


# ---- an axis of one element ----


@pytest.mark.parametrize("odd", [1, 3, -5, 2**41])
def test_the_stride_of_an_axis_of_one_element_does_not_matter(stub, odd):
    kernels = without_mask(**with_map())
    q = TensorFacts("bf16", (1, 8, 256, 64), (odd, 256 * 64, 64, 1))
    state = prepare(kernels, far_call_of(q), 0)
    assert isinstance(state, Prepared) and not state.copies
    assert state.plan.program is kernels.programs["k3"]
    assert struct.unpack("<q", state.plan.geometry.arguments[10]) == (8,)  # q_batch_stride


def far_call_of(q: TensorFacts):
    return dataclasses.replace(far_call(), tensors={"q": q, "k": q, "v": q})


def test_it_matters_no_more_to_a_map_whose_strides_are_expressions(bundles):
    program = kernel_set(bundles["boxes"], "boxes").programs["k0"]
    (form,) = program.tensor_maps
    strides = expression("x_row_stride", ""), expression("x_batch_stride", "")
    form = dataclasses.replace(form, axes=(), strides=strides)
    program = dataclasses.replace(program, tensor_maps=(form,))
    one = TensorFacts("fp16", (1, 1, 128), (-3, 129, 1))
    (tensor_map,) = geometry(program, {"x": one}, {}).arguments[-1:]
    assert tensor_map.strides_bytes == (16, 16)
    two = dataclasses.replace(one, shape=(1, 2, 128))
    with pytest.raises(UsageError, match="the stride of axis 1 is 258 bytes"):
        geometry(program, {"x": two}, {})


# ---- copies on a GPU ----


class Kept(NumpyArrays):
    """NumPy's arrays in place of a GPU's; those that a call makes are kept."""

    def __init__(self) -> None:
        self.made: list[np.ndarray] = []

    def empty(self, facts, like):
        memory = np.zeros(2**19, np.uint16)[: sum_of(facts)]
        strides = [2 * stride for stride in facts.strides]
        self.made.append(np.lib.stride_tricks.as_strided(memory, facts.shape, strides))
        return self.made[-1]


def sum_of(facts: TensorFacts) -> int:
    return 1 + sum((n - 1) * step for n, step in zip(facts.shape, facts.strides, strict=True))


def facts_of(array: np.ndarray) -> TensorFacts:
    return TensorFacts("bf16", array.shape, tuple(step // 2 for step in array.strides))


def test_only_the_tensors_that_do_not_suit_are_copied(stub):
    kernels, shape = without_mask(), (2, 8, 256, 64)
    q = np.arange(2 * 8 * 256 * 65, dtype=np.uint16).reshape(2, 8, 256, 65)[..., :64]
    k = np.zeros(shape, np.uint16)
    v = np.broadcast_to(np.arange(256 * 64 + 1, dtype=np.uint16)[1:].reshape(256, 64), shape)
    o = np.zeros((*shape[:3], 65), np.uint16)[..., :64]
    tensors = {"q": q, "k": k, "v": v, "o": o}
    call = dataclasses.replace(
        far_call(),
        tensors={name: facts_of(array) for name, array in tensors.items()},
        misaligned=frozenset({"v"}),
    )
    assert isinstance(refused := prepare(kernels, call, 0), Refused)
    assert refused.why == "v begins at no multiple of 16 bytes" and not refused.always
    state = prepare(kernels, call, 0, may_copy=True)
    assert isinstance(state, Prepared) and list(state.copies) == ["q", "v", "o"]
    assert state.choice.why.endswith(
        "it runs on a copy of q and v and o, because q has the stride 65 in dim 2; the kernel "
        "takes multiples of 8 elements from 0; v begins at no multiple of 16 bytes; o has the "
        "stride 65 in dim 2; the kernel takes multiples of 8 elements from 0"
    )
    kept = Kept()
    run(state.plan, kept, tensors, q, 0, state.copies)
    words = stub.launches()[0]["arguments"]
    copied = dict(zip(state.copies, kept.made, strict=True))
    assert words[:4] == [copied.get(name, tensors[name]).ctypes.data for name in "qkvo"]
    assert np.array_equal(copied["q"], q)
    assert copied["v"].shape == (1, 1, 256, 64) and np.array_equal(copied["v"][0, 0], v[0, 0])
    assert words[16:19] == [0, 0, 64]  # the strides of v: it is expanded as before
    assert words[10:13] == words[19:22] == [8 * 256 * 64, 256 * 64, 64]


def test_what_the_kernel_has_written_is_copied_back(stub):
    o = np.ones((2, 8, 256, 65), np.uint16)[..., :64]
    q = np.zeros((2, 8, 256, 64), np.uint16)
    tensors = {"q": q, "k": q, "v": q, "o": o}
    facts = {name: facts_of(array) for name, array in tensors.items()}
    call = dataclasses.replace(far_call(), tensors=facts)
    state = prepare(without_mask(), call, 0, may_copy=True)
    run(state.plan, Kept(), tensors, q, 0, state.copies)
    assert not o.any()  # the driver launches nothing, and Kept's memory is zero


def test_without_another_kernel_the_copy_engine_gets_a_copy(stub):
    unable = without_mask(**with_map())
    state = prepare(unable, far_call(FAR), 0, may_copy=True)
    assert isinstance(state, Prepared) and not state.copies
    assert state.plan.program is unable.programs["k4"]
    alone = dataclasses.replace(unable, programs={"k3": unable.programs["k3"]})
    state = prepare(alone, far_call(FAR), 0, may_copy=True)
    assert isinstance(state, Prepared) and list(state.copies) == ["k"]
    assert state.copies["k"].strides == contiguous_strides((2, 8, 256, 64))
    assert "k has a stride of 1,099,511,627,776 bytes in dim 0" in state.choice.why
    assert "multiples of 16 bytes below 2**40" in state.choice.why


def test_code_for_another_gpu_is_no_reason_to_copy(stub):
    elsewhere = without_mask(arch="sm_100a", cubins={})
    alone = dataclasses.replace(elsewhere, programs={"k3": elsewhere.programs["k3"]})
    call = dataclasses.replace(far_call(), misaligned=frozenset({"q"}))
    refused = prepare(alone, call, 0, may_copy=True)
    assert isinstance(refused, Refused) and "sm_100a alone" in refused.why


def test_a_copy_keeps_the_memory_order_and_an_expanded_axis(bundles):
    program = without_mask().programs["k3"]
    strides = (0, 65, 8 * 65, 1)  # [S, H, D], expanded to batches
    q = TensorFacts("bf16", (4, 8, 256, 64), strides)
    copies = copies_for(program, {"q": q}, frozenset())
    assert copies["q"][0].strides == (0, 64, 8 * 64, 1)
    assert output_strides(program.operation, {"q": copies["q"][0]})["o"][1:] == (64 * 4, 2048, 1)
    odd = dataclasses.replace(q, shape=(4, 8, 256, 60))  # rows of the copy begin at multiples of 8
    assert copies_for(program, {"q": odd}, frozenset())["q"][0].strides == (0, 64, 8 * 64, 1)


# ---- what a bundle says ----


@pytest.mark.parametrize("name", ["boxes", "plain"])
def test_the_needs_that_a_bundle_states_are_those_of_the_runtime(bundles, name):
    stated = json.loads(bundles[name]["launch.json"])["alignment"]
    needs = alignment(kernel_set(bundles[name], name).programs["k0"])
    plain = {
        tensor: {key: value for key, value in dataclasses.asdict(need).items() if value is not None}
        for tensor, need in needs.items()
    }
    assert stated == plain
    of_x = {"pointer_bytes": 16, "stride_bytes": 2}
    if name == "boxes":
        of_x |= {"stride_bytes": 16, "strides_below_bytes": 2**40}
    assert stated == {"x": of_x, "y": {"pointer_bytes": 16}}


def test_a_shipped_set_leaves_unaligned_tensors_to_its_library(stub):
    shipped = greenfast.load(RECORDED).kernels
    call = dataclasses.replace(far_call(), misaligned=frozenset({"k"}))
    state = prepare(dataclasses.replace(shipped, has_library=True), call, 0)
    assert isinstance(state, Refused)
    assert state.why == "k begins at no multiple of 16 bytes"
