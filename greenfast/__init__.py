"""greenfast: search for the fastest CUDA kernel that is also correct.

This is the public API:

    Client              talks to a running service (`greenfast serve`)
    trace               records which shapes a PyTorch program calls
    GreenfastError      base of all errors: `code`, `message`, `mend`
      SpecError         a kernel's files are invalid
      UsageError        the caller's mistake
      Fault             a failure of greenfast or of its machine
      ServiceError      the service refused a request: also `status`

Importing greenfast is cheap. `Client` and its HTTP library are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenfast.search.errors import Fault, GreenfastError, SpecError, UsageError

if TYPE_CHECKING:
    from greenfast.client import Client, ServiceError
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
    "trace",
]


def __getattr__(name: str) -> Any:
    """Import the names that need other modules on first use."""
    if name in ("Client", "ServiceError"):
        from greenfast import client

        return getattr(client, name)
    if name == "trace":
        from greenfast.tracing import trace

        return trace
    raise AttributeError(
        f"module 'greenfast' has no attribute {name!r}; it has {', '.join(__all__)}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)
