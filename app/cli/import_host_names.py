"""Names that nvcc finds in a host's headers, which it or PyTorch's headers include, and NVRTC does
not."""

from __future__ import annotations

import re
from dataclasses import replace

from greenfast.app.cli.import_headers import INTEGER_LIMITS
from greenfast.app.cli.import_source import CudaText, without_comments
from greenfast.search.diagnose.plain_reference import behind_includes

# By header, the names that need it: `half` may be a variable's, so a declaration with it.
_HEADERS = {
    "cuda/std/cstdint": re.compile(r"\bu?int(?:8|16|32|64)_t\b"),
    "cuda/std/limits": re.compile(r"\bstd::numeric_limits\b"),
    "cuda/std/type_traits": re.compile(
        r"\bstd::(?:is_\w+|enable_if|conditional|remove_\w+|decay)\b"
    ),
    "cuda_fp16.h": re.compile(r"\b(?:__)?half2?\b(?:\s*[*&>]|\s+[A-Za-z_]\w*\s*[,;)=\[({])"),
    "cuda_bf16.h": re.compile(r"\b(?:__)?nv_bfloat162?\b"),
}
# Names of the host's `std` that CUDA has without it, and the others.
_WITHOUT_STD = re.compile(
    r"(?<![\w:])(?:::)?std::(?=(?:size_t|ptrdiff_t|u?int(?:8|16|32|64)_t)\b|(?:min|max|abs|fabs|sqrt|"
    r"exp|exp2|log|log2|pow|sin|cos|tanh|floor|ceil|round|fmin|fmax|isnan|isinf)\s*\()"
)
_STD = re.compile(r"(?<![\w:])(?:::)?std::(?=[a-z])")
_DECLARED = {
    "uint": "typedef unsigned int uint;",
    "ushort": "typedef unsigned short ushort;",
    "ulong": "typedef unsigned long ulong;",
    **{
        name: f"#ifndef {name}\n#define {name} {value}\n#endif"
        for name, value in (
            ("M_PI", "3.14159265358979323846"),
            ("M_SQRT2", "1.41421356237309504880"),
            ("M_SQRT1_2", "0.70710678118654752440"),
            ("M_2_SQRTPI", "1.12837916709551257390"),
            *INTEGER_LIMITS.items(),
            ("INFINITY", "__int_as_float(0x7f800000)"),
            ("NAN", "__int_as_float(0x7fffffff)"),
        )
    },
}


def with_host_names(source: CudaText) -> CudaText:
    """The text with declarations of such names that it uses, behind its includes."""
    text = _WITHOUT_STD.sub("", source.text)
    bare = without_comments(text)
    lines = [
        f"#include <{header}>"
        for header, names in _HEADERS.items()
        if names.search(bare) and not re.search(rf"#\s*include\s*[<\"]{header}[>\"]", bare)
    ]
    if "<cuda/std/" in "\n".join((text, *lines)):
        text = _STD.sub("cuda::std::", text)
        bare = without_comments(text)
    for name, declaration in _DECLARED.items():
        is_own = rf"\btypedef\b[^;]*\b{name}\s*;|\b(?:using|define)[ \t]+{name}\b"
        if re.search(rf"\b{name}\b", bare) and not re.search(is_own, bare):
            lines += declaration.split("\n")
    at = behind_includes(text)
    number = text.count("\n", 0, at)
    places = (*source.places[:number], *[source.places[number]] * len(lines))
    return replace(
        source,
        text=text[:at] + "".join(f"{line}\n" for line in lines) + text[at:],
        places=(*places, *source.places[number:]),
    )
