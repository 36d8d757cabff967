"""The operations' own libraries, for calls that no kernel serves. Arrays of CuPy go by DLPack."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from greenfast.runtime.frameworks import framework_of
from greenfast.runtime.kernel_set import LIBRARY
from greenfast.search.errors import UsageError
from greenfast.search.kernels.expressions import Value

log = logging.getLogger("greenfast.runtime")
MOST_REASONS = 100  # that are logged
_NUMBER = re.compile(r"\d+")
_TOLD: set[tuple[str, str]] = set()
VECTOR_BYTES = 16  # of a load
LARGEST_SCORES = 1 << 26  # elements of the scores that are held at a time
Fallback = Callable[
    [Mapping[str, Any], Mapping[str, Value], Mapping[str, Value], frozenset[str], str],
    Mapping[str, Any],
]


def tell(operation: str, why: str) -> None:
    """Log why a call falls back, once for reasons that differ in their numbers alone."""
    _tell_once("%s falls back to the library: %s", operation, why)


def tell_copies(operation: str, why: str) -> None:
    """Log why a call copies tensors for a kernel, once in the same way."""
    _tell_once("%s copies tensors: %s", operation, why)


def _tell_once(text: str, operation: str, why: str) -> None:
    kind = operation, _NUMBER.sub("0", why)
    if kind not in _TOLD and len(_TOLD) < MOST_REASONS:
        _TOLD.add(kind)
        log.warning(text, operation, why)


def _in_torch(tensors: Mapping[str, Any], why: str) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """The tensors in PyTorch, and the way back."""
    framework = framework_of(next(iter(tensors.values())))
    name = framework.name if framework else ""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise UsageError(
            f"no kernel takes this call ({why}), and PyTorch, which would compute it, is not "
            "installed",
            code="no_kernel",
        ) from None
    if name == "torch":
        return dict(tensors), lambda tensor: tensor
    if name == "cupy":
        cupy = importlib.import_module("cupy")
        # PyTorch 2.13 ends the process on a negative stride.
        forward = {
            key: cupy.ascontiguousarray(value) if min(value.strides, default=0) < 0 else value
            for key, value in tensors.items()
        }
        return {key: torch.from_dlpack(value) for key, value in forward.items()}, cupy.from_dlpack
    raise UsageError(f"no kernel takes this call: {why}", code="no_kernel")


def attention_fallback(
    tensors: Mapping[str, Any],
    options: Mapping[str, Value],
    constants: Mapping[str, Value],
    without: frozenset[str],
    why: str,
) -> Mapping[str, Any]:
    inputs, back = _in_torch({name: tensors[name] for name in ("q", "k", "v")}, why)
    scale = constants.get("scale")
    outputs = torch_attention(
        inputs["q"],
        inputs["k"],
        inputs["v"],
        str(options.get("mask", "none")),
        None if scale is None else float(scale),
        lse="lse" not in without,
        grouped=True,
    )
    return {name: back(tensor) for name, tensor in outputs.items()}


def torch_attention(
    q: Any, k: Any, v: Any, mask: str, scale: float | None, *, lse: bool, grouped: bool
) -> dict[str, Any]:
    """PyTorch's scaled_dot_product_attention for our masks; rows that see no key give 0."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = (evenly_laid(tensor) for tensor in (q, k, v))
    causal = mask == "causal_top_left" or (mask != "none" and q.shape[-2] == k.shape[-2])
    bias = None
    if mask == "causal_bottom_right" and not causal:
        bias = bottom_right(q.shape[-2], k.shape[-2], q.device)
    grouped = grouped and q.dim() == 4 and q.shape[1] != k.shape[1]
    outputs = {}
    if k.shape[-2] == 0:
        outputs["o"] = torch.zeros_like(q)
    else:
        o = scaled_dot_product_attention(
            q, k, v, attn_mask=bias, is_causal=causal, scale=scale, enable_gqa=grouped
        )
        # PyTorch's backends give NaN or a mean for a row without keys.
        outputs["o"] = o if bias is None else o * bias.any(-1, keepdim=True)
    if lse:
        outputs["lse"] = log_sum_exp(q, k, mask, scale)
    return outputs


def evenly_laid(tensor: Any) -> Any:
    """The tensor, or a contiguous copy where PyTorch could read it at a misaligned address."""
    import torch

    return tensor if is_even(tensor) else tensor.clone(memory_format=torch.contiguous_format)


def is_even(tensor: Any) -> bool:
    """Whether PyTorch's kernels can read the rows by vectors, or know that they cannot.

    They do not check every stride: on an H200, PyTorch 2.11 ended four of 253 calls whose rows did
    not begin at multiples of 16 bytes with `misaligned address`, after which nothing in the process
    runs. Nor do they check where a tensor begins: there, they gave wrong values for contiguous
    tensors that began 2 bytes behind such a multiple, or ended in the same way.
    """
    if str(tensor.layout) != "torch.strided" or tensor.is_nested:
        return True
    if not begins_evenly(tensor):
        return False
    if tensor.is_contiguous():
        return True
    step = max(VECTOR_BYTES // tensor.element_size(), 1)
    strides = [
        stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1
    ]
    return strides[-1] == 1 and not any(stride % step for stride in strides[:-1])


def begins_evenly(tensor: Any) -> bool:
    """Whether the tensor's address is a multiple of 16 bytes, or there is none to know."""
    import torch

    if torch.compiler.is_dynamo_compiling():
        return True
    try:
        address: int = tensor.data_ptr()
    except RuntimeError:  # a tensor of a graph that is being traced has none
        return True
    return address % VECTOR_BYTES == 0


def bottom_right(rows: int, keys: int, device: Any) -> Any:
    """The mask of keys that a row sees if the diagonal ends in the last key of the last row."""
    import torch

    return torch.ones(rows, keys, dtype=torch.bool, device=device).tril(keys - rows)


def log_sum_exp(q: Any, k: Any, mask: str, scale: float | None) -> Any:
    """The natural logarithm of the sum of exponentials of each row's scores, in float32.

    It takes some rows at a time, so that the scores need little memory.
    """
    import torch

    factor = q.shape[-1] ** -0.5 if scale is None else scale
    if q.dim() == 4 and k.shape[1] != q.shape[1]:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    keys, rows = k.float().transpose(-1, -2), q.shape[-2]
    per_row = max(q.numel() // max(q.shape[-1] * rows, 1) * k.shape[-2], 1)
    step = max(LARGEST_SCORES // per_row, 1)
    diagonal = k.shape[-2] - rows if mask == "causal_bottom_right" else 0
    parts = []
    for begin in range(0, rows, step):
        scores = q[..., begin : begin + step, :].float() @ keys * factor
        if mask != "none":
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device)
            scores = scores.masked_fill(~seen.tril(diagonal + begin), -math.inf)
        parts.append(torch.logsumexp(scores, -1))
    return torch.cat(parts, -1)


def rms_norm_fallback(
    tensors: Mapping[str, Any],
    options: Mapping[str, Value],
    constants: Mapping[str, Value],
    without: frozenset[str],
    why: str,
) -> Mapping[str, Any]:
    inputs, back = _in_torch({name: tensors[name] for name in ("x", "residual", "weight")}, why)
    h, y = torch_add_rms_norm(
        inputs["x"], inputs["residual"], inputs["weight"], float(constants.get("eps", 1e-6))
    )
    return {"h": back(h), "y": back(y)}


def torch_add_rms_norm(x: Any, residual: Any, weight: Any, eps: float) -> tuple[Any, Any]:
    from torch.nn.functional import rms_norm

    h = x + residual
    return h, rms_norm(h, (h.shape[-1],), weight, eps)


def gemm_fallback(
    tensors: Mapping[str, Any],
    options: Mapping[str, Value],
    constants: Mapping[str, Value],
    without: frozenset[str],
    why: str,
) -> Mapping[str, Any]:
    names = "a", "b", "bias", "residual"
    inputs, back = _in_torch({name: tensors[name] for name in names if name in tensors}, why)
    a, b = (
        inputs[name].t() if int(options.get(f"turned_{name}", 0)) else inputs[name] for name in "ab"
    )
    activation = str(options.get("activation", "none"))
    c = torch_linear(
        a,
        b,
        inputs["bias"] if options.get("bias") == "yes" else None,
        "gelu_tanh" if activation == "gelu" else activation,
        inputs["residual"] if options.get("residual") == "yes" else None,
    )
    return {"c": back(c)}


def torch_linear(x: Any, weight: Any, bias: Any, activation: str, residual: Any) -> Any:
    """PyTorch's linear, activation and sum; in one operation where PyTorch has one for them."""
    import torch
    from torch.nn.functional import gelu, linear, silu

    fused = _fused_linear(torch, x, weight, bias, activation, residual)
    if fused is not None:
        return fused
    result = linear(x, weight, bias)
    if activation == "gelu_tanh":
        result = gelu(result, approximate="tanh")
    elif activation == "silu":
        result = silu(result)
    return result if residual is None else result + residual


def _fused_linear(
    torch: Any, x: Any, weight: Any, bias: Any, activation: str, residual: Any
) -> Any:
    """cuBLASLt's product with GELU, or with a sum, in its epilogue; None for other calls."""
    tensors = [item for item in (x, weight, bias, residual) if item is not None]
    if (
        torch.is_grad_enabled()
        or torch.is_autocast_enabled("cuda")
        or torch.compiler.is_compiling()
    ):
        return None
    half = (torch.float16, torch.bfloat16)
    if x.dtype not in half or any(not t.is_cuda or t.dtype != x.dtype for t in tensors):
        return None
    if weight.dim() != 2 or x.shape[-1] != weight.shape[1] or not x.is_contiguous():
        return None
    shape = (*x.shape[:-1], weight.shape[0])
    rows = x.view(-1, x.shape[-1])
    if activation == "gelu_tanh" and bias is not None and bias.shape == shape[-1:]:
        result = torch._addmm_activation(bias, rows, weight.t(), use_gelu=True).view(shape)
        return result if residual is None else result + residual
    if activation == "none" and bias is None and residual is not None and residual.shape == shape:
        return torch.addmm(residual.reshape(-1, shape[-1]), rows, weight.t()).view(shape)
    return None


FALLBACKS: dict[str, Fallback] = {
    "attention": attention_fallback,
    "gemm": gemm_fallback,
    "rmsnorm": rms_norm_fallback,
}
# The peers (peers.py of the kernel's folder) that time what a fallback runs.
FALLBACK_PEERS = {
    "attention": "torch-default",
    "gemm": "cublaslt",
    "rmsnorm": "torch-rms-norm",
}


def has_fallback(operation: str) -> bool:
    """Whether a call that no kernel serves can run here; PyTorch is looked for, not imported.

    A PyTorch for the CPU alone does not count: it cannot read CuPy's arrays.
    """
    return operation in FALLBACKS and _has_pytorch()


def _has_pytorch() -> bool:
    try:
        if importlib.util.find_spec("torch") is None:
            return False
        return not importlib.metadata.version("torch").endswith("+cpu")
    except (ValueError, importlib.metadata.PackageNotFoundError):  # it is there, of some kind
        return True


FALLBACK_WORDS = "PyTorch's operation"


def use_words(use: str) -> str:
    """What serves a size, by a table of a tuning: a kernel's id, or the fallback."""
    return FALLBACK_WORDS if use == LIBRARY else use
