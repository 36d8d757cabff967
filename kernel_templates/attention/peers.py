"""Attention by others, to be timed beside a winner. Run by search/peers/child.py only, where torch is installed.

`offer(name, dims, options, scalars)` gives {"version", "run"}; `run(tensors)` takes and gives torch tensors by argument
name, q, k, v, o [B, H, S, D] with any strides. ImportError: not installed. ValueError: another operation than ours.

Masks differ where S_q != S_kv: PyTorch's is_causal aligns the diagonal to the top left, FlashAttention (2.1 and later)
and FlashInfer to the bottom right. Sources: the documentation of torch.nn.functional.scaled_dot_product_attention and
torch.nn.attention.bias, README of github.com/Dao-AILab/flash-attention, docs.flashinfer.ai.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os

SDPA = {"torch-flash": "FLASH_ATTENTION", "torch-cudnn": "CUDNN_ATTENTION", "torch-efficient": "EFFICIENT_ATTENTION"}
DEFAULT = "torch-default"            # the backend that PyTorch chooses itself: what greenfast's runtime falls back to
# (module, package that names the version); function flash_attn_func(q, k, v [B, S, H, D], softmax_scale, causal).
FLASH = {"flash-attention-4": ("flash_attn.cute", "flash-attn-4"),
         "flash-attention-3": ("flash_attn_interface", "flash_attn_3"),
         "flash-attention-2": ("flash_attn", "flash-attn")}
# FlashAttention-3 is also in the wheel of vLLM, as a library that torch loads; its signature is the operation's schema
# (github.com/vllm-project/flash-attention, hopper/flash_api_torch_lib.cpp). A copy on sys.path serves without the rest.
VLLM_LIBRARY = "_vllm_fa3_C"
NAMES = (DEFAULT, *SDPA, *FLASH, "flashinfer")


def offer(name, dims, options, scalars):
    if options["dtype"] not in ("fp16", "bf16"):
        raise ValueError(f"it does not take {options['dtype']} inputs as ours do")
    if name == DEFAULT or name in SDPA:
        return _sdpa(SDPA.get(name, ""), dims, options["mask"], scalars["scale"])
    if name == "flash-attention-3" and importlib.util.find_spec(FLASH[name][0]) is None:
        return _flash_of_vllm(vllm_library(), dims, options["mask"], scalars["scale"])
    if name in FLASH:
        return _flash(*FLASH[name], dims, options["mask"], scalars["scale"])
    return _flashinfer(dims, options["mask"], scalars["scale"])


def _sdpa(backend, dims, mask, scale):
    square = dims["S_q"] == dims["S_kv"]
    if mask == "causal_bottom_right" and not square and backend == "CUDNN_ATTENTION":
        raise ValueError("its causal mask is aligned to the top left")
    if mask == "causal_bottom_right" and not square and not backend:
        raise ValueError("it has no such mask, and the runtime gives it a tensor in its place")
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
        with sdpa_kernel(getattr(SDPBackend, backend)) if backend else contextlib.nullcontext():
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


def vllm_library():
    """The path of vLLM's FlashAttention-3; ImportError where it is not installed."""
    found = importlib.util.find_spec(VLLM_LIBRARY)
    if found is not None and found.origin:
        return found.origin
    vllm = importlib.util.find_spec("vllm")      # not imported: it would bring its whole engine
    for folder in (vllm.submodule_search_locations or ()) if vllm is not None else ():
        path = os.path.join(folder, "vllm_flash_attn", VLLM_LIBRARY + ".abi3.so")
        if os.path.isfile(path):
            return path
    raise ImportError(f"neither {FLASH['flash-attention-3'][0]} nor vLLM's {VLLM_LIBRARY}")


def _flash_of_vllm(library, dims, mask, scale):
    import torch
    torch.ops.load_library(library)
    operation = getattr(torch.ops, VLLM_LIBRARY).fwd.default
    causal, rows = bottom_right(dims, mask), {}
    # Its library is built for rows of several lengths only. Given lengths of keys, it takes [B, S, H, D] with strides.
    plain = {"softmax_scale": scale, "is_causal": causal, "max_seqlen_q": dims["S_q"], "max_seqlen_k": dims["S_kv"],
             "window_size_left": -1, "window_size_right": -1, "softcap": 0.0, "is_rotary_interleaved": False,
             "num_splits": 0, "sm_margin": 0, "cp_world_size": 1, "cp_rank": 0}

    def run(tensors):
        given = {one: tensors[one].transpose(1, 2) for one in "qkv"}
        device = given["q"].device
        if device not in rows:
            rows[device] = torch.full((dims["B"],), dims["S_kv"], dtype=torch.int32, device=device)
        return {"o": operation(*arguments(operation._schema, {**given, **plain, "seqused_k": rows[device]}))[0]
                .transpose(1, 2)}
    return {"version": _vllm_version(), "run": run}


def arguments(schema, values):
    """The values in the order of the schema, None for those that may be absent; RuntimeError where one is missing."""
    ordered = []
    for argument in schema.arguments:
        if argument.name not in values and not str(argument.type).startswith("Optional"):
            raise RuntimeError(f"its operation also asks for {argument.name}, a {argument.type}")
        ordered.append(values.get(argument.name))
    return ordered


def _vllm_version():
    try:
        return f"FlashAttention-3 of vllm {importlib.metadata.version('vllm')}, varlen build"
    except importlib.metadata.PackageNotFoundError:
        return "FlashAttention-3 of vllm, of unknown version, varlen build"


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
