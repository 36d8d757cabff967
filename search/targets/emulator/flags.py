"""The compiler flags of the emulator and of kernel libraries."""

from __future__ import annotations

from pathlib import Path

from greenfast.search.targets.emulator.host_compiler import HostCompiler

COMMON_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-pipe", "-fno-math-errno")
NATIVE_FLAGS = ("-fvisibility=hidden", "-Wall", "-Wextra")
# Native sources that run once per run or launch: compiled with little optimisation, in parallel
# with the rest.
SELDOM_RUN = frozenset(
    f"{name}.cpp"
    for name in (
        "call_filter",
        "call_names",
        "carried_state",
        "findings",
        "global_memory",
        "global_shadow",
        "job",
        "last_words",
        "loading",
        "memory_map",
        "module_memory",
        "order",
        "own_calls",
        "program",
        "refusals",
        "report",
        "run",
        "sandbox",
        "shared_memory",
        "signals",
        "vault",
        "worker_pool",
    )
)
KERNEL_FLAGS = (
    "-g1",
    "-gdwarf-4",  # line tables for reports; from version 5 binutils 2.40 names the wrong file
    "-w",
    "-fno-exceptions",
    "-fno-rtti",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",  # CUDA code puns types
    "-fwrapv",  # as on the GPU; otherwise an overflowing offset may be widened, and correct
    "-ffp-contract=fast",  # nvcc contracts a * b + c
    "-fno-plt",
    "-fno-optimize-sibling-calls",  # a call's return address must lie in the kernel
    # Equal calls at the ends of two paths would share one line.
    "-fno-tree-tail-merge",
    "-fno-crossjumping",
    "-fstack-clash-protection",  # a large frame must meet its stack's guard page
    # Ubuntu's g++ turns it on, but not with -nostdlib: the precompiled prelude would not match.
    "-fno-stack-protector",
    "-fsanitize=alignment",
    "-fno-sanitize-recover=alignment",  # the runtime handles a failed check and stops the block
)
# Findings need lines only. To describe where variables live takes a fifth of g++'s time.
LINE_TABLE_FLAGS = {"g++": ("-fno-var-tracking",), "clang++": ()}
# A thread's own arrays live in registers or on its stack, where no hook sees them, so their indices
# are checked instead, also in a struct's last member. The bounds check accepts the address one past
# the end, which assigning an element of a class (fp16) takes; there g++ checks the object's size.
# Shifts by the width or more, and casts of floats that the integer cannot hold, have another value
# on a GPU than here, and none in C++.
CHECKED_FLAGS = {
    "g++": (
        "-fsanitize=bounds-strict,object-size,shift-exponent,float-cast-overflow",
        # Loops of known length are unrolled before the hooks go in. The indices of a thread's own
        # arrays are then constants: the compiler itself compares them with the bounds, and keeps
        # elements in registers, without hooks.
        "-O3",
        "-fno-tree-sra",  # a vector stays whole: one hook, where its halves would have eight
        # What is written into the assembly before a return (control_edges.py) uses two registers. A
        # call may change them, which this optimisation would take back for functions of the text.
        "-fno-ipa-ra",
        "-fno-sanitize-recover=bounds-strict,shift-exponent,float-cast-overflow",
        "-fsanitize-recover=object-size",
    ),
    "clang++": (
        "-fsanitize=bounds,shift-exponent,float-cast-overflow",
        "-fno-sanitize-recover=bounds,shift-exponent,float-cast-overflow",
    ),
}
# Without the passes that take a constant for a variable on paths that do not set it
# (folded_constants.py).
NO_FOLDING_FLAGS = ("-fno-tree-fre", "-fno-tree-pre", "-fno-code-hoisting")  # of g++
# Hooks at loads and stores only.
HOOK_FLAGS = {
    "g++": (
        "-fsanitize=thread",
        "--param=tsan-instrument-func-entry-exit=0",
        "--param=tsan-distinguish-volatile=1",
    ),
    "clang++": (
        "-fsanitize=thread",
        "-mllvm",
        "-tsan-instrument-func-entry-exit=0",
        "-mllvm",
        "-tsan-distinguish-volatile=1",
    ),
}
# Nearly every device function is inlined, as by nvcc. The compiler then sees that arrays passed by
# reference are the thread's own, and they need no hooks.
INLINING_FLAGS = {
    "g++": (
        "-fwhole-program",
        "--param=max-inline-insns-auto=400",
        "--param=inline-unit-growth=400",
        "--param=large-function-growth=2000",
    ),
    "clang++": (),
}
# Scalar replacement would split a 16-byte access before the hooks go in: it would count as four.
WHOLE_ACCESS_FLAGS = {"g++": ("-fno-tree-sra",), "clang++": ()}
# A constructor does not begin with a store that makes its object undefined: it would undo the
# number that members without a value get.
LIFETIME_FLAGS = {"g++": ("-flifetime-dse=1",), "clang++": ()}
# Mathematics that writes through a pointer: native/library_calls.cpp checks where. No compiler puts
# hooks into the C library.
WRAPPED_CALLS = tuple(
    f"-Wl,--wrap={name}"
    for name in (
        "frexp",
        "frexpf",
        "modf",
        "modff",
        "remquo",
        "remquof",
        "sincos",
        "sincosf",
    )
)
# `new`, `delete` and calls of pure virtual functions: native/device_heap.cpp.
HEAP_CALLS = tuple(
    f"-Wl,--wrap={name}"
    for name in ("_Znwm", "_Znam", "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm", "__cxa_pure_virtual")
)
# The names by which a kernel library imports `malloc`, `new` and `new[]`.
ALLOCATIONS = (b"gf_emulator_device_malloc", b"__wrap__Znwm", b"__wrap__Znam")
FLAVOURS = ("plain", "counted", "checked")  # of a kernel library: the purpose of its hooks
ERROR_LIMIT_FLAGS = {"g++": ("-fmax-errors=20",), "clang++": ("-ferror-limit=20",)}


def kernel_flags(
    compiler: HostCompiler, flavour: str, include_dirs: tuple[Path, ...]
) -> tuple[str, ...]:
    """The flags of a kernel library, and of the precompiled header that it uses."""
    return (
        *COMMON_FLAGS,
        *compiler.machine_flags,
        *compiler.poison_flags,
        *KERNEL_FLAGS,
        *LINE_TABLE_FLAGS[compiler.kind],
        *LIFETIME_FLAGS[compiler.kind],
        *INLINING_FLAGS[compiler.kind],
        *ERROR_LIMIT_FLAGS[compiler.kind],
        *(() if flavour == "plain" else HOOK_FLAGS[compiler.kind]),
        *(CHECKED_FLAGS[compiler.kind] if flavour == "checked" else ()),
        *(WHOLE_ACCESS_FLAGS[compiler.kind] if flavour == "counted" else ()),
        *(() if flavour == "plain" else (f"-DGF_EMULATOR_{flavour.upper()}",)),
        *(f"-I{directory}" for directory in include_dirs),
    )


def flags_text(compiler: HostCompiler) -> str:
    """The flags that decide how objects come out; a cached emulator was made with the same ones."""
    hooks = (
        HOOK_FLAGS[compiler.kind],
        WHOLE_ACCESS_FLAGS[compiler.kind],
        INLINING_FLAGS[compiler.kind],
        CHECKED_FLAGS[compiler.kind],
        LINE_TABLE_FLAGS[compiler.kind],
        LIFETIME_FLAGS[compiler.kind],
    )
    return repr(
        (
            (COMMON_FLAGS, NATIVE_FLAGS, KERNEL_FLAGS, hooks),
            (sorted(SELDOM_RUN), WRAPPED_CALLS, HEAP_CALLS, NO_FOLDING_FLAGS),
        )
    )
