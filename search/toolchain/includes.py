"""The headers that a candidate may include, and the sentence for one that includes another file.

A compiler that reads any file shows it: in its log, or in the object. The confinement of both
compilers keeps them from that (search/confinement.py). This check only gives the better message,
before anything is compiled. It reads the text as it is, so text that macros put together passes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from greenfast.search.rendering.logical_lines import LogicalLine, ends_in_comment, logical_lines

_STANDARD = """
    algorithm array atomic bit cassert cctype cerrno cfloat chrono cinttypes climits cmath compare
    complex concepts cstdarg cstddef cstdint cstdio cstdlib cstring ctime exception functional
    initializer_list iterator limits memory new numeric optional random ratio span stdexcept tuple
    type_traits typeinfo utility variant
    assert.h ctype.h errno.h float.h inttypes.h limits.h math.h stdarg.h stdbool.h stddef.h stdint.h
    stdio.h stdlib.h string.h time.h
"""
STANDARD_HEADERS = frozenset(_STANDARD.split())
_CUDA_HEADERS = re.compile(
    r"(?:gf|cuda|cub|thrust|nv|cooperative_groups|crt)/[\w./-]+"
    r"|(?:cuda\w*|cuComplex|curand\w*|mma|cooperative_groups|vector_types|vector_functions|device_\w+"
    r"|math_constants|math_functions|sm_\w+|texture_\w+|surface_\w+|channel_descriptor"
    r"|builtin_types|host_defines|host_config|driver_types|library_types|common_functions"
    r"|fatbinary_section)\.(?:h|hpp|cuh)"
)
_ADVICE = "include gf/..., CUDA's headers, or standard headers that devices have, by their names"
_DATA_ADVICE = "write data into the source itself"

PIECES_KEPT, LARGEST_PIECE = 4096, 2**15  # characters: 128 MiB at most
_MARKER = "\n#line "

DIRECTIVE = re.compile(r"\s*(?:#|%:|\?\?=)\s*(\w+)\s*(.*)", re.DOTALL)
_LINE = re.compile(r'(\d+)(?:\s+"([^"]*)")?')
_HEADER = re.compile(r'(?:<([^<>]+)>|"([^"]+)")\s*')
_HAS = re.compile(r"__has_(?:include|include_next|embed)\b\s*(?:\(\s*(<[^<>]*>|\"[^\"]*\"))?")
_ASKS_FOR_ITSELF = re.compile(r"(?:defined\s*\(?|ifn?def)\s*__has_(?:include|include_next|embed)")
# Text may be divided into several literals.
_GAP = r'(?:"\s*")?'
_INCBIN = re.compile(r"\." + _GAP.join("incbin") + r'\b|"[^"]*\.' + _GAP.join("include"), re.I)
_NAMES_A_FILE = r"GCC\s+(?:dependency|pch_preprocess)\b"
_PRAGMA_OF_A_FILE = re.compile(rf'_Pragma\s*\(\s*(?:L|u8?|U)?R?"[^"]*{_NAMES_A_FILE}')
_INCLUDES = ("include", "include_next", "import")
_OPENS, _CLOSES = ("if", "ifdef", "ifndef"), "endif"


@dataclass
class SourcePlace:
    """The file and line of the next line of text, as `#line` markers name them."""

    file: str
    number: int
    conditions: int = 0  # `#if`s around it

    def refusal(self, subject: str, advice: str = _ADVICE) -> str:
        return f"{self.file}({self.number}): error: {subject}; {advice}"


def refused_include(text: str, file: str) -> str:
    """One sentence about the first forbidden include of a text called `file`; empty without one."""
    pieces = _pieces(text)
    if max(map(len, pieces)) <= LARGEST_PIECE and all(map(_is_harmless, pieces)):
        return ""
    return _first_refusal(text, file)


def _pieces(text: str) -> list[str]:
    """The text, divided at its line markers: most pieces recur in a search's other candidates."""
    first, *others = text.split(_MARKER)
    return [first, *(_MARKER + piece for piece in others)]


@lru_cache(maxsize=PIECES_KEPT)
def _is_harmless(piece: str) -> bool:
    """Whether a piece of a text is refused nothing, and is complete in itself.

    A piece under no condition of its own may be refused more than in its text, never less.
    """
    is_complete = 'R"' not in piece and not piece.rstrip(" \t").endswith("\\")
    return is_complete and not ends_in_comment(piece) and not _first_refusal(piece, "")


def _first_refusal(text: str, file: str) -> str:
    for line, place in _placed(text, file):
        if line.fault:
            return f"{place.file}({place.number}): error: {line.fault}"
        if sentence := _refusal(line.text, place):
            return sentence
    return ""


def directives(text: str, file: str) -> Iterator[tuple[str, str, SourcePlace]]:
    """Each directive of a text called `file`: its name, its operand, and its place.

    A fault of the text (logical_lines.py) comes last, as a directive without a name.
    """
    for line, place in _placed(text, file):
        if line.fault:
            yield "", line.fault, replace(place)
        elif directive := DIRECTIVE.match(line.text):
            yield directive[1], directive[2].strip(), replace(place)


def _placed(text: str, file: str) -> Iterator[tuple[LogicalLine, SourcePlace]]:
    """Each line with its place by the text's `#line` markers. All share one place, which moves."""
    place = SourcePlace(file, 1)
    before = 1
    for line in logical_lines(text):
        place.number += line.number - before
        before = line.number
        directive = DIRECTIVE.match(line.text)
        if directive and directive[1] == "line" and (marker := _LINE.match(directive[2].strip())):
            place.number, place.file = int(marker[1]) - 1, marker[2] or place.file
            # The marker's own lines do not count: the line behind it has its number.
            before += line.count - 1
        yield line, place


def _refusal(line: str, place: SourcePlace) -> str:
    if not any(each in line for each in ("#", "%:", "??=", ".", "__has_", "_Pragma")):
        return ""
    if _INCBIN.search(line):
        return place.refusal("assembly must not include a file (.incbin)", _DATA_ADVICE)
    directive = DIRECTIVE.match(line)
    name, operand = (directive[1], directive[2].strip()) if directive else ("", "")
    if name in _OPENS:
        place.conditions += 1
    elif name == _CLOSES:
        place.conditions -= 1
    elif name == "embed":
        return place.refusal("#embed is not allowed", _DATA_ADVICE)
    elif _PRAGMA_OF_A_FILE.search(line) or (name == "pragma" and re.match(_NAMES_A_FILE, operand)):
        return place.refusal("a pragma must not name a file", "remove it")
    elif name in _INCLUDES:
        return _include_refusal(operand, place)
    return _question_refusal(line, place)


def _include_refusal(operand: str, place: SourcePlace) -> str:
    header = _HEADER.fullmatch(operand)
    if header is None:
        return place.refusal("an include must name its header, not a macro")
    name = header[1] or header[2]
    # A host's header under a condition may be meant for another compiler: this one decides.
    if is_allowed(name) or (place.conditions > 0 and re.fullmatch(r"[\w.]*\w", name)):
        return ""
    return place.refusal(f"the include of {name!r} is not allowed")


def _question_refusal(line: str, place: SourcePlace) -> str:
    for question in _HAS.finditer(_ASKS_FOR_ITSELF.sub("", line)):
        if question[1] is None:
            return place.refusal("__has_include must name its header, not a macro")
        if not is_allowed(question[1][1:-1].strip()):
            return place.refusal(f"__has_include({question[1]}) is not allowed")
    return ""


def is_allowed(header: str) -> bool:
    """Whether a candidate may include the header of this name."""
    if ".." in header.split("/") or "//" in header or "/." in header:
        return False
    return header in STANDARD_HEADERS or _CUDA_HEADERS.fullmatch(header) is not None
