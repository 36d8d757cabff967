"""PyTorch's tensors, on its CPU build and a driver that runs nothing: where calls go."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from runtime_bundles import RECORDED  # noqa: E402
from torch_stub import inputs, torch_on_stub  # noqa: E402

import greenfast  # noqa: E402
from greenfast.runtime import fallbacks, torch_front  # noqa: E402
from greenfast.search.errors import UsageError  # noqa: E402


@pytest.fixture
def stub(stub_library, tmp_path, monkeypatch):
    return torch_on_stub(stub_library, tmp_path, monkeypatch)


def test_repeated_calls_launch_with_the_addresses_of_their_tensors(stub):
    for _ in range(3):
        q, k, v = inputs()
        o = greenfast.attention(q, k, v)
        words = stub.launches()[-1]["arguments"]
        assert words[:4] == [tensor.data_ptr() for tensor in (q, k, v, o)]
        assert (o.shape, o.dtype) == (q.shape, q.dtype)
    assert len(stub.launches()) == 3 and len(torch_front._attention) == 1


def test_out_and_lse_are_written(stub):
    q, k, v = inputs()
    out = torch.empty_like(q)
    assert greenfast.attention(q, k, v, out=out) is out
    o, lse = greenfast.attention(q, k, v, return_lse=True)
    words = stub.launches()[-1]["arguments"]
    assert words[3:5] == [o.data_ptr(), lse.data_ptr()]
    assert lse.shape == (2, 8, 256) and lse.dtype == torch.float32
    for wrong in (q, out[..., :32], out.float(), out[:1].expand(out.shape)):
        with pytest.raises(UsageError, match="out "):
            greenfast.attention(q, k, v, out=wrong)


def unaligned(*shape):
    """A contiguous tensor that begins behind a multiple of 16 bytes."""
    return torch.randn(math.prod(shape) + 1).bfloat16()[1:].view(shape)


def uneven(*shape):
    """A tensor whose rows begin at no multiples of 16 bytes."""
    return torch.randn(*shape[:-1], shape[-1] + 1).bfloat16()[..., :-1]


@pytest.mark.parametrize(
    "out",
    [unaligned(2, 8, 256, 64), uneven(2, 8, 256, 64), torch.randn(2, 256, 8, 64).transpose(1, 2)],
    ids=["address", "rows", "order"],
)
def test_an_output_is_written_wherever_out_lies(stub, out):
    out = out if out.dtype is torch.bfloat16 else out.bfloat16()
    q, k, v = inputs()
    before = out.clone()
    assert greenfast.attention(q, k, v, out=out) is out
    o, lse = greenfast.attention(q, k, v, out=out, return_lse=True)
    assert o is out and lse.shape == (2, 8, 256)
    first, _ = stub.launches()
    assert first["arguments"][3] not in (0, out.data_ptr())  # the kernel writes to other memory
    assert not torch.equal(out, before)  # from where it is copied: nothing has written there


def test_out_is_checked_also_where_pytorchs_operation_runs(stub):
    q, k, v = inputs(2, 8, 700, 64)
    with pytest.raises(UsageError, match="out has the shape") as refused:
        greenfast.attention(q, k, v, out=torch.empty_like(q[:1]))
    assert refused.value.code == "bad_out"
    out = uneven(2, 8, 700, 64)
    assert greenfast.attention(q, k, v, out=out) is out
    assert torch.equal(out, torch.nn.functional.scaled_dot_product_attention(q, k, v))
    assert stub.launches() == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: uneven(2, 8, 256, 64),
        lambda: torch.randn(2, 8, 64, 256).bfloat16().mT,
        lambda: unaligned(2, 8, 256, 64),
    ],
    ids=["rows", "columns first", "address"],
)
def test_tensors_that_pytorch_would_copy_are_copied_for_a_kernel(stub, caplog, make):
    _, k, v = inputs()
    for call in range(2):
        q = make()
        o = greenfast.attention(q, k, v)
        words = stub.launches()[call]["arguments"]
        assert words[0] != q.data_ptr() and words[1:4] == [t.data_ptr() for t in (k, v, o)]
        assert words[10:13] == [8 * 256 * 64, 256 * 64, 64]
    assert len(torch_front._attention) == 1  # the copies' signature
    assert len(caplog.messages) == 1 and "attention copies tensors: q, because" in caplog.text
    told = greenfast.explain(greenfast.attention, q, k, v)
    assert told.kernel is not None and "it runs on a copy of q, because" in told.why
    # Where no kernel serves the shape, or a gradient is needed, PyTorch's copies are the only ones.
    q, k, v = (uneven(2, 8, 700, 64) for _ in range(3))
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert torch.equal(greenfast.attention(q, k, v), theirs)
    q = make().requires_grad_()
    greenfast.attention(q, *inputs()[:2]).sum().backward()
    assert q.grad is not None and len(stub.launches()) == 2


def test_pytorchs_operation_gets_copies_of_tensors_that_begin_anywhere(stub, monkeypatch):
    """On a GPU, it computes wrong values for such a tensor, or ends with an error."""
    given = []
    whole = torch_front._sdpa
    monkeypatch.setattr(
        torch_front, "_sdpa", lambda *a, **more: given.append(a) or whole(*a, **more)
    )
    for make in (inputs, lambda *shape: [unaligned(*shape) for _ in range(3)]):
        tensors = make(2, 8, 700, 64)  # a shape that no kernel serves
        for _ in range(2):
            greenfast.attention(*tensors)
    assert len(given) == 4 and stub.launches() == []
    assert all(tensor.data_ptr() % 16 == 0 for call in given for tensor in call[:3])


@pytest.mark.parametrize(
    "settings",
    [
        {"dropout_p": 0.5},
        {"attn_mask": torch.zeros(256, 256, dtype=torch.bfloat16)},
        {"scale": -1.0},
        {"gradient": True},
        {"subclass": True},
        {"shape": (2, 8, 700, 64)},
        {"shape": (8, 256, 64)},
        {"dtype": torch.float16},
        {"dtype": torch.float32},
    ],
    ids=str,
)
def test_what_no_kernel_serves_is_pytorchs(stub, settings):
    special = {key: settings.get(key) for key in ("gradient", "subclass")}
    q, k, v = inputs(*settings.get("shape", ()), dtype=settings.get("dtype", torch.bfloat16))
    given = {key: settings[key] for key in ("dropout_p", "attn_mask", "scale") if key in settings}
    if special["gradient"]:
        q.requires_grad_()
    if special["subclass"]:
        q = q.as_subclass(type("Own", (torch.Tensor,), {}))
    for _ in range(2):  # the second call finds what the first left
        torch.manual_seed(0)
        ours = greenfast.attention(q, k, v, **given)
        torch.manual_seed(0)
        theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, **given)
        assert torch.equal(ours, theirs)
        assert ours.requires_grad == theirs.requires_grad
    assert stub.launches() == []


def test_under_autocast_pytorch_chooses_the_types(stub, monkeypatch):
    q, k, v = inputs()
    greenfast.attention(q, k, v)
    monkeypatch.setattr(torch_front, "_autocast", lambda: True)  # the CPU build has none for CUDA
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device="cuda": device == "cuda")
    greenfast.attention(q, k, v)
    assert len(stub.launches()) == 1


def test_a_kernel_stays_in_use_beside_fallbacks_of_the_same_shape(stub):
    q, k, v = inputs()
    greenfast.attention(q, k, v)
    greenfast.attention(q.clone().requires_grad_(), k, v)
    greenfast.attention(q, k, v)
    with torch.no_grad():
        greenfast.attention(q.clone().requires_grad_(), k, v)
    assert len(stub.launches()) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.requires_grad_(),
        lambda t: t.set_(torch.randn(2, 8, 700, 64).bfloat16()),
    ],
    ids=["gradient", "shape"],
)
def test_tensors_that_changed_since_the_last_call_are_others(stub, change):
    tensors = inputs()
    for _ in range(3):
        greenfast.attention(*tensors)
    for tensor in tensors:
        change(tensor)
    o = greenfast.attention(*tensors)
    assert torch.equal(o, torch.nn.functional.scaled_dot_product_attention(*tensors))
    assert len(stub.launches()) == 3


def test_a_tensor_that_begins_elsewhere_since_the_last_call_is_copied(stub):
    q, k, v = inputs()
    for _ in range(3):
        greenfast.attention(q, k, v)
    q.set_(unaligned(2, 8, 256, 64))
    greenfast.attention(q, k, v)
    at = stub.launches()[3]["arguments"][0]
    assert at != q.data_ptr() and at % 16 == 0


def test_the_quick_comparison_is_used_and_keeps_the_modes_apart(stub, monkeypatch):
    q, k, v = inputs()
    for _ in range(3):
        greenfast.attention(q, k, v)
    by_signature = []
    whole = torch_front._by_signature
    monkeypatch.setattr(
        torch_front, "_by_signature", lambda *a: by_signature.append(a) or whole(*a)
    )
    greenfast.attention(*inputs())
    assert not by_signature
    with torch.inference_mode():
        for _ in range(3):
            greenfast.attention(*inputs())
    assert len(by_signature) == 1  # the comparison is made again for the mode
    greenfast.attention(q, k, v, is_causal=True)
    assert len(by_signature) == 2
    with torch.autocast("cpu", torch.bfloat16):
        assert not torch_front._last_attention[0].same(q, k, v)
    assert len(stub.launches()) == 8


def test_beside_other_devices_the_current_one_takes_the_quick_way(stub, monkeypatch):
    monkeypatch.setattr(torch_front, "_one_device", False)
    slow = []
    monkeypatch.setattr(
        torch_front, "_run", lambda *a, run=torch_front._run: slow.append(a) or run(*a)
    )
    for device, expected in ((0, 1), (1, 3)):  # the first call of all is prepared slowly
        monkeypatch.setattr(torch_front, "_device", lambda device=device: device)
        for _ in range(2):
            q, k, v = inputs()
            o = greenfast.attention(q, k, v)
            words = stub.launches()[-1]["arguments"]
            assert words[:4] == [tensor.data_ptr() for tensor in (q, k, v, o)]
        assert len(slow) == expected


def test_a_reason_is_logged_once(stub, caplog):
    with caplog.at_level(logging.WARNING, "greenfast.runtime"):
        for rows in (600, 601, 602, 602):
            greenfast.attention(*inputs(1, 4, rows, 64))
        greenfast.attention(*inputs(1, 4, 602, 64, dtype=torch.float16))
    assert len(caplog.records) == 2


@pytest.mark.parametrize("rows", [5, 64])
def test_the_fallbacks_masks_and_lse_are_those_of_the_kernels(rows):
    q, k, v = (torch.randn(2, 4, count, 16).double() for count in (rows, 9, 9))
    k, v = k[:, :2], v[:, :2]
    seen = torch.ones(rows, 9, dtype=torch.bool)
    for mask, diagonal in (("none", 9), ("causal_top_left", 0), ("causal_bottom_right", 9 - rows)):
        keys, values = (tensor.repeat_interleave(2, 1) for tensor in (k, v))
        scores = (q @ keys.transpose(-1, -2) * 0.3).masked_fill(~seen.tril(diagonal), -torch.inf)
        lse = torch.logsumexp(scores, -1)
        exact = torch.exp(scores - lse.nan_to_num(neginf=0.0)[..., None]) @ values
        found = fallbacks.torch_attention(q, k, v, mask, 0.3, lse=True, grouped=True)
        assert torch.allclose(found["o"], exact, atol=1e-6)
        assert torch.allclose(found["lse"].double(), lse, atol=1e-5)
    empty = fallbacks.torch_attention(
        q, k[:, :, :0], v[:, :, :0], "none", None, lse=True, grouped=True
    )
    assert not empty["o"].any() and bool(torch.isneginf(empty["lse"]).all())


def test_contradictions_are_refused(stub):
    q, k, v = inputs()
    for settings, message in (
        ({"mask": "diagonal"}, "unknown mask 'diagonal'"),
        ({"mask": "none", "is_causal": True}, "contradict each other"),
        ({"attn_mask": torch.zeros(256, 256), "return_lse": True}, "go with neither"),
    ):
        with pytest.raises(UsageError, match=message):
            greenfast.attention(q, k, v, **settings)


def test_vmap_is_pytorchs(stub):
    q, k, v = inputs(3, 2, 8, 256, 64)
    greenfast.attention(q[0], k[0], v[0])
    ours = torch.func.vmap(greenfast.attention)(q, k, v)
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert torch.allclose(ours, theirs, atol=0.05)
    assert len(stub.launches()) == 1


def test_rms_norm_of_many_dims_is_one_of_rows(stub):
    stub.reset(12)
    x, residual = (torch.randn(4, 8, 4096).half() for _ in range(2))
    weight = torch.randn(4096).half()
    for _ in range(2):
        y, h = greenfast.rms_norm(x, weight, residual, 1e-5)
    assert (y.shape, h.shape) == (x.shape, x.shape)
    words = stub.launches()[-1]["arguments"]
    assert words[:5] == [item.data_ptr() for item in (x, residual, weight, h, y)]
    assert words[5:7] == [32, 4096] and len(stub.launches()) == 2
    gaps = torch.randn(4, 9, 4096).half()[:, :8]  # rows that are not evenly spaced
    for other in (gaps, x.clone().requires_grad_()):
        ours, total = greenfast.rms_norm(other, weight, residual)
        assert torch.equal(total, other + residual) and ours.shape == x.shape
    assert len(stub.launches()) == 2
    alone = greenfast.rms_norm(x, weight, eps=1e-5)
    assert torch.equal(alone, torch.nn.functional.rms_norm(x, (4096,), weight, 1e-5))


def test_under_compile_a_call_is_an_operator_of_the_graph(stub):
    graphs = []

    def keep(graph, example):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op != "placeholder"])
        return graph.forward

    q, k, v = inputs()
    block = torch.compile(
        lambda q, k, v: greenfast.attention(q * 2, k, v, is_causal=True) + 1,
        fullgraph=True,
        backend=keep,
    )
    with torch.no_grad():
        assert block(q, k, v).shape == q.shape
    assert any("greenfast.attention" in name for name in graphs[0])
    assert len(stub.launches()) == 1
    block(q.clone().requires_grad_(), k, v)
    assert any("scaled_dot_product_attention" in name for name in graphs[1])


def test_the_operators_are_whole(stub):
    q, k, v = inputs(1, 4, 128, 64)
    checks = ("test_schema", "test_faketensor")
    arguments = (q, k, v, "none", None, False)
    torch.library.opcheck(torch.ops.greenfast.attention.default, arguments, test_utils=checks)
    torch.library.opcheck(torch.ops.greenfast.attention_lse.default, arguments, test_utils=checks)
    turned = torch.randn(1, 700, 4, 64).bfloat16().transpose(1, 2)  # served by PyTorch
    o = torch.ops.greenfast.attention(turned, turned, turned, "none", None, False)
    assert o.stride() == turned.stride()
    q.requires_grad_()
    torch.ops.greenfast.attention(q, k, v, "none", None, False).float().sum().backward()
    ours, q.grad = q.grad, None
    torch.nn.functional.scaled_dot_product_attention(q, k, v).float().sum().backward()
    assert torch.equal(ours, q.grad)


class Foreign:
    """An array of another library, met through DLPack alone."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack__(self, **settings):
        return self._tensor.__dlpack__(**settings)

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()


def test_arrays_of_other_libraries_come_through_dlpack(stub):
    q, k, v = inputs()
    o = greenfast.attention(*(Foreign(tensor) for tensor in (q, k, v)))
    words = stub.launches()[-1]["arguments"]
    assert words[:4] == [tensor.data_ptr() for tensor in (q, k, v, o)]
    kernels = greenfast.load(RECORDED)
    kernels(*(Foreign(tensor) for tensor in (q, k, v)), mask="none")
    assert len(stub.launches()) == 2


@pytest.mark.parametrize(
    ("layout", "copied"),
    [
        (lambda: torch.randn(2, 4, 33, 64), False),
        (lambda: torch.randn(2, 33, 4, 64).transpose(1, 2), False),
        (lambda: torch.randn(1, 4, 33, 64).expand(2, 4, 33, 64), False),
        (lambda: torch.randn(2, 4, 33, 65)[..., :64], True),  # rows begin anywhere
        (lambda: torch.randn(2, 1, 8, 97)[..., :96].transpose(1, 2), True),
        (lambda: torch.randn(2, 4, 64, 33).transpose(2, 3), True),
        (lambda: torch.randn(2, 1, 1, 97)[..., :96], True),  # of the batch alone
        (lambda: torch.randn(2, 4, 5, 3), False),  # PyTorch pads these itself
        (lambda: torch.randn(2 * 4 * 33 * 64 + 1)[1:].view(2, 4, 33, 64), True),
        (lambda: torch.randn(2 * 4 * 33 * 64 + 4)[4:].view(2, 4, 33, 64), False),
    ],
)
def test_pytorch_gets_rows_that_begin_where_its_loads_do(layout, copied):
    tensor = layout()
    even = fallbacks.evenly_laid(tensor)
    assert (even.data_ptr() != tensor.data_ptr()) == copied
    assert torch.equal(even, tensor)
    assert even.is_contiguous() or not copied


def cupy_stand_in():
    """A module `cupy` whose arrays are PyTorch's tensors underneath, on device 0."""
    module = types.ModuleType("cupy")

    class Array:
        __module__ = "cupy"

        def __init__(self, tensor):
            self.tensor, self.shape = tensor, tuple(tensor.shape)
            self.dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
            self.strides = tuple(step * self.dtype.itemsize for step in tensor.stride())
            self.data = types.SimpleNamespace(ptr=tensor.data_ptr())
            self.device = contextlib.nullcontext()
            self.device.id = 0

        def __dlpack__(self, **settings):
            return self.tensor.__dlpack__(**settings)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    module.ndarray = Array
    module.from_dlpack = lambda other: Array(torch.from_dlpack(other))
    return module


def test_what_no_kernel_serves_falls_back_in_every_library_with_one_line(stub, monkeypatch, caplog):
    """The line and `explain` give the same reason; results come back in the caller's library."""
    cupy = cupy_stand_in()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    tensors = tuple(torch.randn(1, 4, 700, 64).half() for _ in range(3))
    theirs = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True)
    ways = {
        torch.Tensor: lambda tensor: tensor,
        cupy.ndarray: cupy.ndarray,
        Foreign: Foreign,
        np.ndarray: lambda tensor: tensor.numpy(),
    }
    for kind, made in ways.items():
        fallbacks._TOLD.clear()
        torch_front._attention.clear()
        caplog.clear()
        arrays = [made(tensor) for tensor in tensors]
        with caplog.at_level(logging.WARNING, "greenfast.runtime"):
            for _ in range(2):
                o = greenfast.attention(*arrays, is_causal=True)
        assert isinstance(o, torch.Tensor if kind is Foreign else kind)
        assert torch.equal(torch.from_dlpack(o), theirs)
        (line,) = (record.getMessage() for record in caplog.records)
        explanation = greenfast.explain(greenfast.attention, *arrays, is_causal=True)
        assert explanation.kernel is None and explanation.why in line
    with pytest.raises(UsageError, match="out cannot be written"):
        greenfast.attention(*arrays, out=tensors[0])
    assert stub.launches() == []


def attention_of(**changed):
    q, k, v = inputs()
    return greenfast.attention(**{"q": q, "k": k, "v": v, **changed})


def linear_of(**changed):
    x, weight = torch.randn(4, 8), torch.randn(6, 8)
    return greenfast.linear(**{"x": x, "weight": weight, **changed})


def rms_norm_of(**changed):
    return greenfast.rms_norm(**{"x": torch.ones(2, 8), "weight": torch.ones(8), **changed})


@pytest.mark.parametrize(
    ("call", "changed", "code"),
    [
        (attention_of, {"q": None}, "not_a_tensor"),
        (attention_of, {"q": torch.Tensor}, "not_a_tensor"),
        (attention_of, {"q": np.zeros((2, 3), "M8[D]")}, "not_a_tensor"),
        (attention_of, {"k": [[1.0]]}, "not_a_tensor"),
        (attention_of, {"v": np.zeros((2, 8, 256, 64), "float32")}, "bad_call"),  # of NumPy alone
        # PyTorch 2.13 ends the process on an array with negative strides.
        (attention_of, {"q": np.zeros((2, 3, 4, 8), "float32")[::-1]}, "bad_strides"),
        (attention_of, {"attn_mask": "causal"}, "not_a_tensor"),
        (attention_of, {"scale": [0.5]}, "bad_call"),
        (attention_of, {"scale": 10**400}, "bad_call"),
        (attention_of, {"is_causal": torch.tensor([True, False])}, "bad_call"),
        (attention_of, {"mask": ["none"]}, "bad_mask"),
        (linear_of, {"activation": ["relu"]}, "bad_activation"),
        (linear_of, {"activation": "relu"}, "bad_activation"),
        (linear_of, {"weight": None}, "not_a_tensor"),
        (rms_norm_of, {"eps": "small"}, "bad_call"),
        (rms_norm_of, {"residual": "x"}, "not_a_tensor"),
    ],
)
def test_an_argument_of_a_wrong_kind_is_named_with_a_code(stub, call, changed, code):
    with pytest.raises(UsageError) as refused:
        call(**changed)
    assert refused.value.code == code and len(str(refused.value)) < 200
    names = ("q", "k", "v") if call is attention_of else ("x", "weight")
    given = dict.fromkeys(names, torch.ones(2, 2, 4, 8))
    with pytest.raises(UsageError) as explained:
        greenfast.explain(call.__name__.removesuffix("_of"), **{**given, **changed})
    assert explained.value.code in (code, "bad_call")


def test_a_scale_that_can_change_is_pytorchs(stub):
    """A kept signature would not see the change."""
    q, k, v = inputs()
    scale = torch.tensor(0.5)
    first = greenfast.attention(q, k, v, scale=scale)
    scale.fill_(0.1)
    second = greenfast.attention(q, k, v, scale=scale)
    assert not stub.launches() and not torch.equal(first, second)


def test_nested_tensors_are_pytorchs(stub):
    nested = torch.nested.nested_tensor([torch.ones(2, 3, 8), torch.ones(2, 5, 8)])
    assert greenfast.attention(nested, nested, nested).is_nested
