"""Names that the emulator's prelude declares, and NVRTC does not for the same text.

A call of such a name would find the prelude's function here, and on a GPU the text's own or none,
so that a text could tell the two apart: `__device__ int atoi(...)`, or whether `hexp(T())` is an
expression. Each is renamed in the whole text, which may therefore declare it for itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from greenfast.search.targets.emulator.source_rules import refused_name
from greenfast.search.targets.emulator.source_text import PROGRAMS
from greenfast.search.targets.emulator.source_tokens import PreprocessedText, text_at
from greenfast.search.targets.emulator.word_set import word_set

OWN = "gf_own_"  # before the name
# Functions of C's library that NVRTC declares, too.
_OF_CUDA = word_set("""
    __ceilf __cosf __exp10f __expf __finite __finitef __finitel __isinf __isinff __isinfl
    __floorf __isnan __isnanf __isnanl __log10f __log2f __logf __powf __roundf __signbit
    __signbitf __signbitl
    __sincosf __sinf __tanf __tanhf __truncf
    abs acos acosf acosh acoshf asin asinf asinh asinhf atan atan2 atan2f atanf atanh atanhf
    cbrt cbrtf ceil ceilf clock copysign copysignf cos cosf cosh coshf erf erfc erfcf erff
    exp exp10 exp10f exp2 exp2f expf expm1 expm1f fabs fabsf fdim fdimf floor floorf fma fmaf
    fmax fmaxf fmin fminf fmod fmodf free frexp frexpf hypot hypotf ilogb ilogbf isfinite isinf
    isnan j0 j0f j1 j1f jn jnf labs ldexp ldexpf lgamma lgammaf llabs llrint llrintf llround
    llroundf log log10 log10f log1p log1pf log2 log2f logb logbf logf lrint lrintf lround lroundf
    malloc memcpy memset modf modff nan nanf nearbyint nearbyintf nextafter nextafterf pow powf
    printf remainder remainderf remquo remquof rint rintf round roundf scalbln scalblnf scalbn
    scalbnf signbit sin sincos sincosf sinf sinh sinhf sqrt sqrtf tan tanf tanh tanhf tgamma
    tgammaf trunc truncf y0 y0f y1 y1f yn ynf
""")
# What CUDA's headers of narrow floats declare. The prelude has all three.
_HALF = word_set("""
    __double2half __float22half2_rn __float2half __float2half2_rn __float2half_rd
    __float2half_rn __float2half_ru __float2half_rz __floats2half2_rn __half __half2
    __half22float2 __half2_raw __half2char_rz __half2float __half2half2 __half2int_rd
    __half2int_rn __half2int_ru __half2int_rz __half2ll_rd __half2ll_rn __half2ll_ru
    __half2ll_rz __half2short_rd __half2short_rn __half2short_ru __half2short_rz
    __half2uchar_rz __half2uint_rd __half2uint_rn __half2uint_ru __half2uint_rz __half2ull_rd
    __half2ull_rn __half2ull_ru __half2ull_rz __half2ushort_rd __half2ushort_rn
    __half2ushort_ru __half2ushort_rz __half_as_short __half_as_ushort __half_raw
    __halves2half2 __high2half __high2half2 __highs2half2 __int2half_rd __int2half_rn
    __int2half_ru __int2half_rz __ll2half_rd __ll2half_rn __ll2half_ru __ll2half_rz __low2half
    __low2half2 __lowhigh2highlow __lows2half2 __nv_bfloat16 __short2half_rd __short2half_rn
    __short2half_ru __short2half_rz __short_as_half __uint2half_rd __uint2half_rn
    __uint2half_ru __uint2half_rz __ull2half_rd __ull2half_rn __ull2half_ru __ull2half_rz
    __ushort2half_rd __ushort2half_rn __ushort2half_ru __ushort2half_rz __ushort_as_half half
    half2 make_half2
""")
_BFLOAT16 = word_set("""
    __bfloat1622float2 __bfloat162bfloat162 __bfloat162char_rz __bfloat162float
    __bfloat162int_rd __bfloat162int_rn __bfloat162int_ru __bfloat162int_rz __bfloat162ll_rd
    __bfloat162ll_rn __bfloat162ll_ru __bfloat162ll_rz __bfloat162short_rd __bfloat162short_rn
    __bfloat162short_ru __bfloat162short_rz __bfloat162uchar_rz __bfloat162uint_rd
    __bfloat162uint_rn __bfloat162uint_ru __bfloat162uint_rz __bfloat162ull_rd
    __bfloat162ull_rn __bfloat162ull_ru __bfloat162ull_rz __bfloat162ushort_rd
    __bfloat162ushort_rn __bfloat162ushort_ru __bfloat162ushort_rz __bfloat16_as_short
    __bfloat16_as_ushort __double2bfloat16 __float22bfloat162_rn __float2bfloat16
    __float2bfloat162_rn __float2bfloat16_rd __float2bfloat16_rn __float2bfloat16_ru
    __float2bfloat16_rz __floats2bfloat162_rn __halves2bfloat162 __high2bfloat16
    __high2bfloat162 __highs2bfloat162 __int2bfloat16_rd __int2bfloat16_rn __int2bfloat16_ru
    __int2bfloat16_rz __ll2bfloat16_rd __ll2bfloat16_rn __ll2bfloat16_ru __ll2bfloat16_rz
    __low2bfloat16 __low2bfloat162 __lows2bfloat162 __nv_bfloat162 __nv_bfloat162_raw
    __nv_bfloat16_raw __short2bfloat16_rd __short2bfloat16_rn __short2bfloat16_ru
    __short2bfloat16_rz __short_as_bfloat16 __uint2bfloat16_rd __uint2bfloat16_rn
    __uint2bfloat16_ru __uint2bfloat16_rz __ull2bfloat16_rd __ull2bfloat16_rn
    __ull2bfloat16_ru __ull2bfloat16_rz __ushort2bfloat16_rd __ushort2bfloat16_rn
    __ushort2bfloat16_ru __ushort2bfloat16_rz __ushort_as_bfloat16 make_bfloat162 nv_bfloat16
    nv_bfloat162
""")
_FLOAT8 = word_set("""
    __NV_E4M3 __NV_E5M2 __NV_NOSAT __NV_SATFINITE __nv_cvt_bfloat16raw2_to_fp8x2
    __nv_cvt_bfloat16raw_to_fp8 __nv_cvt_double2_to_fp8x2 __nv_cvt_double_to_fp8
    __nv_cvt_float2_to_fp8x2 __nv_cvt_float_to_fp8 __nv_cvt_fp8_to_halfraw
    __nv_cvt_fp8x2_to_halfraw2 __nv_cvt_halfraw2_to_fp8x2 __nv_cvt_halfraw_to_fp8
    __nv_fp8_e4m3 __nv_fp8_e5m2 __nv_fp8_interpretation_t __nv_fp8_storage_t __nv_fp8x2_e4m3
    __nv_fp8x2_e5m2 __nv_fp8x2_storage_t __nv_fp8x4_e4m3 __nv_fp8x4_e5m2 __nv_fp8x4_storage_t
    __nv_saturation_t
""")
# The headers of NVRTC that bring none of them. cuda/std/cmath and CUB bring all three.
_WITHOUT_FLOATS = word_set("""
    cuComplex.h cuda.h cuda_pipeline.h cuda_pipeline_primitives.h cuda_runtime.h math_constants.h
    cooperative_groups.h cuda/atomic cuda/barrier cuda/pipeline cuda/ptx cuda/std/cstddef
    cuda/std/cstdint cuda/std/cstring cuda/std/tuple
""")
_FLOATS = {"cuda_fp16.h": _HALF, "cuda_bf16.h": _HALF | _BFLOAT16, "mma.h": _HALF | _BFLOAT16}
# `using namespace cuda::std` gives a text these.
_OF_CUDA_STD = word_set("div ldiv lldiv memcmp memmove")
_STANDARD_ALIAS = re.compile(r"\bnamespace\s+(\w+)\s*=[\s:\w]*\bstd\s*;")
_USES_STANDARD = re.compile(r"\busing\s+namespace[\s:\w]*\bstd\s*;")
_USING = re.compile(r"\busing\s[^;={}]*;")
_USED = re.compile(r"\bstd\s*::\s*(\w+)\s*(?=[;,])")
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([\w./-]+)[>"]', re.MULTILINE)
_EXTERN = re.compile(r"\bextern\b[^;{}()]*?\b(\w+)\s*\(")
_MARKER = re.compile(r'^# \d+ "([^"\n]*)".*$', re.MULTILINE)
_DIRECTIVE = re.compile(r"^#.*$", re.MULTILINE)
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)")


def host_functions(preprocessed: str, include: Path) -> frozenset[str]:
    """The functions of C's library in the preprocessed prelude, other than those that NVRTC has.

    `include` is the folder of the emulator's own headers.
    """
    names: set[str] = set()
    markers = list(_MARKER.finditer(preprocessed))
    ends = [marker.start() for marker in markers[1:]] + [len(preprocessed)]
    text = ""
    for marker, end in zip(markers, ends, strict=True):
        if not marker[1].startswith(f"{include}/") and "/c++/" not in marker[1]:
            text += preprocessed[marker.end() : end]
    bare = _ATTRIBUTE.sub(" ", _DIRECTIVE.sub("", text))
    names.update(match[1] for match in _EXTERN.finditer(bare))
    return frozenset(name for name in names - _OF_CUDA if not name.startswith("__builtin"))


def with_own_names(
    preprocessed: str, host: frozenset[str], headers: Collection[str], include_dirs: Sequence[Path]
) -> str:
    """The preprocessed text with its own names for what NVRTC does not have.

    `host` are the functions of C's library, `headers` those that the text includes.
    """
    if PROGRAMS in headers:  # a program for nvcc
        return preprocessed
    absent = host | _absent_floats(headers, include_dirs)
    if _USES_STANDARD.search(preprocessed):
        absent -= _OF_CUDA_STD
    used = _USING.findall(preprocessed)
    absent -= {name for text in used for name in _USED.findall(text)}
    if absent.isdisjoint(re.findall(r"\w+", preprocessed)):
        return preprocessed
    standard = {"std", *(match[1] for match in _STANDARD_ALIAS.finditer(preprocessed))}
    tokens = PreprocessedText(preprocessed).tokens
    pieces, position = [], 0
    for index, token in enumerate(tokens):
        if token.kind != "name" or token.text not in absent or refused_name(token.text):
            continue
        if text_at(tokens, index - 1) == "::" and text_at(tokens, index - 2) in standard:
            continue
        pieces += [preprocessed[position : token.start], OWN]
        position = token.start
    return "".join((*pieces, preprocessed[position:]))


def with_names_of_text(log: str) -> str:
    """A compiler's log with the names as the author wrote them."""
    return log.replace(OWN, "").replace("'gf_emulator_", "'")


def _absent_floats(headers: Iterable[str], include_dirs: Sequence[Path]) -> frozenset[str]:
    """The names of narrow floats that these headers do not bring on a GPU."""
    brought: frozenset[str] = frozenset()
    for header in _with_theirs(headers, include_dirs):
        if header in _FLOATS:
            brought |= _FLOATS[header]
        elif not header.startswith("gf/") and header not in _WITHOUT_FLOATS:
            return frozenset()
    return (_HALF | _BFLOAT16 | _FLOAT8) - brought


def _with_theirs(headers: Iterable[str], include_dirs: Sequence[Path]) -> set[str]:
    """The headers and what those of gf/ include in their form for a GPU."""
    found: set[str] = set()
    todo = list(headers)
    while todo:
        header = todo.pop()
        if header in found:
            continue
        found.add(header)
        if header.startswith("gf/"):
            paths = [folder / header for folder in include_dirs if (folder / header).is_file()]
            todo += [name for path in paths[:1] for name in _INCLUDE.findall(path.read_text())]
    return found
