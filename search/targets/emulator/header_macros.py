"""The macros that CUDA's headers define on a GPU, for the preprocessing of a candidate's text.

A condition on a macro that only NVRTC has would choose one kernel for the GPU and another one for
the checks. Each macro of CUDA's headers is therefore either known here, where NVRTC defines it and
with NVRTC's expansion, or refused wherever a text names it (`unknown_macros.h`).
`bench/correctness/header_macros.py` writes both, and a test compares them with NVRTC.
"""

from __future__ import annotations

INTEGERS, FLOATS, CONSTANTS = "integer_limits.h", "float_limits.h", "constant_macros.h"
MATHEMATICS = "mathematics_macros.h"
_OFFSETOF = "#define offsetof(type, member) __builtin_offsetof(type, member)\n"
# The stand-in headers answer them. The names are those of source_rules.CALLS.
_CALLS = {
    "gf/shared.cuh": "#define GF_DYNAMIC_SHARED(...) gf_emulator_shared_macro(__VA_ARGS__)\n",
    "gf/wgmma.cuh": "#define GF_WGMMA_SHAPE(...) gf_emulator_wgmma_macro(__VA_ARGS__)\n",
}
# Files of `gf_emulator/`, by the headers that define their macros.
_OWN = {
    "math_constants.h": (CONSTANTS,),
    "cuda/std/cstdint": (INTEGERS,),
    "cuda/ptx": (INTEGERS,),
    "cuda/std/tuple": (INTEGERS,),
    "cuda/std/type_traits": (INTEGERS,),
    "cuda/std/cstddef": (),
    "cuda/std/cmath": (INTEGERS, FLOATS, MATHEMATICS),
    "cuda/std/complex": (INTEGERS, FLOATS, MATHEMATICS),
}
# CUDA's C++ library: all its other headers define the limits of both.
_LIBRARY = ("cub/", "cuda/", "cooperative_groups")


def header_files(header: str) -> tuple[str, ...]:
    """The files of `gf_emulator/` with the macros that including `header` defines for NVRTC."""
    default = (INTEGERS, FLOATS) if header.startswith(_LIBRARY) else ()
    return _OWN.get(header, default)


def header_text(header: str) -> str:
    """The text for the header's macros that are in no file."""
    if header in _CALLS:
        return _CALLS[header]
    is_library = header.startswith(_LIBRARY) and header != "cuda/std/cstdint"
    return _OFFSETOF if is_library else ""
