"""Attention by others, to be timed beside a winner. Run by search/peers/child.py only, where torch is installed.

`offer(name, dims, options, scalars)` gives {"version", "run"}; `run(tensors)` takes and gives torch tensors by argument
name, q, k, v, o [B, H, S, D] with any strides. ImportError: not installed. ValueError: another operation than ours.

Masks differ where S_q != S_kv: PyTorch's is_causal aligns the diagonal to the top left, FlashAttention (2.1 and later)
and FlashInfer to the bottom right. Sources: the documentation of torch.nn.functional.scaled_dot_product_attention and
torch.nn.attention.bias, README of github.com/Dao-AILab/flash-attention, docs.flashinfer.ai.
"""

from __future__ import annotations

import importlib
import importlib.metadata

SDPA = {"torch-flash": "FLASH_ATTENTION", "torch-cudnn": "CUDNN_ATTENTION", "torch-efficient": "EFFICIENT_ATTENTION"}
# (module, package that names the version); function flash_attn_func(q, k, v [B, S, H, D], softmax_scale, causal).
FLASH = {"flash-attention-4": ("flash_attn.cute", "flash-attn-4"),
         "flash-attention-3": ("flash_attn_interface", "flash_attn_3"),
         "flash-attention-2": ("flash_attn", "flash-attn")}
NAMES = (*SDPA, *FLASH, "flashinfer")


def offer(name, dims, options, scalars):
    if options["dtype"] not in ("fp16", "bf16"):
        raise ValueError(f"it does not take {options['dtype']} inputs as ours do")
    if name in SDPA:
        return _sdpa(SDPA[name], dims, options["mask"], scalars["scale"])
    if name in FLASH:
        return _flash(*FLASH[name], dims, options["mask"], scalars["scale"])
    return _flashinfer(dims, options["mask"], scalars["scale"])


def _sdpa(backend, dims, mask, scale):
    square = dims["S_q"] == dims["S_kv"]
    if mask == "causal_bottom_right" and not square and backend == "CUDNN_ATTENTION":
        raise ValueError("its causal mask is aligned to the top left")
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    arguments = {"scale": scale, "enable_gqa": dims["H"] != dims["H_kv"], "is_causal": False}
    if mask == "causal_top_left" or (mask != "none" and square):
        arguments["is_causal"] = True
    elif mask == "causal_bottom_right":
        from torch.nn.attention.bias import causal_lower_right
        arguments["attn_mask"] = causal_lower_right(dims["S_q"], dims["S_kv"])
    version = f"torch {torch.__version__}"
    if backend == "CUDNN_ATTENTION":
        version += f", cuDNN {torch.backends.cudnn.version()}"

    def run(tensors):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return {"o": torch.nn.functional.scaled_dot_product_attention(
                tensors["q"], tensors["k"], tensors["v"], **arguments)}
    return {"version": version, "run": run}


def _flash(module, package, dims, mask, scale):
    attend = getattr(importlib.import_module(module), "flash_attn_func", None)
    if attend is None:               # FlashAttention-4 alone leaves a folder flash_attn with nothing but `cute` in it
        raise ImportError(f"{module} has no flash_attn_func")
    causal = bottom_right(dims, mask)

    def run(tensors):
        q, k, v = (tensors[one].transpose(1, 2) for one in "qkv")
        found = attend(q, k, v, softmax_scale=scale, causal=causal)
        return {"o": (found[0] if isinstance(found, tuple) else found).transpose(1, 2)}
    return {"version": _version(package, module), "run": run}


def _flashinfer(dims, mask, scale):
    flashinfer = importlib.import_module("flashinfer")
    causal = bottom_right(dims, mask)
    if dims["B"] != 1:
        raise ValueError("its batches are ragged rows [sum of S, H, D], another layout than [B, H, S, D]")

    def run(tensors):
        q, k, v = (tensors[one][0].transpose(0, 1) for one in "qkv")
        return {"o": flashinfer.single_prefill_with_kv_cache(q, k, v, causal=causal, sm_scale=scale)
                .transpose(0, 1)[None]}
    return {"version": _version("flashinfer-python", "flashinfer"), "run": run}


def bottom_right(dims, mask):
    """Whether to ask for a causal mask that is aligned to the bottom right; ValueError when ours is aligned otherwise."""
    if mask == "causal_top_left" and dims["S_q"] != dims["S_kv"]:
        raise ValueError("its causal mask is aligned to the bottom right")
    return mask != "none"


def _version(package, module):
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(importlib.import_module(module), "__version__", f"{package}, of unknown version"))
