"""Source to cubin: NVRTC in child processes, the assembler's figures, and a cache by content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from greenfast.search.toolchain.nvrtc import CompileFailed, Cubin, Toolchain

__all__ = ["CompileFailed", "Cubin", "Toolchain"]


def __getattr__(name: str) -> Any:
    """Import on first use: without it, the compiling child starts in half the time."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from greenfast.search.toolchain import nvrtc

    return getattr(nvrtc, name)
