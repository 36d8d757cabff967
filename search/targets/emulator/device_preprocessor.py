"""Preprocesses a candidate's text as NVRTC does, so that no directive sees the emulator.

The preprocessor knows the macros of device code and nothing of this machine. A stand-in header's
place is kept as a pragma, and its text comes in later, when there are no directives any more.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from greenfast.search.targets.emulator.header_macros import header_files, header_text
from greenfast.search.targets.emulator.host_compiler import HostCompiler
from greenfast.search.targets.emulator.source_rewriting import Refused
from greenfast.search.targets.emulator.source_text import HEADER_PRAGMA, PROGRAMS
from greenfast.search.targets.emulator.source_tokens import Place
from greenfast.search.targets.emulator.word_set import word_set
from greenfast.search.toolchain.includes import STANDARD_HEADERS

INTERNAL = "gf_emulator"  # the folder of headers that are the emulator's own
MACROS = f"{INTERNAL}/device_macros.h"
STAMP_MACROS = f"{INTERNAL}/stamp_macros.h"
UNKNOWN_MACROS = f"{INTERNAL}/unknown_macros.h"
STUBS = "device_include"
HOST_MACROS = "host_macros.txt"
HOST_FUNCTIONS = "host_functions.txt"
PREPROCESSED = "kernel.ii"
RELEASE = (13, 5, 37)  # CUDA's, where NVRTC is not installed
# Standard headers that are in the prelude, or that the stand-in headers answer.
PRELUDE_HEADERS = word_set("""
    cstddef stddef.h cstdint stdint.h cstring string.h new type_traits utility
    cassert assert.h cstdio stdio.h
""")
# NVRTC has none of these. A program for nvcc includes them, and has more overloads with them.
MATHEMATICS_OF_C = ("cmath", "math.h")
# Macros of the host's compiler that it defines without saying so, and that NVRTC lacks.
BUILT_IN_MACROS = word_set("""
    __COUNTER__ __INCLUDE_LEVEL__ __TIMESTAMP__ __BASE_FILE__ __has_attribute __has_builtin
    __has_cpp_attribute __has_feature __has_include __has_include_next alloca
""")
# Our own process reads the tokens: a text of 700 bytes can expand to millions of them.
MOST_JUDGED_CHARACTERS = 4 << 20
MOST_CHARACTERS = 32 << 20  # of a file with its own includes
_DEFINE = re.compile(r"#define (\w+)")
_QUESTION = re.compile(
    r"^(.*?):(\d+):\d+: note: in expansion of macro "
    r".(__has_(?:builtin|cpp_attribute|include)|__LINE__|__DATE__|__TIME__|__FILE__)\b",
    re.MULTILINE,
)
_POISONED = re.compile(  # g++ and clang++
    r'^(.*?):(\d+):\d+: error: attempt to use (?:a )?poisoned (?:identifier|"(\w+)")',
    re.MULTILINE,
)
_TOO_LARGE = re.compile(r"(.*?):(\d+):\d+: warning: integer (?:constant|literal) is too large")
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if\b.*$", re.MULTILINE)
_HAS_INCLUDE = re.compile(r"\b__has_include[ \t]*\([ \t]*<([\w./]+)>[ \t]*\)")
_MARKER = re.compile(r'# (\d+) "([^"\n]*)"')
_FIRST_LINE = re.compile(r'^#line 1 "([^"\n]*)"', re.MULTILINE)
_MARKED = re.compile(rf"^{_MARKER.pattern}.*$", re.MULTILINE)


def headers_of_cuda(include: Path) -> frozenset[str]:
    """The stand-in headers below `include` that NVRTC finds as well, by CUDA's names."""
    return frozenset(path.name for path in include.iterdir() if path.is_file())


def write_stubs(include: Path, folder: Path) -> None:
    """The headers that the device's preprocessor finds: one for each stand-in header below
    `include`, and the standard ones."""
    stand_ins = {
        str(path.relative_to(include))
        for path in include.rglob("*")
        if path.is_file() and path.relative_to(include).parts[0] != INTERNAL
    }
    for name in stand_ins | STANDARD_HEADERS:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        absent = name in PRELUDE_HEADERS and name not in stand_ins
        header = PROGRAMS if name in MATHEMATICS_OF_C else name
        place = "" if absent else f'#pragma {HEADER_PRAGMA} "{header}"\n'
        macros = [(include / INTERNAL / file).read_text() for file in header_files(name)]
        path.write_text("".join(("#pragma once\n", place, *macros, header_text(name))))


def stub_names(folder: Path) -> frozenset[str]:
    return frozenset(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def macro_flags(arch: str) -> tuple[str, ...]:
    """The macros of an architecture (`sm_90`, `sm_90a`) and of the installed release."""
    digits = re.sub(r"\D", "", arch)
    number = int(digits) * 10
    major, minor, build = _release()
    values = {
        "__CUDA_ARCH__": number,
        "__CUDA_ARCH_LIST__": number,
        "__CUDA_MINIMUM_ARCH__": number,
        "__CUDACC_VER_MAJOR__": major,
        "__CUDACC_VER_MINOR__": minor,
        "__CUDACC_VER_BUILD__": build,
        "__CUDA_API_VER_MAJOR__": major,
        "__CUDA_API_VER_MINOR__": minor,
        "CUDART_VERSION": major * 1000 + minor * 10,
        "__CUDART_API_VERSION": f"(({major} * 1000) + ({minor} * 10))",
    }
    if arch.endswith("a"):
        values[f"__CUDA_ARCH_FEAT_SM{digits}_ALL"] = 1
        values["__CUDA_ARCH_SPECIFIC__"] = values["__CUDA_ARCH_FAMILY_SPECIFIC__"] = number
    return tuple(f"-D{name}={value}" for name, value in values.items())


def _release() -> tuple[int, int, int]:
    try:
        words = importlib.metadata.version("nvidia-cuda-nvrtc").split(".")
        major, minor, build = (int(word) for word in words[:3])
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return RELEASE
    return major, minor, build


def preprocess_command(
    compiler: HostCompiler,
    include: Path,
    stubs: Path,
    include_dirs: Iterable[Path],
    arch: str,
    *,
    is_judged: bool,
) -> list[str]:
    """Writes PREPROCESSED from kernel.cu, both in the working folder."""
    macros = (MACROS, STAMP_MACROS, UNKNOWN_MACROS) if is_judged else (MACROS,)
    return [
        compiler.path,
        "-std=gnu++17",  # in strict C++ `, ##__VA_ARGS__` keeps its comma, where NVRTC drops it
        "-E",
        "-undef",
        "-nostdinc",
        "-nostdinc++",
        *macro_flags(arch),
        *(word for name in macros for word in ("-imacros", str(include / name))),
        f"-I{stubs}",
        *(f"-I{directory}" for directory in include_dirs),
        "-x",
        "c++",
        "kernel.cu",
        "-o",
        PREPROCESSED,
    ]


def with_answers(text: str, headers: Collection[str]) -> str:
    """The text with `__has_include(<...>)` answered in its conditions for CUDA's headers.

    NVRTC has each of the stand-in headers, so both answer yes. Other questions are refused, and all
    are beside a raw string, whose lines are no conditions.
    """
    if 'R"' in text:
        return text

    def answered(line: re.Match[str]) -> str:
        return _HAS_INCLUDE.sub(lambda asked: "1" if asked[1] in headers else asked[0], line[0])

    return _CONDITION.sub(answered, text)


def refused_question(log: str) -> Refused | None:
    """The refusal of a macro or a question of one compiler, in the log of a failed preprocessing.

    None: it failed for another reason.
    """
    if (poisoned := _POISONED.search(log)) is not None:
        shown = f"`{poisoned[3]}`" if poisoned[3] else "a macro of this line"
        reason = f"{shown} means something else for NVRTC than here; leave it out"
        return Refused(Place(poisoned[1], int(poisoned[2])), reason)
    if (question := _QUESTION.search(log)) is None:
        return None
    if not question[3].startswith("__has"):
        reason = f"`{question[3]}` has another value for NVRTC; leave it out"
        return Refused(Place(question[1], int(question[2])), reason)
    reason = f"`{question[3]}` is answered differently by each compiler; ask for __CUDA_ARCH__"
    return Refused(Place(question[1], int(question[2])), reason)


def refused_number(log: Path) -> Refused | None:
    """The refusal of a number of more than 64 bits in a `#if`, in the compiler's warnings.

    g++ takes another number for it than NVRTC does.
    """
    with open(log, errors="replace") as lines:
        for line in lines:
            if large := _TOO_LARGE.match(line):
                reason = "a number of more than 64 bits means something else for NVRTC than here"
                return Refused(Place(large[1], int(large[2])), reason)
    return None


def refused_length(text: str, most: int) -> Refused | None:
    """The refusal of a preprocessed text of more than `most` characters, with its line there."""
    if len(text) <= most:
        return None
    place = Place("kernel.cu", 1)
    markers = list(_MARKED.finditer(text, 0, most))
    if markers:
        last = markers[-1]
        lines = text.count("\n", last.end(), most)
        place = Place(last[2], max(1, int(last[1]) + lines - 1))
    return _too_long(place, most)


def refused_memory(unit: str, most: int) -> Refused:
    """The refusal of a unit that filled the preprocessor's memory, at the unit's first line."""
    first = _FIRST_LINE.search(unit)
    return _too_long(Place(first[1] if first else "kernel.cu", 1), most)


def _too_long(place: Place, most: int) -> Refused:
    return Refused(place, f"macros and includes make more than {most >> 20} Mi characters of it")


def host_macros(definitions: str, include: Path) -> frozenset[str]:
    """The reserved macros in the output of `g++ -E -dD` that are not from the stand-in headers."""
    names, is_host = set(BUILT_IN_MACROS), True
    for line in definitions.splitlines():
        if marker := _MARKER.match(line):
            is_host = not marker[2].startswith(f"{include}/")
        elif is_host and (define := _DEFINE.match(line)) and define[1].startswith("_"):
            names.add(define[1])
    return frozenset(names)
