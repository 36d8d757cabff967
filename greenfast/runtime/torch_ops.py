"""greenfast's operations as operators of PyTorch, for torch.compile.

Each has a fake kernel, which gives shapes and strides alone. Under autograd an operator's gradient
is that of PyTorch's own operation, computed again.
"""

from __future__ import annotations

from typing import Any

import torch

from greenfast.runtime import torch_front, torch_linear
from greenfast.runtime.calls import dense_strides
from greenfast.runtime.fallbacks import torch_add_rms_norm, torch_attention
from greenfast.runtime.fallbacks import torch_linear as library_linear
from greenfast.runtime.program import TensorFacts

_LIBRARY = torch.library.Library("greenfast", "DEF")
_ARGUMENTS = "(Tensor q, Tensor k, Tensor v, str mask, float? scale, bool grouped)"
_LIBRARY.define(f"attention{_ARGUMENTS} -> Tensor")
_LIBRARY.define(f"attention_lse{_ARGUMENTS} -> (Tensor, Tensor)")
_LIBRARY.define(
    "linear(Tensor x, Tensor weight, Tensor? bias, str activation, Tensor? residual) -> Tensor"
)
_LIBRARY.define("rms_norm(Tensor x, Tensor weight, Tensor residual, float eps) -> (Tensor, Tensor)")


def _attention(q: Any, k: Any, v: Any, mask: str, scale: float | None, grouped: bool) -> Any:
    with torch.no_grad():
        o = torch_front.attention(q, k, v, mask=mask, scale=scale, enable_gqa=grouped)
    return _as_promised(o, q)


def _attention_lse(q: Any, k: Any, v: Any, mask: str, scale: float | None, grouped: bool) -> Any:
    with torch.no_grad():
        o, lse = torch_front.attention(
            q, k, v, mask=mask, scale=scale, enable_gqa=grouped, return_lse=True
        )
    return _as_promised(o, q), lse.contiguous()


def _rms_norm(x: Any, weight: Any, residual: Any, eps: float) -> Any:
    with torch.no_grad():
        y, h = torch_front.rms_norm(x, weight, residual, eps)
    return y.contiguous(), h.contiguous()


def _linear(x: Any, weight: Any, bias: Any, activation: str, residual: Any) -> Any:
    with torch.no_grad():
        return torch_linear.linear(x, weight, bias, activation, residual).contiguous()


def _like(q: Any) -> Any:
    """An output as the kernels write it: dense, with the axes in the memory order of q."""
    strides = dense_strides(TensorFacts("", tuple(q.shape), tuple(q.stride())))
    return torch.empty_strided(q.shape, strides, dtype=q.dtype, device=q.device)


def _as_promised(o: Any, q: Any) -> Any:
    """`o` with the strides that the fake kernel gave; the library's own may differ."""
    strides = dense_strides(TensorFacts("", tuple(q.shape), tuple(q.stride())))
    if tuple(o.stride()) == strides:
        return o
    return torch.empty_strided(q.shape, strides, dtype=q.dtype, device=q.device).copy_(o)


for _device in ("CUDA", "CPU"):
    _LIBRARY.impl("attention", _attention, _device)
    _LIBRARY.impl("attention_lse", _attention_lse, _device)
    _LIBRARY.impl("linear", _linear, _device)
    _LIBRARY.impl("rms_norm", _rms_norm, _device)


def _fake_attention(q: Any, k: Any, v: Any, mask: str, scale: float | None, grouped: bool) -> Any:
    return _like(q)


def _fake_attention_lse(
    q: Any, k: Any, v: Any, mask: str, scale: float | None, grouped: bool
) -> Any:
    return _like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)


def _fake_linear(x: Any, weight: Any, bias: Any, activation: str, residual: Any) -> Any:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _fake_rms_norm(x: Any, weight: Any, residual: Any, eps: float) -> Any:
    return x.new_empty(x.shape), x.new_empty(x.shape)


for _operator, _fake in (
    ("attention", _fake_attention),
    ("attention_lse", _fake_attention_lse),
    ("linear", _fake_linear),
    ("rms_norm", _fake_rms_norm),
):
    torch.library.register_fake(f"greenfast::{_operator}", _fake, lib=_LIBRARY)


# ---- gradients ----


def _keep_attention(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, ctx.mask, ctx.scale, ctx.grouped = inputs
    ctx.save_for_backward(q, k, v)


def _attention_gradient(ctx: Any, *gradients: Any) -> Any:
    with torch.enable_grad():
        inputs = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        q, k, v = inputs
        outputs = torch_attention(
            q, k, v, ctx.mask, ctx.scale, lse=len(gradients) == 2, grouped=ctx.grouped
        )
        results = [outputs[name] for name in ("o", "lse")[: len(gradients)]]
        input_gradients = torch.autograd.grad(results, inputs, gradients)
    return (*input_gradients, None, None, None)


def _keep_rms_norm(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, residual, ctx.eps = inputs
    ctx.save_for_backward(x, weight, residual)


def _rms_norm_gradient(ctx: Any, y_gradient: Any, h_gradient: Any) -> Any:
    with torch.enable_grad():
        x, weight, residual = (tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
        h, y = torch_add_rms_norm(x, residual, weight, ctx.eps)
        input_gradients = torch.autograd.grad(
            (y, h), (x, weight, residual), (y_gradient, h_gradient)
        )
    return (*input_gradients, None)


def _keep_linear(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, ctx.activation, residual = inputs
    ctx.given = tuple(tensor is not None for tensor in (x, weight, bias, residual))
    ctx.save_for_backward(*(item for item in (x, weight, bias, residual) if item is not None))


def _linear_gradient(ctx: Any, gradient: Any) -> Any:
    with torch.enable_grad():
        saved = iter(tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
        inputs = [next(saved) if given else None for given in ctx.given]
        x, weight, bias, residual = inputs
        result = library_linear(x, weight, bias, ctx.activation, residual)
        present = [tensor for tensor in inputs if tensor is not None]
        gradients = iter(torch.autograd.grad(result, present, gradient))
    x, weight, bias, residual = (next(gradients) if given else None for given in ctx.given)
    return x, weight, bias, None, residual


for _name in ("attention", "attention_lse"):
    torch.library.register_autograd(
        f"greenfast::{_name}", _attention_gradient, setup_context=_keep_attention, lib=_LIBRARY
    )
torch.library.register_autograd(
    "greenfast::linear", _linear_gradient, setup_context=_keep_linear, lib=_LIBRARY
)
torch.library.register_autograd(
    "greenfast::rms_norm", _rms_norm_gradient, setup_context=_keep_rms_norm, lib=_LIBRARY
)
