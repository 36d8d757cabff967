"""Source to cubin: NVRTC in killable children, the assembler's figures, a content-addressed cache."""

from search.toolchain.nvrtc import CompileFailed, Cubin, Toolchain

__all__ = ["CompileFailed", "Cubin", "Toolchain"]
