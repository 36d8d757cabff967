"""greenfast: search for the fastest CUDA kernel that is also correct.

The public API. Importing it loads nothing heavy: `Client` and its HTTP library come with their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenfast.search.errors import Fault, GreenfastError, SpecError, UsageError

if TYPE_CHECKING:
    from greenfast.client import Client, ServiceError

__version__ = "0.2.0"

__all__ = [
    "Client",
    "Fault",
    "GreenfastError",
    "ServiceError",
    "SpecError",
    "UsageError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in ("Client", "ServiceError"):
        from greenfast import client

        return getattr(client, name)
    raise AttributeError(
        f"module 'greenfast' has no attribute {name!r}; it has {', '.join(__all__)}"
    )


def __dir__() -> list[str]:
    return sorted(__all__)
