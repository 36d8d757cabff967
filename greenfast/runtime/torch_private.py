"""PyTorch's quickest checks and allocations: those of the code that torch.compile generates.

They are private to PyTorch. So the checks are tried when this is imported, and where they are
missing, or do not tell apart what calls need told apart, slower public ones take their place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

try:
    from torch._C._dynamo import guards
except ImportError:  # another PyTorch
    guards = None

Same = Callable[..., bool]


def never(*tensors: Any) -> bool:
    """A check that no tensors pass."""
    return False


def _same_tensors(tensors: Sequence[Any]) -> Same:
    return guards.TensorGuards(  # type: ignore[no-any-return]
        *tensors,
        dynamic_dims_sizes=[list(tensor.shape) for tensor in tensors],
        dynamic_dims_strides=[list(tensor.stride()) for tensor in tensors],
    ).check


def _tells_apart() -> bool:
    """Whether the check passes tensors of the same kind alone, and under the same modes alone."""
    try:
        with torch.inference_mode(False), torch.enable_grad():
            same = _same_tensors([torch.empty(2, 3), torch.empty(4)])
            last = torch.empty(4)
            others = (
                torch.empty(2, 4),
                torch.empty(3, 2).t(),
                torch.empty(2, 3, dtype=torch.float64),
                torch.empty(2, 3, device="meta"),
                torch.empty(2, 3).requires_grad_(),
                torch.nn.Parameter(torch.empty(2, 3), requires_grad=False),
                None,
            )
            alike = torch.empty(2, 3)
            refused = [not same(other, last) for other in others]
            with torch.autocast("cpu", torch.bfloat16):
                refused.append(not same(alike, last))
            with torch.no_grad():
                accepted = same(alike, last)
            return all(refused) and accepted and bool(same(alike, last))
    except Exception:  # whatever a private interface may do
        return False


_TRUSTED = _tells_apart()


def same_tensors(tensors: Sequence[Any]) -> Same:
    """A check of other tensors: their types, shapes, strides, devices and modes.

    None that requires a gradient passes, nor one tensor twice. The check is `never` where PyTorch
    has none, or where one of `tensors` requires a gradient: whether it counts depends on the mode.
    """
    if not _TRUSTED or any(tensor.requires_grad for tensor in tensors):
        return never
    return _same_tensors(tensors)


def allocation(
    shape: Sequence[int], strides: Sequence[int], dtype: Any, device: Any
) -> Callable[[], Any]:
    """Makes tensors of this layout on the current device, which `device` is."""
    quick = getattr(guards, f"_empty_strided_{device.type}", None)
    if quick is not None:
        return functools.partial(quick, tuple(shape), tuple(strides), dtype)
    return functools.partial(torch.empty_strided, shape, strides, dtype=dtype, device=device)
