"""A candidate's text: the template rendered strictly, its `gf/` headers flattened in, and a map back to its lines.

The *source* is what is digested, stored, compiled by NVRTC and downloaded: it holds the device form of the
primitives and no line markers. The *unit* is the same text before flattening, with `#line` markers: what the
emulator compiles, where the same header names resolve to their emulated form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from greenfast.search.digest import text_digest
from greenfast.search.errors import SpecError
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.template_text import Line
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.space import Resolved

LARGEST_SOURCE_CHARACTERS = 1_000_000
_INCLUDE = re.compile(r'\s*#\s*include\s+"(gf/[\w./-]+)"\s*$')
_SYSTEM_INCLUDE = re.compile(r"\s*#\s*include\s+<[^>]+>\s*$")
_PRAGMA_ONCE = re.compile(r"\s*#\s*pragma\s+once\s*$")
_RAW_ASM = re.compile(r"\b(asm|__asm__|__asm)\b")
_COMMENT = re.compile(r"//.*")
# Marks carry a template line through Jinja: private-use characters that no template holds.
_MARK = re.compile("\ue000(\\d+)\ue001")


@dataclass(frozen=True)
class RenderedSource:
    """A candidate's text in the forms that compilers need. `digest` names it everywhere."""

    text: str
    digest: str
    lines: tuple[Line, ...]  # of `text`, line by line
    unit: str  # before flattening, with #line markers
    entries: tuple[str, ...]
    raw_asm: bool  # the template itself holds inline assembly

    def marked(self) -> str:
        """`text` with `#line` markers, for compiling only: messages then point into the template."""
        return with_markers(self.text.splitlines(), self.lines)


@dataclass(frozen=True)
class RenderFailed:
    """The template refused this candidate."""

    message: str
    line: Line | None


def render(
    kernel: KernelSpec,
    template: TemplateSpec,
    candidate: Candidate,
    point: Resolved,
    include_dirs: tuple[Path, ...],
    probe: str = "",
) -> RenderedSource | RenderFailed:
    """Render `candidate`; `point` gives every name that the template may use, and but for two no other name exists.

    With a `probe` the text also writes that stage's result, to one more argument of every entry.
    """
    try:
        body = _render_marked(template, {**point.values, **_probe_values(kernel, probe)})
    except jinja2.TemplateError as error:
        number = getattr(error, "lineno", None) or _line_of(error)
        return RenderFailed(
            f"{type(error).__name__}: {error.message or error}", template.origin(number or 1)
        )
    except (TypeError, ValueError, ArithmeticError) as error:
        return RenderFailed(
            f"{type(error).__name__}: {error}", template.origin(_line_of(error) or 1)
        )
    if sum(len(text) for text, _ in body) > LARGEST_SOURCE_CHARACTERS:
        return RenderFailed(f"the text is longer than {LARGEST_SOURCE_CHARACTERS} characters", None)
    return assemble(
        body, (launch.entry for launch in template.launched(point.values)), include_dirs
    )


def _probe_values(kernel: KernelSpec, probe: str) -> dict[str, str]:
    """`probe`, and `probe_parameter` for the end of a parameter list; both empty without one."""
    writes = any(one.name == probe and one.writes for one in kernel.probes)
    return {"probe": probe, "probe_parameter": ", float* __restrict__ probe_out" if writes else ""}


def assemble(
    body: Sequence[tuple[str, Line]], entries: Iterable[str], include_dirs: tuple[Path, ...]
) -> RenderedSource:
    """The source of a text whose lines know where they came from; SpecError for a `gf/` header that is not there."""
    flat = tuple(_flatten(body, include_dirs, set()))
    text = "\n".join(one for one, _ in flat) + "\n"
    return RenderedSource(
        text=text,
        digest=text_digest(text),
        lines=tuple(line for _, line in flat),
        unit=with_markers([one for one, _ in body], [line for _, line in body]),
        entries=tuple(dict.fromkeys(entries)),
        raw_asm=any(_RAW_ASM.search(_COMMENT.sub("", one)) for one, _ in body),
    )


def with_markers(texts: Iterable[str], lines: Iterable[Line]) -> str:
    """The text with a `#line` marker wherever the origin does not simply go on by one."""
    result, expected = [], None
    for text, line in zip(texts, lines):
        if line != expected and text.strip():
            result.append(f'#line {line.number} "{line.file}"')
        if text.strip() or line == expected:
            expected = Line(line.file, line.number + 1)
        else:
            expected = None
        result.append(text)
    return "\n".join(result) + "\n"


def _environment() -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    # Only the candidate's own names and `range` (the sandbox's, which is bounded).
    environment.globals = {"range": environment.globals["range"]}
    return environment


@lru_cache(maxsize=64)
def _jinja_template(text: str) -> jinja2.Template:
    """Made once a template: nine tenths of what rendering a candidate would take."""
    environment = _environment()
    return environment.from_string(_mark_lines(environment, text))


def _render_marked(template: TemplateSpec, values: dict[str, object]) -> list[tuple[str, Line]]:
    """Rendered lines with the template line each came from."""
    result: list[tuple[str, Line]] = []
    number = 1
    for rendered in _jinja_template(template.text).render(values).splitlines():
        if found := _MARK.search(rendered):
            number = int(found.group(1))
        result.append((_MARK.sub("", rendered).rstrip(), template.origin(number)))
        number += 1
    return _without_blank_runs(result)


def _mark_lines(environment: jinja2.Environment, text: str) -> str:
    """Put a mark before the first visible character of each line of plain text, where Jinja's own rules see none."""
    plain = jinja2.Environment(keep_trailing_newline=True)
    result, number = [], 1
    for _, kind, value in plain.lexer.tokeniter(text, None):
        if kind != "data":
            result.append(value)
            number += value.count("\n")
            continue
        pieces = value.split("\n")
        for index, piece in enumerate(pieces):
            if piece.strip():
                indent = len(piece) - len(piece.lstrip())
                piece = f"{piece[:indent]}\ue000{number}\ue001{piece[indent:]}"
            result.append(piece)
            if index < len(pieces) - 1:
                result.append("\n")
                number += 1
    return "".join(result)


def _without_blank_runs(lines: list[tuple[str, Line]]) -> list[tuple[str, Line]]:
    """At most one blank line in a row: what a switched-off branch leaves behind is not part of the design."""
    return [one for index, one in enumerate(lines) if one[0] or (index and lines[index - 1][0])]


def _flatten(
    lines: Iterable[tuple[str, Line]], include_dirs: tuple[Path, ...], done: set[str]
) -> Iterable[tuple[str, Line]]:
    """Replace each `#include "gf/..."` by the header's text, once; `#include <...>` stays where it comes first."""
    for text, line in lines:
        found = _INCLUDE.match(text)
        if not found and not _SYSTEM_INCLUDE.match(text):
            yield text, line
            continue
        name = found.group(1) if found else "".join(text.split())
        if name in done:
            continue
        done.add(name)
        if not found:
            yield text, line
            continue
        path = next((folder / name for folder in include_dirs if (folder / name).is_file()), None)
        if path is None or ".." in name:
            raise SpecError(
                f"{line.file}: line {line.number}: the header {name!r} does not exist",
                code="unknown_header",
            )
        yield from _flatten(_header(path, path.stat().st_mtime_ns, name), include_dirs, done)


@lru_cache(maxsize=256)
def _header(path: Path, changed_ns: int, name: str) -> tuple[tuple[str, Line], ...]:
    """A header's lines, read once while its file stays as it is."""
    lines = [
        (one.rstrip(), Line(name, number))
        for number, one in enumerate(path.read_text().splitlines(), 1)
        if not _PRAGMA_ONCE.match(one)
    ]
    return tuple(_without_blank_runs(lines))


def _line_of(error: BaseException) -> int | None:
    """The template line that a rendering error came from, which Jinja puts into the traceback."""
    number, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            number = trace.tb_lineno
        trace = trace.tb_next
    return number
