"""A candidate's text: the rendered template, with its `gf/` headers, and the origin of each line.

The *source* is digested, stored, compiled by NVRTC and downloaded. It contains the headers in their
device form without their notes (`//!`), and no line markers. The *unit* is the text before the
headers are inserted, with `#line` markers. The emulator compiles it with its own form of the
headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from greenfast.search.digest import text_digest
from greenfast.search.errors import SpecError
from greenfast.search.kernels.author_files import read_author_file
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.template_text import Line
from greenfast.search.rendering.children import TextFailed, renderers
from greenfast.search.rendering.logical_lines import logical_lines
from greenfast.search.space.space import Resolved

_INCLUDE = re.compile(r'\s*#\s*include\s*(?:["<](gf/[\w./-]+)[">]|(<[^>]+>))\s*$')
_LOOKS = re.compile(r"[^#]*#\s*include\b")
_GOES_ON = re.compile(r'/\*|\\|R"')
_CONDITION = re.compile(r"\s*(?:#|%:)\s*(if|ifdef|ifndef|endif)\b")
_PRAGMA_ONCE = re.compile(r"\s*#\s*pragma\s+once\s*$")
_NOTE = re.compile(r"\s*//!")
_RAW_ASM = re.compile(r"\b(asm|__asm__|__asm)\b")
_COMMENT = re.compile(r"//.*")


@dataclass(frozen=True)
class RenderedSource:
    """A candidate's text in the forms that compilers need; `digest` identifies it."""

    text: str
    digest: str
    lines: tuple[Line, ...]  # the origin of each line of `text`
    unit: str  # before the headers are inserted, with #line markers
    entries: tuple[str, ...]
    raw_asm: bool  # the template itself contains inline assembly
    arch_specific: bool = False  # compiled for `sm_90a` instead of `sm_90`

    def marked(self) -> str:
        """`text` with `#line` markers, so that compiler messages name the template's lines."""
        # Not splitlines(), which also ends lines at a form feed and at characters of Unicode.
        return with_markers(self.text.removesuffix("\n").split("\n"), self.lines)


@dataclass(frozen=True)
class RenderFailed:
    """The template refused this candidate."""

    message: str
    line: Line | None


def render(
    kernel: KernelSpec,
    template: TemplateSpec,
    point: Resolved,
    include_dirs: tuple[Path, ...],
    probe: str = "",
) -> RenderedSource | RenderFailed:
    """Render `template` with the values of `point`.

    The template may also use `probe` and `probe_parameter`. With a `probe` the text also writes
    that stage's result, to an additional argument of every entry. Raises SpecError for a header
    that does not exist.
    """
    values = {**point.values, **_probe_values(kernel, probe)}
    rendered = renderers().rendered(template.text, values)
    if isinstance(rendered, TextFailed):
        return RenderFailed(rendered.message, template.origin(rendered.line or 1))
    texts, numbers = rendered
    body = list(zip(texts, map(template.origin, numbers), strict=True))
    if not body:
        return RenderFailed("the template renders to no text for these values", template.origin(1))
    launches = template.launched(point.values)
    if not launches:
        sentence = "the template has no launch for these values: each `when` is false"
        return RenderFailed(sentence, template.origin(1))
    entries = (launch.entry for launch in launches)
    return assemble(body, entries, include_dirs, arch_specific=template.arch_specific)


def _probe_values(kernel: KernelSpec, probe: str) -> dict[str, str]:
    """`probe`, and `probe_parameter` for the end of a parameter list; both empty without one."""
    writes = any(each.name == probe and each.writes for each in kernel.probes)
    return {"probe": probe, "probe_parameter": ", float* __restrict__ probe_out" if writes else ""}


def assemble(
    body: Sequence[tuple[str, Line]],
    entries: Iterable[str],
    include_dirs: tuple[Path, ...],
    *,
    arch_specific: bool = False,
) -> RenderedSource:
    """The source of a text with the origin of each line. Without `include_dirs` all includes stay.

    Raises SpecError for a `gf/` header that does not exist.
    """
    texts, lines = [text for text, _ in body], [line for _, line in body]
    flat = _Flat(include_dirs)
    flat.add(_Text(texts, lines, _includes(texts)))
    text = "\n".join(flat.texts) + "\n"
    return RenderedSource(
        text=text,
        digest=text_digest(text),
        lines=tuple(flat.lines),
        unit=with_markers(texts, lines),
        entries=tuple(dict.fromkeys(entries)),
        raw_asm=any("asm" in text and _RAW_ASM.search(_COMMENT.sub("", text)) for text in texts),
        arch_specific=arch_specific,
    )


def with_markers(texts: Iterable[str], lines: Iterable[Line]) -> str:
    """The text, with a `#line` marker wherever the origin does not continue by one line."""
    result: list[str] = []
    file, number = "", 0  # of the line that would continue the one before; 0: none would
    for text, line in zip(texts, lines, strict=True):
        continues = line.number == number and line.file == file
        is_blank = not text or text.isspace()
        if not continues and not is_blank:
            result.append(f'#line {line.number} "{line.file}"')
        file, number = line.file, 0 if is_blank and not continues else line.number + 1
        result.append(text)
    return "\n".join(result) + "\n"


def _without_blank_runs(lines: list[tuple[str, Line]]) -> list[tuple[str, Line]]:
    """The lines with at most one blank line in a row; inactive branches leave several."""
    return [line for index, line in enumerate(lines) if line[0] or (index and lines[index - 1][0])]


@dataclass(frozen=True)
class _Include:
    name: str  # `gf/...`, or `<...>`
    conditions: int  # `#if`s around it

    @property
    def is_ours(self) -> bool:
        return not self.name.startswith("<")


@dataclass(frozen=True)
class _Text:
    texts: Sequence[str]
    lines: Sequence[Line]  # the origin of each
    includes: Mapping[int, _Include]  # by their lines from 1, in order


class _Flat:
    """A text in which headers stand in place of their includes.

    The first `#include "gf/..."` of each header becomes its text, and the others are dropped. Of
    equal `#include <...>` lines only the first is kept. An include that may have been left out,
    since it is under a condition, replaces no other.
    """

    def __init__(self, include_dirs: tuple[Path, ...]) -> None:
        self.texts: list[str] = []
        self.lines: list[Line] = []
        self._include_dirs = include_dirs
        self._done: dict[str, int] = {}  # the conditions around each include before

    def add(self, part: _Text, outside: int = 0) -> None:
        """Add a text that is under `outside` conditions.

        Raises SpecError for a header that does not exist, or may be left out and comes again.
        """
        begin = 0
        for number, include in part.includes.items():
            line, conditions = part.lines[number - 1], outside + include.conditions
            is_done = self._is_done(include, conditions, line)
            if not is_done and not (include.is_ours and self._include_dirs):
                continue
            self._copy(part, begin, number - 1)
            begin = number
            if not is_done:
                self.add(self._header(include.name, line), conditions)
        self._copy(part, begin, len(part.texts))

    def _is_done(self, include: _Include, conditions: int, line: Line) -> bool:
        """Whether it was included before, in every case."""
        before = self._done.get(include.name)
        if before is None:
            self._done[include.name] = conditions
        elif before and include.is_ours:
            raise SpecError(
                f"{line.file}: line {line.number}: the header {include.name!r} is included twice, "
                "and under a condition before; include it once, outside of conditions",
                code="conditional_header",
            )
        return before == 0

    def _header(self, name: str, line: Line) -> _Text:
        paths = (folder / name for folder in self._include_dirs)
        path = next((path for path in paths if path.is_file()), None)
        if path is None or ".." in name:
            raise SpecError(
                f"{line.file}:{line.number}: the header {name!r} does not exist",
                code="unknown_header",
                mend=_headers_like(name, self._include_dirs),
            )
        return _header(path, path.stat().st_mtime_ns, name)

    def _copy(self, part: _Text, begin: int, end: int) -> None:
        self.texts.extend(part.texts[begin:end])
        self.lines.extend(part.lines[begin:end])


def _headers_like(name: str, folders: Iterable[Path]) -> str:
    """The header that may be meant, and all that there are."""
    known = _headers_in(folders)
    close = get_close_matches(name, known, n=1, cutoff=0.7)
    return (f"did you mean {close[0]}? " if close else "") + "known: " + ", ".join(known)


def _headers_in(folders: Iterable[Path]) -> list[str]:
    """The headers that a template may include, by name."""
    names = {f"gf/{path.name}" for folder in folders for path in (folder / "gf").glob("*.cuh")}
    return sorted(names)


def _includes(texts: Sequence[str]) -> dict[int, _Include]:
    """The includes of a text that stand on a line of their own, by their lines.

    In a comment, a string or a macro such a line is no include for a compiler, either.
    """
    last = max((at for at, text in enumerate(texts) if _LOOKS.match(text)), default=-1)
    if last < 0:
        return {}
    # What comes behind the last one changes nothing, if no comment or string begins on its line.
    end = len(texts) if _GOES_ON.search(texts[last]) else last + 1
    found: dict[int, _Include] = {}
    conditions = 0
    for line in logical_lines("\n".join(texts[:end])):
        if condition := _CONDITION.match(line.text):
            conditions += -1 if condition[1] == "endif" else 1
        elif line.count == 1 and (include := _INCLUDE.match(line.text)):
            found[line.number] = _Include(include[1] or "".join(include[2].split()), conditions)
    return found


def _notes(texts: Sequence[str]) -> frozenset[int]:
    """The lines of a header that are notes for authors (`//! ...`), which no source needs.

    In a string, a longer comment or a macro such a line is none, and stays.
    """
    if not any(map(_NOTE.match, texts)):
        return frozenset()
    lines = logical_lines("\n".join(texts))
    alone = (line.number for line in lines if line.count == 1 and not line.fault)
    return frozenset(number for number in alone if _NOTE.match(texts[number - 1]))


@lru_cache(maxsize=256)
def _header(path: Path, changed_ns: int, name: str) -> _Text:
    """A header's text without its notes, cached until its file changes."""
    # As compilers read it: not splitlines(), which would make code of a comment's form feed.
    read = read_author_file(path, name).removesuffix("\n").split("\n")
    notes = _notes(read)
    kept = [
        (text.rstrip(), Line(name, number))
        for number, text in enumerate(read, 1)
        if number not in notes and not _PRAGMA_ONCE.match(text)
    ]
    kept = _without_blank_runs(kept)
    texts = [text for text, _ in kept]
    return _Text(texts, [line for _, line in kept], _includes(texts))
