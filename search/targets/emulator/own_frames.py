"""Accesses to a thread's own frames pass their hook without a call.

Many accesses of a checked library are to arrays that the compiler keeps on the stack. Their hook
would return at once (native/local_memory.h), but a call costs more than the access. This edits
g++'s assembly for x86-64: before each call of a hook come the same two comparisons. They may change
what a call may change, the flags and %rax.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

STACK_BYTES_LOG2 = 17  # StackPool::stack_bytes of native/context.h
# An aligned access never crosses the end of a stack, which is a multiple of its size.
_HOOK = re.compile(r"\tcall\t\*__tsan_(?:volatile_)?(?:read|write)(?:1|2|4|8|16)@GOTPCREL\(%rip\)")
# Accumulators of products under way are a thread's own memory that is watched.
_WATCHED = "gf_emulator_wgmma"


def with_own_frames_passed(assembly: Iterable[str]) -> Iterator[str]:
    """The lines of `assembly`, in which hooks are called for memory outside the live frames."""
    lines = list(assembly)
    if any(_WATCHED in line for line in lines):
        yield from lines
        return
    for number, line in enumerate(lines):
        if "__tsan_" not in line or not _HOOK.match(line):
            yield line
            continue
        yield (
            "\tmovq\t%rdi, %rax\n"
            "\txorq\t%rsp, %rax\n"
            f"\tshrq\t${STACK_BYTES_LOG2}, %rax\n"
            f"\tjne\t.Lgf_outside{number}\n"
            "\tcmpq\t%rsp, %rdi\n"
            f"\tjae\t.Lgf_own{number}\n"
            f".Lgf_outside{number}:\n"
            f"{line}"
            f".Lgf_own{number}:\n"
        )
