"""greenfast.linear on PyTorch's tensors; CPU tensors count as those of an H100."""

from __future__ import annotations

from functools import cache

import pytest
from runtime_bundles import SETS, use

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import greenfast  # noqa: E402
from greenfast.runtime import frameworks, torch_linear, tuned  # noqa: E402
from greenfast.runtime.fallbacks import torch_linear as library  # noqa: E402
from greenfast.search.errors import UsageError  # noqa: E402

WORDS = 5  # addresses
LARGE = 1024, 14336, 4096  # M, N, K that a kernel serves with SiLU


@pytest.fixture
def stub(stub_library, monkeypatch, tmp_path):
    use(stub_library, monkeypatch)
    kernels = greenfast.load(SETS / "gemm-h100.zip").kernels
    monkeypatch.setattr(tuned, "shipped", cache(lambda name: (kernels,)))
    monkeypatch.setattr("greenfast.runtime.signatures.set_for", lambda name, gpu: kernels)
    monkeypatch.setattr(torch_linear, "current_stream", lambda device: 0)
    monkeypatch.setattr(torch_linear, "DEVICES", ("cuda", "cpu"))
    monkeypatch.setattr(frameworks, "HOST_DEVICE", 0)
    monkeypatch.setattr(torch_linear, "_ready", {})
    monkeypatch.setattr(torch_linear, "_last", [torch_linear.Nothing()])
    stub_library.reset(WORDS)
    return stub_library


def new(*shape):
    return torch.zeros(shape, dtype=torch.bfloat16)


def test_a_call_launches_with_the_addresses_of_its_tensors(stub):
    m, n, k = LARGE
    x, weight = new(4, m // 4, k), new(n, k)
    for again in range(3):
        given = x if again < 2 else x.clone()
        with torch.no_grad():
            result = greenfast.linear(given, weight, activation="silu")
        assert result.shape == (4, m // 4, n) and result.dtype == x.dtype
        words = stub.launches()[-1]["arguments"]
        assert [words[0], words[1], words[4]] == [
            item.data_ptr() for item in (given, weight, result)
        ]
    assert len(stub.launches()) == 3 and len(torch_linear._ready) == 1


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["none", "gelu_tanh", "silu"])
@pytest.mark.parametrize("residual", [True, False])
def test_small_layers_are_pytorchs(stub, bias, activation, residual):
    x, weight = torch.randn(2, 3, 24), torch.randn(16, 24)
    b = torch.randn(16) if bias else None
    r = torch.randn(2, 3, 16) if residual else None
    got = greenfast.linear(x, weight, b, activation, r)
    expected = torch.nn.functional.linear(x, weight, b)
    if activation == "gelu_tanh":
        expected = torch.nn.functional.gelu(expected, approximate="tanh")
    elif activation == "silu":
        expected = torch.nn.functional.silu(expected)
    assert torch.allclose(got, expected if r is None else expected + r, atol=1e-5)
    assert not stub.launches()


def test_a_gradient_is_pytorchs_and_so_is_that_of_the_operator(stub):
    x = torch.randn(3, 24, requires_grad=True)
    weight, bias = torch.randn(16, 24, requires_grad=True), torch.randn(16, requires_grad=True)
    residual = torch.randn(3, 16, requires_grad=True)
    given = (x, weight, bias, "gelu_tanh", residual)
    theirs = torch.autograd.grad(library(*given).sum(), (x, weight, bias, residual))
    for function in (greenfast.linear, torch.ops.greenfast.linear):
        ours = torch.autograd.grad(function(*given).sum(), (x, weight, bias, residual))
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs, strict=True))


def test_under_compile_a_call_is_an_operator_of_the_graph(stub):
    graphs = []

    def keep(graph, example):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op != "placeholder"])
        return graph.forward

    block = torch.compile(
        lambda x, w, b: greenfast.linear(x * 2, w, b, "silu") + 1, fullgraph=True, backend=keep
    )
    with torch.no_grad():
        assert block(torch.randn(3, 24), torch.randn(16, 24), torch.randn(16)).shape == (3, 16)
    assert any("greenfast.linear" in name for name in graphs[0])


def test_what_is_no_layer_is_refused_as_pytorch_does(stub):
    with pytest.raises(UsageError, match="unknown activation"):
        greenfast.linear(new(3, 24), new(16, 24), activation="relu")
    with pytest.raises(RuntimeError, match="shape"):
        greenfast.linear(new(3, 24), new(16, 32))
