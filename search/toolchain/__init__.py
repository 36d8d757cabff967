"""Source to cubin: NVRTC in killable children, the assembler's figures, a content-addressed cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from greenfast.search.toolchain.nvrtc import CompileFailed, Cubin, Toolchain

__all__ = ["CompileFailed", "Cubin", "Toolchain"]


def __getattr__(name: str) -> Any:
    """Imported when they are asked for: the compiling child, a module of this package, starts in half the time without them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from greenfast.search.toolchain import nvrtc

    return getattr(nvrtc, name)
