"""Tensors of PyTorch that no kernel may read as plain memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

PLAIN = (torch.Tensor, torch.nn.Parameter)


def unfit(tensors: Iterable[Any]) -> str:
    """Why the tensors go to PyTorch's own operation; empty when they need not."""
    grad = torch.is_grad_enabled()
    for tensor in tensors:
        if type(tensor) not in PLAIN:
            return f"{type(tensor).__name__} is a tensor subclass, which PyTorch handles itself"
        if tensor.layout is not torch.strided or tensor.is_nested:
            return f"a tensor has the layout {tensor.layout}, or is nested"
        if grad and tensor.requires_grad:
            return "an input requires a gradient, and the kernels compute none"
        try:
            tensor.data_ptr()
        except RuntimeError:  # inside torch.func.vmap and alike
            return "a tensor has no memory of its own"
    return "autocast is on" if torch.is_autocast_enabled("cuda") else ""
