"""greenfast.linear without PyTorch: its call in gemm's terms, and dims that no tensor has."""

from __future__ import annotations

import pytest
from runtime_bundles import SETS, built_stub, use

import greenfast
from greenfast.runtime import front
from greenfast.runtime.calls import Call, Prepared, Refused, prepare
from greenfast.runtime.operation import completed, read_operation, sizes
from greenfast.runtime.program import TensorFacts, contiguous_strides
from greenfast.runtime.signatures import linear_call, linear_tensors
from greenfast.search.errors import UsageError
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES

H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture(scope="module")
def gemm():
    return read_operation((REPOSITORY_TEMPLATES / "gemm" / "kernel.toml").read_bytes())


@pytest.fixture
def stub(tmp_path_factory, monkeypatch):
    use(built_stub(tmp_path_factory.mktemp("stub")), monkeypatch)


def tensor(*shape, dtype="bf16", strides=None):
    return TensorFacts(dtype, shape, strides or contiguous_strides(shape))


@pytest.mark.parametrize(
    ("turned", "a", "b"),
    [((0, 0), (5, 24), (16, 24)), ((1, 0), (24, 5), (16, 24)), ((1, 1), (24, 5), (24, 16))],
)
def test_dims_that_no_tensor_has_follow_from_those_of_tensors(gemm, turned, a, b):
    given = dict(zip(("turned_a", "turned_b"), turned, strict=True))
    shapes = {"a": a, "b": b, "bias": (16,)}
    values = completed(gemm, {**sizes(gemm, shapes), **given})
    assert (values["M"], values["N"], values["K"]) == (5, 16, 24)


def test_a_call_gives_every_argument_and_names_those_that_are_read(gemm, stub):
    kernels = greenfast.load(SETS / "gemm-h100.zip").kernels
    facts = linear_tensors({"a": tensor(4, 32, 4096), "b": tensor(4096, 4096)})
    call = linear_call(facts, "silu")
    assert isinstance(call, Call) and call.options["bias"] == call.options["residual"] == "no"
    program = next(
        item
        for item in kernels.programs.values()
        if item.compiled["activation"] == "silu"
        and item.compiled["dtype"] == "bf16"
        and item.compiled["bias"] == "no"
    )
    alone = type(kernels)("one", kernels.operation, {"k0": program})
    state = prepare(alone, call, 0)
    assert isinstance(state, Prepared), state
    assert state.plan.names == ("a", "b", "bias", "residual", "c")
    assert state.plan.geometry.outputs["c"].shape == (128, 4096)


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({"a": tensor(8, 24), "b": tensor(16, 32)}, "rows of 24 elements, weight of 32"),
        ({"a": tensor(0, 24), "b": tensor(16, 24)}, "empty"),
        ({"a": tensor(8, 24), "b": tensor(2, 16, 24)}, "not of the form"),
        ({"a": tensor(8, 24), "b": tensor(16, 24), "residual": tensor(1, 16)}, "the shape of the"),
        ({"a": tensor(2, 3, 24, strides=(96, 24, 1)), "b": tensor(16, 24)}, "not evenly spaced"),
    ],
)
def test_other_calls_are_left_to_the_library(tensors, why):
    facts = linear_tensors(tensors)
    call = facts if isinstance(facts, Refused) else linear_call(facts, "none")
    assert isinstance(call, Refused) and why in call.why


def test_an_unknown_activation_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="unknown activation 'gelu'") as caught:
        linear_call({"a": tensor(8, 24), "b": tensor(16, 24)}, "gelu")
    assert caught.value.code == "bad_activation" and "gelu_tanh" in caught.value.mend


@pytest.mark.parametrize("name", ["attention", "linear", "rms_norm"])
def test_what_is_no_tensor_is_refused(name):
    with pytest.raises(UsageError, match="list is not a tensor"):
        getattr(front, name)([1.0], [2.0], [3.0])


def test_explain_tells_the_kernel_of_a_layer():
    dims = {"M": 1024, "N": 14336, "K": 4096}
    served = greenfast.explain("linear", gpu=H100, activation="silu", dtype="bf16", **dims)
    assert served.kernel and "M" in served.why
    elsewhere = greenfast.explain("linear", gpu="NVIDIA A100-SXM4-80GB", **dims)
    assert elsewhere.kernel is None and "no tuned set" in elsewhere.why


@pytest.mark.parametrize("gpu", [H100, "NVIDIA H200"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_each_gpu_model_has_a_set_of_its_own(gpu, dtype):
    layer = {"M": 1024, "N": 4096, "K": 4096, "activation": "silu", "dtype": dtype}
    served = greenfast.explain("linear", gpu=gpu, **layer)
    assert served.kernel and f"gemm-{gpu.split()[1].lower()}" in served.why
