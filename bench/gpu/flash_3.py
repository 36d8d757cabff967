"""FlashAttention-3 as a peer, by the way in which searches call it (the kernel's peers.py)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

from bench.gpu.runtime_shapes import Shape
from bench.results import ROOT

FLASH_3 = "flash-attention-3"
PEERS_FILE = ROOT / "kernel_templates" / "attention" / "peers.py"


@cache
def peers_of_the_kernel() -> Any:
    specification = importlib.util.spec_from_file_location("attention_peers", PEERS_FILE)
    assert specification is not None and specification.loader is not None  # a Python file
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def flash_attention_3(
    shape: Shape, dtype: str, q: Any, k: Any, v: Any
) -> tuple[Callable[[], Any] | None, str]:
    """A call on these tensors, or None and why there is none."""
    dims = {name: getattr(shape, name) for name in ("B", "H", "H_kv", "S_q", "S_kv", "D")}
    options = {"dtype": dtype, "mask": shape.mask}
    try:
        peer = peers_of_the_kernel().offer(FLASH_3, dims, options, {"scale": shape.D**-0.5})
    except Exception as error:  # its library may be absent, or of another release of torch
        return None, f"{type(error).__name__}: {error}"[:200]
    return lambda: peer["run"]({"q": q, "k": k, "v": v})["o"], ""
