"""Calls and returns of a checked library lead only where its text says.

Hooks stand before accesses, so a jump behind one is an access that nobody checks. A text can make
one in two ways: it calls a number, which may lie in the middle of an instruction (constants are
code there), or it writes past its own variables over the address that its function returns to. This
edits g++'s assembly for x86-64: an indirect call is compared with the functions whose address the
text takes, and a return with a mark behind the library's own calls. The mark is drawn for each
library, so that no text can hold it. The runtime, which calls the kernel, is not returned to.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator

_FUNCTION = re.compile(r"\t\.type\t([^,\s]+), @function")
_LABEL = re.compile(r"([^\s.:#][^\s:#]*):")
_SECTION = re.compile(r"\t\.section\t([^,\s]+)|\t\.(?:text|data|bss)\b")
_CALL = re.compile(r"\tcall\t([^*\s@]+)$")
_INDIRECT = re.compile(r"\tcall\t\*((?:.(?!@GOTPCREL))+)$")
_RETURN = re.compile(r"\t(?:rep )?ret$")
# Whole names only: a name may have thousands of letters, and each of them would be a begin.
_IN_CODE = re.compile(r"\t(?!call\t)\w+\t[^#]*?(?<![\w.$])([A-Za-z_][\w.$]*+)(@GOTPCREL)?\(%rip\)")
_IN_DATA = re.compile(r"\t\.quad\t([A-Za-z_][\w.$]*)$")
_RUNTIME = re.compile(r"gf_emulator_|__tsan_|__ubsan_")
_ENTRY = "gf_entry_"
_TABLES = (".init_array", ".preinit_array", ".fini_array", ".debug", ".eh_frame")
_EDGES = ("\tcall", "\tret", "\trep ret")
_RETURN_MARK_BYTES = 2  # of the jump over the mark
_FARTHEST_BYTES = 2**28  # of a library's code from one place of it: object_check.py has its limits
_NOT = 2**64 - 1


def with_checked_edges(assembly: Iterable[str]) -> Iterator[str]:
    """The lines of `assembly`, whose calls and returns are checked."""
    lines = list(assembly)
    functions = {
        match[1] for line in lines if "@function" in line and (match := _FUNCTION.match(line))
    }
    if not functions:  # another processor's assembly has another spelling
        yield from lines
        return
    targets, early = _addresses(lines, functions)
    mark, inside, calls = secrets.randbits(64), "", False
    for number, line in enumerate(lines):
        text = line.rstrip("\n")
        if not line.startswith(_EDGES) and not text.endswith(":"):
            yield line  # as most lines are
            continue
        if (label := _LABEL.match(text)) is not None and label[1] in functions:
            inside = label[1]
        if (call := _CALL.match(text)) is not None and call[1] in functions:
            yield f"{line}{_marked(mark, number)}"
        elif (indirect := _INDIRECT.match(text)) is not None:
            calls = True
            yield f"\tmovq\t{indirect[1]}, %r11\n\tcall\t.Lgf_call\n{_marked(mark, number)}"
        elif _RETURN.match(text) and inside.startswith(_ENTRY):
            # The stack is as at the function's begin.
            yield "\tsubq\t$8, %rsp\n\tcall\t*gf_emulator_thread_ends@GOTPCREL(%rip)\n"
        elif _RETURN.match(text) and inside not in early:
            yield _checked_return(mark) + line
        else:
            yield line
    yield _lost()
    if calls:
        yield from _checked_call(targets, functions)


def _addresses(lines: list[str], functions: set[str]) -> tuple[list[str], set[str]]:
    """Functions whose address the text takes, and those that the loader calls."""
    targets: dict[str, None] = {}
    early: set[str] = set()
    section = ".text"
    for line in lines:
        if line.startswith("\t.") and (named := _SECTION.match(line)) is not None:
            section = named[1] or ".text"
        elif line.startswith("\t.quad") and (data := _IN_DATA.match(line)) is not None:
            if section.startswith(_TABLES[:3]):
                early.add(data[1])
            elif not section.startswith(_TABLES):
                targets[data[1]] = None
        elif (
            "(%rip)" in line
            and (code := _IN_CODE.match(line)) is not None
            and (code[2] or code[1] in functions)
        ):
            targets[code[1]] = None
    return [name for name in targets if not _RUNTIME.match(name)], early


def _marked(mark: int, number: int) -> str:
    """The code after a call: a jump over the mark."""
    return f"\tjmp\t.Lgf_back{number}\n\t.quad\t{mark}\n.Lgf_back{number}:\n"


def _checked_return(mark: int) -> str:
    return (
        "\tmovq\t(%rsp), %r11\n"
        # Far from the library there may be no memory to look for the mark in.
        "\tleaq\t.Lgf_lost(%rip), %r10\n"
        "\tsubq\t%r11, %r10\n"
        f"\taddq\t${_FARTHEST_BYTES}, %r10\n"
        f"\tshrq\t${_FARTHEST_BYTES.bit_length()}, %r10\n"
        "\tjne\t.Lgf_lost\n"
        f"\tmovabsq\t${mark ^ _NOT}, %r10\n"  # the mark itself stands behind calls only
        "\tnotq\t%r10\n"
        f"\tcmpq\t{_RETURN_MARK_BYTES}(%r11), %r10\n"
        "\tjne\t.Lgf_lost\n"
    )


def _lost() -> str:
    return (
        "\t.text\n.Lgf_lost:\n"
        "\tmovq\t%r11, %rdi\n"
        "\tandq\t$-16, %rsp\n"
        "\tcall\t*gf_emulator_wrong_return@GOTPCREL(%rip)\n"
    )


def _checked_call(targets: list[str], functions: set[str]) -> Iterator[str]:
    """Jumps to %r11, where a function begins that the text names; changes %r10 and the flags."""
    yield ".Lgf_call:\n"
    for name in targets:
        if name in functions:
            yield f"\tleaq\t{name}(%rip), %r10\n\tcmpq\t%r10, %r11\n"
        else:
            yield f"\tcmpq\t{name}@GOTPCREL(%rip), %r11\n"
        yield "\tje\t.Lgf_known\n"
    yield (
        "\tmovq\t%r11, %rdi\n"
        "\tmovq\t(%rsp), %rsi\n"
        "\tandq\t$-16, %rsp\n"
        "\tcall\t*gf_emulator_wrong_call@GOTPCREL(%rip)\n"
        ".Lgf_known:\n\tjmp\t*%r11\n"
    )
