"""The rules for a candidate's text that this machine's compiler builds for the emulator.

CUDA C++ is allowed. Refused is what exists for a host compiler alone, because with it a text can
switch checks off, run before its kernel, or tell the emulator from a GPU.
"""

from __future__ import annotations

import re

from greenfast.search.targets.emulator.word_set import word_set

PRIMITIVES = "use the primitives of gf/"

# Attributes in the form __attribute__((name)) and [[gnu::name]]: kept, or dropped because they say
# nothing about what the code does.
KEPT_ATTRIBUTES = frozenset(("aligned", "packed", "always_inline", "noinline", "may_alias"))
DROPPED_ATTRIBUTES = word_set("""
    annotate artificial assume cold cluster_dims block_size const constant deprecated device
    cudart_builtin device_builtin fallthrough flatten global grid_constant hot host
    launch_bounds leaf likely local_maxnreg managed maxnreg maybe_unused nodiscard nonnull
    noreturn nothrow nv_inline_hint nv_pure nv_register_params pure returns_nonnull unlikely
    unused used warn_unused_result
""")
# NVRTC ignores them behind a class, and as [[gnu::packed]] (13.0: "attribute does not apply to any
# entity", "unknown attribute").
LAYOUT_ATTRIBUTES = frozenset(("aligned", "packed", "may_alias"))
# What NVRTC's macro of a word expands to, and the word itself, which the stand-in headers define.
DEVICE_WORDS = {"shared": "__shared__", "constant": "__constant__", "noinline": "__noinline__"}
# Macros of two values (source_spelling.py), by their names in judged texts: a use stays visible.
STAMPS = {
    "gf_emulator_line": "__LINE__",
    "gf_emulator_date": "__DATE__",
    "gf_emulator_time": "__TIME__",
    "gf_emulator_file": "__FILE__",
}
# Macros that the stand-in headers answer, by their names in preprocessed texts. NVRTC expands them,
# so a string of one would tell the two apart.
CALLS = {
    "gf_emulator_assert": "assert",
    "gf_emulator_va_start": "va_start",
    "gf_emulator_va_arg": "va_arg",
    "gf_emulator_va_end": "va_end",
    "gf_emulator_va_copy": "va_copy",
    "gf_emulator_shared_macro": "GF_DYNAMIC_SHARED",
    "gf_emulator_wgmma_macro": "GF_WGMMA_SHAPE",
}
# C++17's NVRTC does not know no_unique_address, which would change a layout.
DROPPED_STANDARD_ATTRIBUTES = word_set("""
    nodiscard maybe_unused no_unique_address likely unlikely fallthrough noreturn deprecated
    carries_dependency
""")

# Pragmas by their first word. The emulator's compiler sees `pack` alone, which lays out memory.
DROPPED_PRAGMAS = word_set("""
    unroll nounroll once nv_diag_suppress nv_diag_warning nv_diag_error nv_diag_default
    nv_diagnostic nv_exec_check_disable nv_abi nv_weak_odr_device diag_suppress diag_warning
    diag_error diag_default hd_warning_disable region endregion message
    warning
""")
DROPPED_GCC_PRAGMAS = frozenset(("diagnostic", "unroll", "ivdep"))

# The builtins that NVRTC has, too: `decltype(__builtin_clz(T()))` would tell it from g++.
BUILTINS = frozenset(
    f"__builtin_{name}"
    for name in word_set(
        """
    add_overflow addressof assume assume_aligned bit_cast copysign copysignf expect
    is_constant_evaluated isfinite isinf isnan mul_overflow offsetof sub_overflow unreachable
    """
    )
)

_HOST = "which a GPU does not have"
_REFUSED_WORDS = {
    **dict.fromkeys(
        ("asm", "__asm", "__asm__"),
        f"inline assembly, which the emulator does not see; {PRIMITIVES}",
    ),
    **dict.fromkeys(("thread_local", "__thread", "_Thread_local"), f"thread-local memory, {_HOST}"),
    **dict.fromkeys(("_Complex", "__complex__", "__real__", "__imag__"), "complex numbers of C"),
    **dict.fromkeys(
        ("__float128", "__float80", "__ibm128", "__bf16", "__fp16"),
        f"a floating-point type {_HOST}",
    ),
    **dict.fromkeys(
        ("__declspec", "__label__", "__pragma", "__auto_type"),
        "a word of the host's compiler",
    ),
    **dict.fromkeys(  # "operator()" or "F::operator()", in a class or a lambda
        ("__func__", "__FUNCTION__", "__PRETTY_FUNCTION__"),
        "spelled differently by each compiler; leave it out",
    ),
}
_REFUSED_NAMES = (
    (
        re.compile(r"gf_emulator|gf_entry_", re.IGNORECASE),
        "a name of the emulator, which is not part of CUDA",
    ),
    (
        re.compile(
            r"__(?:tsan|asan|ubsan|msan|lsan|hwasan|sanitizer|cyg_profile|gcov|cxa|tls_get"
            r"|wrap_|real_)"
        ),
        "a name of the host compiler's checks",
    ),
    (
        re.compile(r"__(?:sync|atomic)_(?!thread)"),
        "the host compiler's atomics; use CUDA's atomicAdd, atomicCAS and their kin",
    ),
    (
        re.compile(r"_mm\d*_|__m(?:64|128|256|512)|__v\d+\w|__i[ax]32|__x86"),
        "an instruction or type of the host's processor",
    ),
    (re.compile(r"_Float\d|_Decimal\d"), f"a floating-point type {_HOST}"),
    (
        re.compile(r"__(?:copy_(?:move|n)|fill_[an]|equal_aux|uninitialized_|relocate_|lexico)"),
        "a name of the host's C++ library",
    ),
    (
        re.compile(r"__(?:glibc|gnu_|GLIBC|gthread|gthrw|libc_|environ|progname|ctype|errno)"),
        "a name of the host's C library",
    ),
)


_C_STRINGS = word_set("""
    strcpy strncpy strcat strncat strlen strnlen strcmp strncmp strchr strrchr strstr strdup
    stpcpy stpncpy mempcpy memccpy memchr memrchr rawmemchr bzero bcopy bcmp wmemcpy wmemset
    alloca setjmp longjmp dlsym dlopen
""")
# Functions of C++'s library that become unwatched copies.
STANDARD_COPIES = word_set("""
    copy copy_n copy_backward move_backward fill fill_n equal uninitialized_copy
    uninitialized_fill uninitialized_move
""")


# Names that the stand-in headers replace by calls.
COORDINATES = word_set("threadIdx blockIdx blockDim gridDim")
# After them a name is read and not declared.
EXPRESSION_WORDS = word_set("return co_return co_yield throw case else do sizeof and or not xor")


def refused_name(name: str) -> str | None:
    """Why the text may not use this name; None: it may."""
    if name in _REFUSED_WORDS:
        return _REFUSED_WORDS[name]
    if name.startswith("__builtin_"):
        return (
            None
            if name in BUILTINS
            else "a builtin of the host's compiler, which CUDA C++ does not need"
        )
    if name in _C_STRINGS:
        return "a function of C's library that CUDA does not have"
    if name[0] in "_gG":
        for pattern, reason in _REFUSED_NAMES:
            if pattern.match(name):
                return reason
    return None
