"""How C++ and TVM-FFI call the kernels of a tuning bundle."""

from __future__ import annotations

from collections.abc import Mapping

from greenfast.runtime.cpp_header import cpp_files
from greenfast.runtime.read_bundle import kernel_set
from greenfast.search.errors import SpecError, UsageError


def callers(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The C++ header and the TVM-FFI module; none for kernels that these do not launch."""
    try:
        kernels = kernel_set(files, "this bundle")
        texts = cpp_files(kernels)
    except (SpecError, UsageError):
        return {}
    return {f"cpp/{name}": text.encode() for name, text in texts.items()}
