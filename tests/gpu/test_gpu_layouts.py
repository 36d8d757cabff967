"""Tensors that a kernel cannot read or write where they lie, on a GPU: values, not launches."""

from __future__ import annotations

import ctypes
import importlib.util

import numpy as np
import pytest

import greenfast
from greenfast.runtime.driver import device_facts
from greenfast.runtime.frameworks import framework_of
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.loaded import LoadedKernels
from greenfast.runtime.nvrtc import CACHE_VARIABLE
from greenfast.runtime.read_bundle import kernel_set
from greenfast.runtime.tuned import set_for
from greenfast.search.errors import UsageError
from tests.unit.rows_bundles import layouts_of_x, rows_bundles

DIRECT = ("even", "expanded")  # layouts that the copy engine takes; every other one is copied


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    return rows_bundles(tmp_path_factory.mktemp("templates"))


@pytest.fixture
def loaded(bundles, tmp_path, monkeypatch):
    """The kernels of these templates as one set; the runtime compiles them."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    if device_facts(0).arch != "sm_90":
        pytest.skip("a template is compiled for sm_90a")

    def load(*names: str) -> LoadedKernels:
        programs = {
            f"k{number}": kernel_set(bundles[name], name).programs["k0"]
            for number, name in enumerate(names)
        }
        return LoadedKernels(KernelSet("rows", programs["k0"].operation, programs), None)

    return load


def on_gpu(array: np.ndarray):
    """The array on the GPU, with the same strides and the same place within 16 bytes."""
    cupy = pytest.importorskip("cupy")
    low, high = np.lib.array_utils.byte_bounds(array)
    before = low % 16
    memory = cupy.empty(before + high - low, np.uint8)
    memory[before:] = cupy.asarray(np.frombuffer(ctypes.string_at(low, high - low), np.uint8))
    first = memory.data + before + (array.ctypes.data - low)
    return cupy.ndarray(array.shape, array.dtype, first, array.strides)


@pytest.mark.parametrize("names", [("boxes",), ("plain",), ("boxes", "plain")], ids="+".join)
@pytest.mark.parametrize("layout", layouts_of_x())
def test_a_kernel_gives_the_same_for_every_layout_of_its_input(loaded, layout, names):
    kernels, host = loaded(*names), layouts_of_x()[layout]
    x = on_gpu(host)
    for _ in range(2):
        assert np.array_equal(kernels(x).get(), host)
    told = kernels.explain(x)
    if names == ("boxes",):
        assert ("copy of x" in told.why) == (layout not in DIRECT)
    if layout == "odd rows" and len(names) == 2 and x.data.ptr % 16 == 0:
        assert told.kernel.startswith("plain") and "copy" not in told.why


def test_an_output_is_written_wherever_it_lies(loaded):
    cupy = pytest.importorskip("cupy")
    kernels, x = loaded("boxes"), on_gpu(layouts_of_x()["even"])
    outputs = cupy.zeros((2, 2, 5, 129), np.float16)
    odd, turned = outputs[0, ..., 1:], outputs[1, :, ::-1, 127::-1]
    for y in (odd, turned):
        assert kernels(x, y=y) is y
        assert cupy.array_equal(y, x)
    assert not outputs[0, ..., 0].any() and not outputs[1, ..., 128].any()
    with pytest.raises(UsageError, match="the output y has the stride 0 in dim 0"):
        kernels(x, y=cupy.broadcast_to(outputs[0, :1, :, :128], (2, 5, 128)))


def test_the_stride_of_an_axis_of_one_element_does_not_matter(loaded):
    cupy = pytest.importorskip("cupy")
    x = on_gpu(np.ascontiguousarray(layouts_of_x()["even"][:1]))
    for stride_bytes in (2, 6, -10, 2**42):
        one = cupy.ndarray(x.shape, x.dtype, x.data, (stride_bytes, *x.strides[1:]))
        assert cupy.array_equal(loaded("boxes")(one), x)
        assert "copy" not in loaded("boxes").explain(one).why


# ---- the shipped sets, on PyTorch's tensors ----

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="TORCH IS NOT INSTALLED"
)
SHAPE = 2, 8, 256, 64


def attention_tensors():
    """q, k and v of a shape that a shipped kernel serves; skips where none ships."""
    import torch

    if isinstance(set_for("attention", device_facts(0).name), str):
        pytest.skip("no set ships for this GPU")
    torch.manual_seed(0)
    return [torch.randn(SHAPE, device="cuda", dtype=torch.bfloat16) for _ in range(3)]


def placed(tensor, how: str):
    """The same values elsewhere: in rows with gaps, columns first, or behind an address."""
    import torch

    if how == "rows":
        place = torch.empty((*SHAPE[:3], 65), device="cuda", dtype=tensor.dtype)[..., :64]
    elif how == "columns first":
        place = torch.empty((2, 8, 64, 256), device="cuda", dtype=tensor.dtype).mT
    else:
        place = torch.empty(tensor.numel() + 1, device="cuda", dtype=tensor.dtype)[1:].view(SHAPE)
    return place.copy_(tensor)


@needs_torch
@pytest.mark.parametrize("how", ["rows", "columns first", "address"])
@pytest.mark.parametrize("which", [(0,), (1,), (0, 1, 2)], ids=["q", "k", "all"])
def test_attention_gives_the_same_wherever_its_tensors_lie(how, which):
    import torch

    tensors = attention_tensors()
    expected = torch.nn.functional.scaled_dot_product_attention(*(t.double() for t in tensors))
    kernel = greenfast.explain(greenfast.attention, *tensors).kernel
    assert kernel is not None
    for number in which:
        tensors[number] = placed(tensors[number], how)
    told = greenfast.explain(greenfast.attention, *tensors)
    assert told.kernel == kernel and "it runs on a copy of" in told.why
    for _ in range(2):
        o = greenfast.attention(*tensors)
        assert (o - expected).abs().max() < 0.02


@needs_torch
@pytest.mark.parametrize("how", ["rows", "columns first", "address"])
def test_pytorchs_attention_gives_the_same_wherever_its_tensors_lie(how):
    """PyTorch itself reads contiguous tensors at odd addresses as if they began elsewhere."""
    import torch

    mask = torch.zeros((256, 256), device="cuda", dtype=torch.bfloat16)  # no kernel takes one
    tensors = attention_tensors()
    expected = torch.nn.functional.scaled_dot_product_attention(*(t.double() for t in tensors))
    o = greenfast.attention(*(placed(tensor, how) for tensor in tensors), attn_mask=mask)
    assert (o - expected).abs().max() < 0.02


@needs_torch
@pytest.mark.parametrize("how", ["rows", "columns first", "address"])
def test_attention_writes_to_out_wherever_it_lies(how):
    import torch

    tensors = attention_tensors()
    out = placed(torch.full_like(tensors[0], 7), how)
    assert greenfast.attention(*tensors, out=out) is out
    assert torch.equal(out, greenfast.attention(*tensors))


@needs_torch
@pytest.mark.parametrize("how", ["rows", "columns first"])
def test_copies_are_captured_in_a_graph(loaded, how):
    """A bundle's copies are queued on the current stream, and are repeated with its launches."""
    import torch

    kernels = loaded("boxes")
    x = torch.zeros((2, 5, 129), device="cuda", dtype=torch.float16)[..., 1:]
    if how == "columns first":
        x = torch.zeros((2, 128, 5), device="cuda", dtype=torch.float16).mT
    y = torch.empty((2, 5, 130), device="cuda", dtype=torch.float16)[..., 1:129]
    assert framework_of(x).name == "torch"
    kernels(x, y=y)  # loaded before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels(x, y=y)
    for value in (1.0, 2.0):
        x.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert (y == value).all()
