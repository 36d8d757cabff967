"""PyTorch's CPU tensors on a driver that records launches. Needs PyTorch."""

from __future__ import annotations

import shutil
from functools import cache

import torch
from runtime_bundles import RECORDED, SETS, use_for_attention

from greenfast.runtime import fallbacks, frameworks, front, torch_front, torch_loaded, tuned


def torch_on_stub(library, folder, monkeypatch):
    """CPU tensors count as those of an H200, also for a CUDA build of PyTorch without a driver.

    The attention set is the recorded one, whatever is shipped; `folder` receives the sets.
    """
    shutil.copy(RECORDED, folder / "attention-h200.zip")
    shutil.copy(SETS / "rmsnorm-h200.zip", folder)
    use_for_attention(library, monkeypatch)
    monkeypatch.setattr(torch_front, "_stream", lambda device: 0)
    monkeypatch.setattr(torch_loaded, "current_stream", lambda device: 0)
    monkeypatch.setattr(tuned, "FOLDER", folder)
    monkeypatch.setattr(tuned, "_files", cache(tuned._files.__wrapped__))
    monkeypatch.setattr(frameworks, "HOST_DEVICE", 0)
    monkeypatch.setattr(torch_front, "DEVICES", ("cuda", "cpu"))
    front._attention_state.cache_clear()
    monkeypatch.setattr(torch_front, "_attention", {})
    monkeypatch.setattr(torch_front, "_rms_norm", {})
    monkeypatch.setattr(torch_front, "_last_attention", [torch_front.Nothing()])
    monkeypatch.setattr(torch_front, "_last_rms_norm", [torch_front.Nothing()])
    monkeypatch.setattr(fallbacks, "_TOLD", set())
    return library


def inputs(*shape, dtype=torch.bfloat16):
    shape = shape or (2, 8, 256, 64)
    return tuple(torch.randn(shape).to(dtype) for _ in range(3))
