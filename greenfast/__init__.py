"""greenfast: search for the fastest CUDA kernel that is also correct.

This is the public API:

    load                the kernels of a bundle, ready to be called
    attention           scaled dot-product attention by the fastest kernel known for the GPU
    linear              a linear layer with its activation and residual add, likewise
    rms_norm            RMS normalisation with a fused residual add, likewise
    explain             which kernel a call runs, and why
    Client              talks to a running service (`greenfast serve`)
    trace               records the shapes that a PyTorch program uses
    GreenfastError      base of all errors: `code`, `message`, and `mend`, the remedy
      SpecError         a kernel's files are invalid
      UsageError        the caller's mistake
      Fault             a failure of greenfast or of its machine
      ServiceError      the service refused a request: also `status`

Importing greenfast is cheap. Everything but the errors is imported on first use.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from greenfast.search.errors import Fault, GreenfastError, SpecError, UsageError

if TYPE_CHECKING:
    from greenfast.client import Client, ServiceError
    from greenfast.runtime.front import attention, explain, linear, rms_norm
    from greenfast.runtime.loaded import load
    from greenfast.tracing import trace

__version__ = "0.2.0"

__all__ = [
    "Client",
    "Fault",
    "GreenfastError",
    "ServiceError",
    "SpecError",
    "UsageError",
    "__version__",
    "attention",
    "explain",
    "linear",
    "load",
    "rms_norm",
    "trace",
]

# Where a name comes from; the module is imported when the name is first used.
_HOMES = {
    "Client": "greenfast.client",
    "ServiceError": "greenfast.client",
    "explain": "greenfast.runtime.front",
    "load": "greenfast.runtime.loaded",
    "trace": "greenfast.tracing",
}


def __getattr__(name: str) -> Any:
    """Import a name on its first use, and keep it."""
    if name in ("attention", "linear", "rms_norm"):
        front = importlib.import_module("greenfast.runtime.front")
        value = front.public(name)
        if "torch" in sys.modules:  # before that, PyTorch may still come
            globals()[name] = value
        return value
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(
        f"module 'greenfast' has no attribute {name!r}; it has {', '.join(__all__)}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)
