"""Bundles that were loaded, called with PyTorch's tensors on a driver that runs nothing."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from runtime_bundles import ATTENTION_WORDS, RECORDED  # noqa: E402
from torch_stub import inputs, torch_on_stub  # noqa: E402

import greenfast  # noqa: E402
from greenfast.runtime import torch_loaded  # noqa: E402
from greenfast.runtime.program import ScratchForm  # noqa: E402
from greenfast.search.errors import UsageError  # noqa: E402
from greenfast.search.kernels.expressions import expression  # noqa: E402


@pytest.fixture
def stub(stub_library, tmp_path, monkeypatch):
    return torch_on_stub(stub_library, tmp_path, monkeypatch)


def test_a_loaded_bundle_serves_tensors_and_falls_back(stub):
    kernels = greenfast.load(RECORDED)
    q, k, v = inputs()
    o = kernels(q, k, v, mask="none")
    assert stub.launches()[-1]["arguments"][3] == o.data_ptr()
    assert kernels.explain(q, k, v, mask="none").kernel == "mma 64d692f10e7b"
    q, k, v = inputs(1, 4, 700, 64)
    ours = kernels(q, k, v, mask="causal_top_left", scale=0.5)
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5)
    assert torch.equal(ours, theirs) and len(stub.launches()) == 1
    q, k, v = inputs()
    with pytest.raises(UsageError, match="overlaps q in memory"):
        kernels(q, k, v, o=q, mask="none")


def repeating(monkeypatch, kernels, *tensors, **settings):
    """Make a call known; the list grows by one for each later call that is not recognised."""
    for _ in range(2):
        kernels(*tensors, **settings)
    slow = []
    whole = type(kernels)._sorted
    monkeypatch.setattr(
        type(kernels), "_sorted", lambda self, *given: slow.append(given) or whole(self, *given)
    )
    return slow


def test_a_repeated_call_of_a_loaded_bundle_goes_straight_to_its_launch(stub, monkeypatch):
    kernels = greenfast.load(RECORDED)
    slow = repeating(monkeypatch, kernels, *inputs(), mask="none")
    for settings in ({"mask": "none"}, {"mask": "none", "scale": 0.5, "optional": ("lse",)}) * 2:
        q, k, v = inputs()
        made = kernels(q, k, v, **settings)
        outputs = made if isinstance(made, tuple) else (made,)
        assert [item.dtype for item in outputs] == [torch.bfloat16, torch.float32][: len(outputs)]
        words = stub.launches()[-1]["arguments"]
        assert words[:3] == [tensor.data_ptr() for tensor in (q, k, v)]
        assert words[3:5] == [*(item.data_ptr() for item in outputs), 0][:2]
    assert len(slow) == 1 and len(stub.launches()) == 6  # lse and scale were new once
    kernels(*inputs(2, 8, 128, 64), mask="none")
    assert len(slow) == 2 and stub.launches()[-1]["arguments"][7] == 128  # its rows
    kernels(*inputs(), mask="causal_top_left")
    assert len(slow) == 3
    kernels(q, q, q, mask="none")  # one tensor thrice is no other signature
    assert len(slow) == 3 and stub.launches()[-1]["arguments"][1] == q.data_ptr()


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.requires_grad_(),
        lambda t: t.set_(torch.randn(2, 8, 700, 64).bfloat16()),
        lambda t: setattr(t, "data", t.data.half()),
    ],
    ids=["gradient", "shape", "type"],
)
def test_what_no_kernel_takes_is_found_after_repeated_calls_of_a_bundle(stub, monkeypatch, change):
    kernels, tensors = greenfast.load(RECORDED), inputs()
    slow = repeating(monkeypatch, kernels, *tensors, mask="none")
    for tensor in tensors:
        change(tensor)
    o = kernels(*tensors, mask="none")
    assert torch.equal(o, torch.nn.functional.scaled_dot_product_attention(*tensors))
    assert len(slow) == 1 and len(stub.launches()) == 2


UNEVEN = torch.randn(2, 8, 256, 65).bfloat16()[..., :64]
UNALIGNED = torch.randn(2 * 8 * 256 * 64 + 1).bfloat16()[1:].view(2, 8, 256, 64)


@pytest.mark.parametrize("tensor", [UNEVEN, UNALIGNED], ids=["strides", "address"])
def test_a_tensor_that_the_kernel_cannot_read_is_copied_for_it(stub, monkeypatch, caplog, tensor):
    kernels, (q, k, v) = greenfast.load(RECORDED), inputs()
    slow = repeating(monkeypatch, kernels, q, k, v, mask="none")
    for _ in range(2):
        o = kernels(q, tensor, v, mask="none")
        words = stub.launches()[-1]["arguments"]
        assert words[0] == q.data_ptr() and words[2:4] == [v.data_ptr(), o.data_ptr()]
        assert words[1] != tensor.data_ptr() and words[1] % 16 == 0
        assert words[13:16] == [8 * 256 * 64, 256 * 64, 64]
    assert "attention copies tensors:" in caplog.text and "runs on a copy of k" in caplog.text
    assert "it runs on a copy of k, because k " in kernels.explain(q, tensor, v, mask="none").why
    kernels(q, k, v, mask="none")  # as before
    assert len(slow) == 3 and stub.launches()[-1]["arguments"][1] == k.data_ptr()


@pytest.mark.parametrize("tensor", [UNEVEN, UNALIGNED], ids=["strides", "address"])
def test_an_output_that_the_kernel_cannot_write_is_copied_back(stub, tensor):
    kernels, out = greenfast.load(RECORDED), tensor
    assert kernels(*inputs(), mask="none", o=out) is out
    assert stub.launches()[-1]["arguments"][3] not in (0, out.data_ptr())
    with pytest.raises(UsageError, match="the output o has the stride 0 in dim 0") as refused:
        kernels(*inputs(), mask="none", o=out[:1].expand(out.shape))
    assert refused.value.code == "overlap"


def test_a_type_that_no_kernel_knows_is_refused_with_a_reason(stub):
    kernels, (q, k, v) = greenfast.load(RECORDED), (t.to(torch.complex64) for t in inputs())
    assert "torch.complex64" in kernels.explain(q, k, v, mask="none").why
    assert "torch.complex64" in kernels.explain(q, k, v, mask="none", o=torch.empty_like(q)).why


def test_a_bundles_repeated_calls_refuse_what_its_first_call_refuses(stub, monkeypatch):
    kernels, (q, k, v) = greenfast.load(RECORDED), inputs()
    slow = repeating(monkeypatch, kernels, q, k, v, mask="none", scale=0.5)
    for settings, message in (
        ({"o": q}, "overlaps q in memory"),
        ({"scale": np.ones(2)}, "not a number"),
        ({"scale": "0.5"}, "is text"),
        ({"gain": 1}, "has no argument 'gain'"),
        ({"optional": ["o"]}, "no optional output 'o'"),
    ):
        with pytest.raises(UsageError, match=message):
            kernels(q, k, v, **{"mask": "none", "scale": 0.5, **settings})
    with pytest.raises(UsageError, match="takes 3 inputs"):
        kernels(q, k, v, q)
    with pytest.raises(UsageError, match="v is missing"):
        kernels(q, k, mask="none", scale=0.5)
    kernels(q, k, v, mask="none", scale=torch.tensor(0.5))
    assert len(slow) == 8 and len(stub.launches()) == 3
    kernels(q, k, v, mask="none", scale=-1.0)  # PyTorch's
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device="cuda": device == "cuda")
    with torch.autocast("cpu", torch.bfloat16):
        kernels(q, k, v, mask="none", scale=0.5)
    assert len(slow) == 10 and len(stub.launches()) == 3


def test_under_vmap_or_on_another_device_a_bundles_call_is_checked_whole(stub, monkeypatch):
    kernels, (q, k, v) = greenfast.load(RECORDED), inputs(3, 2, 8, 256, 64)
    slow = repeating(monkeypatch, kernels, q[0], k[0], v[0], mask="none")
    ours = torch.func.vmap(lambda *t: kernels(*t, mask="none"))(q, k, v)
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert torch.allclose(ours, theirs, atol=0.05) and len(stub.launches()) == 2
    monkeypatch.setattr(torch_loaded, "one_device", False)
    monkeypatch.setattr(torch_loaded, "current_device", lambda: 1)
    kernels(q[0], k[0], v[0], mask="none")
    assert len(slow) == 2 and len(stub.launches()) == 3


def test_a_bundles_repeated_calls_have_scratch_memory_of_their_own(stub, monkeypatch):
    recorded = greenfast.load(RECORDED).kernels
    scratch = (
        ScratchForm("workspace", expression("4 * B * H", ""), False),
        ScratchForm("tickets", expression("4 * B", ""), True),
    )
    program = dataclasses.replace(recorded.programs["k3"], scratch=scratch)
    changed = dataclasses.replace(recorded, programs={"k3": program}, groups=())
    kernels = type(greenfast.load(RECORDED))(changed, None)
    stub.reset(ATTENTION_WORDS + 2)
    slow = repeating(monkeypatch, kernels, *inputs())
    stub.leave()  # as in a new thread
    kernels(*inputs())
    assert not slow and stub.memsets == 3
    assert 0 not in stub.launches()[-1]["arguments"][22:24]
