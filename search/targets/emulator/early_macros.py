"""Macros that would change a header on a GPU and not here.

NVRTC reads the text of each header with the macros that are defined before its `#include`. The
emulator has headers of its own, which such a macro does not reach: with `asm` defined away before
gf/async_copy.cuh, a GPU would copy nothing, and the checks would see every copy. A macro defined
behind the includes means the same to both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from greenfast.search.targets.emulator.source_rewriting import Refused
from greenfast.search.targets.emulator.source_tokens import Place
from greenfast.search.toolchain.includes import STANDARD_HEADERS, SourcePlace, directives

STAND_INS = Path(__file__).resolve().parent / "include"
_KEYWORDS = """
    alignas alignof asm auto bool break case catch char class const const_cast constexpr consteval
    constinit continue decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept nullptr
    operator private protected public register reinterpret_cast requires return short signed sizeof
    static static_assert static_cast struct switch template this thread_local throw true try typedef
    typeid typename union unsigned using virtual void volatile while __asm __asm__ __volatile__
    __inline__ __const__ __restrict__ __attribute__
"""
KEYWORDS = frozenset(_KEYWORDS.split())
_COMPILERS = re.compile(r"__CUDA_ARCH\w*|__CUDACC\w*|__CUDA_(?!NO_)\w*|__NVCC\w*|__cplusplus")
_RESERVED = re.compile(r"_[_A-Z]")
# Include guards, and those that leave operators out.
_HARMLESS = re.compile(r"\w*_(?:H|HPP|CUH|CU|CH)_*|__CUDA_NO_\w+")
_PACK = re.compile(r"pragma[^\n]*\bpack\b|_Pragma")
_PACK_WORDS = ("pack", "push", "pop")  # NVRTC expands macros in the pragma
_NAME = re.compile(r"[A-Za-z_]\w*")
_INCLUDED = re.compile(r'#\s*include\s*[<"]([^<>"]+)[>"]')
# A function, a type or macro where it is declared, and types of vectors such as float4.
_DECLARED = re.compile(
    r"[A-Za-z_]\w*(?=\s*\()|(?<=struct )\w+|(?<=class )\w+|(?<=using )\w+|(?<=define )\w+"
    r"|\b[a-z]+[1-4]\b"
)
OWN = "gf_emulator"  # the folder of the emulator's own files, which CUDA's headers do not have
_HEADER = re.compile(r'[<"]([^<>"]+)[>"]')


def refused_macro(text: str, file: str, include_dirs: Sequence[Path]) -> Refused | None:
    """The first macro of a text called `file` that changes a header after it."""
    macros: dict[str, SourcePlace] = {}
    for directive, operand, place in directives(text, file):
        if directive in ("define", "undef") and (name := _NAME.match(operand)):
            if name[0] in _PACK_WORDS and _PACK.search(text):
                return Refused(
                    Place(place.file, place.number),
                    f"the macro {name[0]} changes `#pragma pack` for NVRTC; give it another name",
                )
            macros.setdefault(name[0], place)
        elif directive == "include" and (header := _HEADER.match(operand)):
            for macro in macros:
                if _is_taken(macro, header[1], include_dirs):
                    return Refused(
                        Place(macros[macro].file, macros[macro].number),
                        f"the macro {macro} changes {header[1]}, which is included after it; "
                        "define it behind the includes, or give it another name",
                    )
    return None


def _is_taken(macro: str, header: str, include_dirs: Sequence[Path]) -> bool:
    """Whether a header uses this name, itself or through its includes."""
    if header.removeprefix("cuda/std/") in STANDARD_HEADERS:  # the host's own, under both names
        return False
    if macro in KEYWORDS or _COMPILERS.fullmatch(macro):
        return True
    if header.startswith("gf/"):
        return macro in _names(tuple(folder / "gf" for folder in include_dirs))
    if _RESERVED.match(macro):  # CUDA's headers call the compiler by names that only they know
        return not _HARMLESS.fullmatch(macro)
    return not macro.isupper() and macro in _names_behind(header)


@lru_cache(maxsize=8)
def _names(folders: tuple[Path, ...]) -> frozenset[str]:
    texts = (path.read_text() for path in _headers(folders))
    return frozenset(name for text in texts for name in _NAME.findall(_without_comments(text)))


@lru_cache(maxsize=64)
def _names_behind(header: str) -> frozenset[str]:
    """The names in a header's stand-in and in what it includes.

    Of the emulator's own files it is what they declare, since CUDA's headers have other parameters:
    a macro `threads` changes cooperative_groups.h, and not cuda_fp16.h.
    """
    names: set[str] = set()
    seen: set[Path] = set()
    todo = [STAND_INS / header]
    while todo:
        path = todo.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        text = _without_comments(path.read_text())
        names.update((_DECLARED if path.parent.name == OWN else _NAME).findall(text))
        for name in _INCLUDED.findall(text):
            todo += [STAND_INS / name, path.parent / name]
    return frozenset(names)


def _headers(folders: Iterable[Path]) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)
