"""Integer intrinsics, rounding modes and mathematics of the emulator, at their edges."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from device_values import computed, f32, f64, mismatches

M32, M64 = 2**32, 2**64

INTEGERS = [
    ("__clz(zero)", 32),
    ("__clz(-1)", 0),
    ("__clzll(0ll + zero)", 64),
    ("__ffs(zero)", 0),
    ("__ffs(0x8000)", 16),
    ("__ffsll(1ll << 40)", 41),
    ("__popc(~0u)", 32),
    ("__brev(1u)", 0x80000000),
    ("__brevll(1ull)", 1 << 63),
    ("__mul24(0xff800001, 3)", (-0x7FFFFF * 3) % M32),
    ("__mul24(0x01000002, 5)", 10),
    ("__umul24(0xff000003u, 0x01000007u)", 21),
    ("__mulhi(-2, 3)", M32 - 1),
    ("__umulhi(0xffffffffu, 0xffffffffu)", 0xFFFFFFFE),
    ("__mul64hi(-2ll, 3ll)", M64 - 1),
    ("__umul64hi(~0ull, ~0ull)", M64 - 2),
    ("__sad(-5, 7, 1u)", 13),
    ("__sad((int)0x80000000, 0x7fffffff, 0u)", 0xFFFFFFFF),
    ("__usad(3u, 10u, 1u)", 8),
    ("__hadd(-3, 0)", M32 - 2),
    ("__rhadd(-3, 0)", M32 - 1),
    ("__uhadd(~0u, ~0u)", 0xFFFFFFFF),
    ("__urhadd(0u, 1u)", 1),
    ("__byte_perm(0x33221100u, 0x77665544u, 0x7531)", 0x77553311),
    ("__byte_perm(0x00008000u, 0u, 0x9999)", 0xFFFFFFFF),
    ("__funnelshift_l(0x80000001u, 0x7u, 33)", 0xF),
    ("__funnelshift_r(0x80000001u, 0x7u, 32)", 0x80000001),
    ("__funnelshift_lc(0x80000001u, 0x7u, 32)", 0x80000001),
    ("__funnelshift_lc(1u, 2u, 77)", 1),
    ("__funnelshift_rc(0x80000001u, 0x7u, 32)", 7),
    ("__funnelshift_rc(0x80000001u, 0x7u, 1)", 0xC0000000),
    ("__fns(0b10110u, 0, 1)", 1),
    ("__fns(0b10110u, 2, 2)", 4),
    ("__fns(0b10110u, 4, -2)", 2),
    ("__fns(0b10110u, 2, 0)", 2),
    ("__fns(0b10110u, 0, 0)", 0xFFFFFFFF),
    ("__fns(0b10110u, 0, 4)", 0xFFFFFFFF),
    ("__fns(1u, 40, 1)", 0xFFFFFFFF),
    ("__dp4a((int)0xff02fe03, (int)0x0102ff7f, 10)", -1 + 4 + 2 + 3 * 127 + 10),
    ("__dp4a(0xff02fe03u, 0x0102ff7fu, 10u)", 255 + 4 + 254 * 255 + 381 + 10),
    ("__dp4a(make_char4(1, -2, 3, 4), make_char4(5, 6, 7, -8), 0)", (5 - 12 + 21 - 32) % M32),
    ("__dp2a_lo((int)0xfffe0003, (int)0x050607ff, 1)", (3 * -1 + -2 * 7 + 1) % M32),
    ("__dp2a_hi(0xfffe0003u, 0x050607ffu, 1u)", (3 * 6 + 0xFFFE * 5 + 1)),
    ("abs(-1.5f)", f32(1.5)),
    ("min(-1, 1u)", 1),
    ("max(1.0f, 2.0)", f64(2.0)),
    ("max(-1ll, 3ull)", M64 - 1),
]

VIDEO = [
    ("__vadd4(0xff7f0180u, 0x01010180u)", 0x00800200),
    ("__vaddss4(0x7f7f8080u, 0x0101ff01u)", 0x7F7F8081),
    ("__vaddus2(0xffff0001u, 0x00020003u)", 0xFFFF0004),
    ("__vsub2(0x00000001u, 0x00010002u)", 0xFFFFFFFF),
    ("__vsubss2(0x80007fffu, 0x0001ffffu)", 0x80007FFF),
    ("__vsubus4(0x01020304u, 0x02010403u)", 0x00010001),
    ("__vabsdiffs4(0x80ff0001u, 0x7f010100u)", 0xFF020101),
    ("__vabsdiffu4(0x80ff0001u, 0x7f010100u)", 0x01FE0101),
    ("__vavgs2(0xfffd0003u, 0x00000000u)", 0xFFFE0002),
    ("__vavgu4(0x01ff0003u, 0x02ff0000u)", 0x02FF0002),
    ("__vhaddu4(0x01ff0003u, 0x02ff0000u)", 0x01FF0001),
    ("__vmaxs4(0x80ff7f01u, 0x7f000002u)", 0x7F007F02),
    ("__vmaxu4(0x80ff7f01u, 0x7f000002u)", 0x80FF7F02),
    ("__vmins2(0x8000ffffu, 0x7fff0000u)", 0x8000FFFF),
    ("__vminu2(0x8000ffffu, 0x7fff0000u)", 0x7FFF0000),
    ("__vcmpeq4(0x01020304u, 0x01000300u)", 0xFF00FF00),
    ("__vcmpgts2(0xffff0001u, 0x00000000u)", 0x0000FFFF),
    ("__vcmpgtu2(0xffff0001u, 0x00000000u)", 0xFFFFFFFF),
    ("__vsetne4(0x01020304u, 0x01000300u)", 0x00010001),
    ("__vabs4(0x80ff017fu)", 0x8001017F),
    ("__vabsss4(0x80ff017fu)", 0x7F01017F),
    ("__vneg2(0x80000001u)", 0x8000FFFF),
    ("__vnegss2(0x80000001u)", 0x7FFFFFFF),
    ("__vsads4(0x80ff0001u, 0x7f010100u)", 255 + 2 + 1 + 1),
    ("__vsadu2(0x00050001u, 0x00010003u)", 6),
]


def rounded(value: Fraction, mode: str, bits: int) -> float:
    """The number of `bits` significant bits next to `value`, for normal results."""
    if value == 0:
        return 0.0
    size = abs(value)
    exponent = math.frexp(float(size))[1] - bits
    while size / Fraction(2) ** exponent >= 2**bits:
        exponent += 1
    while size / Fraction(2) ** exponent < 2 ** (bits - 1):
        exponent -= 1
    steps = value / Fraction(2) ** exponent
    whole = {
        "rn": round,
        "rz": math.trunc,
        "ru": math.ceil,
        "rd": math.floor,
    }[mode](steps)
    return float(Fraction(whole) * Fraction(2) ** exponent)


def literal(value: float, suffix: str = "") -> str:
    return f"{value.hex()}{suffix}"


def of_rounding_modes():
    x, y, z = (float(np.float32(value)) for value in (1.1, -3.7e-5, 1.0 / 3.0))
    for mode in ("rn", "rz", "ru", "rd"):
        for real, suffix, bits, pack in (("f", "f", 24, f32), ("d", "", 53, f64)):
            a, b, c = Fraction(x), Fraction(y), Fraction(z)
            left, right, third = (literal(value, suffix) for value in (x, y, z))
            fma = "__fmaf_" if real == "f" else "__fma_"
            for text, value in (
                (f"__{real}add_{mode}({left}, {right})", a + b),
                (f"__{real}sub_{mode}({left}, {right})", a - b),
                (f"__{real}mul_{mode}({left}, {right})", a * b),
                (f"__{real}div_{mode}({left}, {right})", a / b),
                (f"__{real}rcp_{mode}({right})", 1 / b),
                (f"{fma}{mode}({left}, {right}, {third})", a * b + c),
            ):
                yield text, pack(rounded(value, mode, bits))
            root = Fraction(math.isqrt(int(a * 2**200))) / 2**100  # with its last bits cut off
            yield (
                f"__{real}sqrt_{mode}({left})",
                pack(rounded(root + Fraction(1, 2**101), mode, bits)),
            )
        yield (
            f"__double2float_{mode}({literal(1.1)})",
            f32(rounded(Fraction(1.1), mode, 24)),
        )
        for whole in (16777217, -16777219):
            yield f"__int2float_{mode}({whole})", f32(rounded(Fraction(whole), mode, 24))
        yield f"__uint2float_{mode}(4294967295u)", f32(rounded(Fraction(2**32 - 1), mode, 24))
        big = 2**62 + 12345
        yield f"__ll2float_{mode}(-{big}ll)", f32(rounded(Fraction(-big), mode, 24))
        yield f"__ull2double_{mode}({2**64 - 1}ull)", f64(rounded(Fraction(2**64 - 1), mode, 53))


CONVERSIONS = [
    ("__float2int_rz(3e9f)", 0x7FFFFFFF),
    ("__float2int_rz(-3e9f)", 0x80000000),
    ("__float2int_rn(2.5f)", 2),
    ("__float2int_ru(-2.5f)", M32 - 2),
    ("__float2int_rn(__int_as_float(0x7fc00000))", 0),
    ("__float2uint_rd(-1.5f)", 0),
    ("__float2uint_ru(1.5f)", 2),
    ("__float2uint_rn(5e9f)", 0xFFFFFFFF),
    ("__float2ll_rn(__int_as_float(0x7fc00000))", 1 << 63),
    ("__float2ull_rz(-1.0f)", 0),
    ("__double2int_rn(1e10)", 0x7FFFFFFF),
    ("__double2int_rn(__longlong_as_double(0x7ff8000000000000ll))", 0x80000000),
    ("__double2uint_rz(-0.5)", 0),
    ("__double2ll_rd(-1.5)", M64 - 2),
    ("__double2ull_rn(1e30)", M64 - 1),
    ("__double2hiint(1.0)", 0x3FF00000),
    ("__hiloint2double(0x3ff00000, 1)", 0x3FF0000000000001),
    ("__double2loint(__hiloint2double(5, 7))", 7),
    ("__saturatef(__int_as_float(0x7fc00000))", 0),
    # Fused, the sum would be the product's rounding error.
    ("__fadd_rn(__fmul_rn(0x1.000002p0f, 0x1.000002p0f), -0x1.000004p0f)", 0),
]


HALVES = [
    ("__half_as_ushort(__float2half_rz(1e6f))", 0x7BFF),
    ("__half_as_ushort(__float2half_ru(1e6f))", 0x7C00),
    ("__half_as_ushort(__float2half_ru(-1e6f))", 0xFBFF),
    ("__half_as_ushort(__float2half_rd(1e-9f))", 0),
    ("__half_as_ushort(__float2half_ru(1e-9f))", 1),
    ("__half_as_ushort(__float2half_rd(-1e-9f))", 0x8001),
    ("__half_as_ushort(__float2half_rz(1.0009765f))", 0x3C00),
    ("__half_as_ushort(__float2half_ru(1.0001f))", 0x3C01),
    ("__half_as_ushort(__int2half_rz(2049))", 0x6800),
    ("__half_as_ushort(__ll2half_ru(2049))", 0x6801),
    ("__half2int_ru(__float2half(2.25f))", 3),
    ("__half2short_rz(__float2half(6e4f))", 0x7FFF),
    ("__half2uint_rd(__float2half(-2.0f))", 0),
    ("__half2uchar_rz(__float2half(300.0f))", 255),
    ("__half2ll_rn(__ushort_as_half(0x7c00))", 2**63 - 1),
    ("__bfloat16_as_ushort(__float2bfloat16_rz(1.999f))", 0x3FFF),
    ("__bfloat16_as_ushort(__float2bfloat16_ru(1.001f))", 0x3F81),
    ("__bfloat16_as_ushort(__ull2bfloat16_ru((1ull << 63) + 1))", 0x5F01),
    ("__bfloat162int_rd(__float2bfloat16(-2.5f))", M32 - 3),
    ("__half_as_ushort(__hadd_sat(__float2half(0.75f), __float2half(0.5f)))", 0x3C00),
    ("__half_as_ushort(__hfma_relu(__float2half(1.0f), __float2half(-2.0f), half(1.0f)))", 0),
    ("__half_as_ushort(__hmax(__ushort_as_half(0x7e00), half(1.0f)))", 0x3C00),
    ("__half_as_ushort(__hmax_nan(__ushort_as_half(0x7e00), half(1.0f)))", 0x7FFF),
    ("__hltu(__ushort_as_half(0x7e00), half(1.0f))", 1),
    ("__hne(__ushort_as_half(0x7e00), half(1.0f))", 1),
    ("__hbgt2(make_half2(2.0f, 1.0f), make_half2(1.0f, 1.0f))", 0),
    ("__hbge2(make_half2(2.0f, 1.0f), make_half2(1.0f, 1.0f))", 1),
    ("__hgt2_mask(make_half2(2.0f, 1.0f), make_half2(1.0f, 1.0f))", 0xFFFF),
    ("__half_as_ushort(__heq2(make_half2(2.0f, 1.0f), make_half2(1.0f, 1.0f)).y)", 0x3C00),
    ("__half_as_ushort(__hcmadd(make_half2(1, 2), make_half2(3, 4), make_half2(0, 1)).x)", 0xC500),
    ("__half_as_ushort(__hcmadd(make_half2(1, 2), make_half2(3, 4), make_half2(0, 1)).y)", 0x4980),
    ("__half_as_ushort(h2floor(make_half2(-1.5f, 2.5f)).x)", 0xC000),
    ("__half_as_ushort(hrint(half(2.5f)))", 0x4000),
    ("__half_as_ushort(__highs2half2(make_half2(1, 2), make_half2(3, 4)).y)", 0x4400),
]

# Values from tables (Abramowitz and Stegun), with the error in units of float32's last place.
FUNCTIONS = {
    "erfinvf(0.5f)": 0.4769362762044699,
    "erff(erfinvf(-0.999f))": -0.9990000128746033,
    "erfinvf(1e-9f)": 8.862269254527581e-10,
    "erfcinvf(1e-10f)": 4.572824967389486,
    "erfcinv(1.75)": -0.8134198475976185,
    "erfcxf(30.0f)": 0.0187958888614168,
    "erfcxf(0.5f)": 0.6156903441929259,
    "normcdff(1.0f)": 0.8413447460685429,
    "normcdfinvf(0.975f)": 1.959963984540054,
    "tgammaf(5.5f)": 52.34277778455352,
    "lgammaf(10.0f)": 12.801827480081469,
    "rcbrtf(8.0f)": 0.5,
    "sinpif(0.25f)": 0.7071067811865476,
    "sinpif(1e6f)": 0.0,
    "cospif(0.5f)": 0.0,
    "cospif(100001.0f)": -1.0,
    "cospi(0.75)": -0.7071067811865476,
    "rhypotf(3.0f, 4.0f)": 0.2,
    "norm3df(1.0f, 2.0f, 2.0f)": 3.0,
    "rnorm4df(1.0f, 1.0f, 1.0f, 1.0f)": 0.5,
    "cyl_bessel_i0f(1.0f)": 1.2660658777520084,
    "cyl_bessel_i1f(2.0f)": 1.5906368546373291,
    "exp10f(2.0f)": 100.0,
    "fdividef(1.0f, 4.0f)": 0.25,
    "hypotf(3.0f, 4.0f)": 5.0,
    "ldexpf(0.75f, 4)": 12.0,
    "frexp_of(12.0f)": 0.75,
    "modf_of(-3.25f)": -0.25,
    "remainderf(5.0f, 3.0f)": -1.0,
    "fmodf(-5.0f, 3.0f)": -2.0,
    "sincospi_of(0.125f)": 0.3826834323650898 + 0.9238795325112867,
    "rsqrt(4.0f)": 0.5,
    "exp(1.0f)": math.e,
    "__powf(2.0f, 0.5f)": math.sqrt(2),
}
FUNCTION_HELPERS = """
__device__ float frexp_of(float x) {
    int exponent;
    const float part = frexpf(x, &exponent);
    return part * (exponent == 4);
}
__device__ float modf_of(float x) {
    float whole;
    const float part = modff(x, &whole);
    return part * (whole == -3.0f);
}
__device__ float sincospi_of(float x) {
    float s, c;
    sincospif(x, &s, &c);
    return s + c;
}
"""


def test_integer_and_video_intrinsics(artifacts):
    assert mismatches(artifacts, INTEGERS + VIDEO) == []


def test_rounding_modes_and_conversions(artifacts):
    cases = [*of_rounding_modes(), *CONVERSIONS, *HALVES]
    headers = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>"
    assert mismatches(artifacts, cases, headers=headers) == []


def test_mathematics(artifacts):
    cases = [(f"float({text})", 0) for text in FUNCTIONS]
    found = computed(artifacts, cases, helpers=FUNCTION_HELPERS)
    values = np.array([found[text] for text, _ in cases], np.uint32).view(np.float32)
    want = np.array(list(FUNCTIONS.values()))
    wrong = np.abs(values - want) > 4 * np.spacing(np.abs(want).astype(np.float32))
    assert not wrong.any(), [
        (text, float(value))
        for (text, _), value, bad in zip(cases, values, wrong, strict=True)
        if bad
    ]
