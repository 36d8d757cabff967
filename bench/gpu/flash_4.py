"""FlashAttention-4 as a peer: its package, or its kernels that were compiled ahead.

GREENFAST_FLASH_4 names a folder of bench.gpu.flash_4_ahead; its libraries need apache-tvm-ffi.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import math
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

VARIABLE = "GREENFAST_FLASH_4"
CALLS, VERSION = "calls", "version"
# Behind q, k, v, o, the log-sum-exp and the scale: sequence lengths (4), pages, a window (2), sinks
# and blocks, then inputs of a score modifier, then two of the scheduler. None is used.
UNUSED = (None,) * 9
MODIFIER = (None, None)
SCHEDULER = (None, None)


def call_name(q: Sequence[int], k: Sequence[int], dtype: str, causal: bool) -> str:
    """Of tensors [B, S, H, D]."""
    sizes = (*q, k[1], k[2])
    return " ".join([*map(str, sizes), dtype.removeprefix("torch."), str(causal)])


@cache
def flash_attention_4() -> tuple[Callable[..., Any] | None, str]:
    """Its function of q, k, v [B, S, H, D], or None and why it cannot be called here."""
    folder = os.environ.get(VARIABLE)
    try:
        if folder:
            return compiled_ahead(Path(folder)), ""
        return importlib.import_module("flash_attn.cute").flash_attn_func, ""
    except Exception as error:  # its own imports fail in many ways beside other releases
        return None, f"flash_attn.cute cannot be imported: {type(error).__name__}: {error}"[:200]


def flash_attention_4_version() -> str | None:
    if flash_attention_4()[0] is None:
        return None
    if folder := os.environ.get(VARIABLE):
        known = json.loads((Path(folder) / "calls.json").read_text())
        return f"{known[VERSION]}, compiled ahead"
    try:
        return importlib.metadata.version("flash-attn-4")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def compiled_ahead(folder: Path) -> Callable[..., Any]:
    calls = json.loads((folder / "calls.json").read_text())[CALLS]
    ffi = importlib.import_module("tvm_ffi")

    @cache
    def function(name: str) -> Any:
        return ffi.load_module(str(folder / name))["func"]

    def attend(q: Any, k: Any, v: Any, causal: bool) -> Any:
        import torch

        name = call_name(q.shape, k.shape, str(q.dtype), causal)
        if name not in calls:
            raise ValueError(f"no kernel was compiled ahead for {name}")
        o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        scale = 1 / math.sqrt(q.shape[-1])
        with ffi.use_torch_stream():
            function(calls[name])(q, k, v, o, None, scale, *UNUSED, MODIFIER, *SCHEDULER)
        return o

    return attend
