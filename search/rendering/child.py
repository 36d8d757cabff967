"""The rendering child: Jinja under limits of time and memory, one request at a time.

Jinja's sandbox keeps a template from Python's inside, and bounds its ranges. It does not bound
loops inside loops, or a text that doubles. A timer of processor time ends them with the line where
they are, and the parent ends this process when the timer cannot. Once it has loaded Jinja, the
process opens no file.
"""

from __future__ import annotations

import operator
import re
import resource
import signal
import sys
import types
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import jinja2
import jinja2.debug  # imported now, since Jinja imports it only at an error
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from greenfast.search.children import lower, serve_requests
from greenfast.search.confinement import confine
from greenfast.search.rendering import LARGEST_SOURCE_CHARACTERS

RENDER_S = 3.0  # processor time of a text; the longest shipped template takes 5 ms
MEMORY_BYTES = 1 << 30
LARGEST_NUMBER_BITS = 1 << 12
# Marks carry line numbers through Jinja. They use private-use characters, which no template has.
_MARK = re.compile("\ue000(\\d+)\ue001")
# A compiler stops reading at NUL, and a lone surrogate is no text. Jinja's strings make both.
_NO_SOURCE = re.compile("[\0\ud800-\udfff]")
# Width and precision of a format with %.
_WIDTH = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(\*|\d+)?(?:\.(\*|\d+))?")
_ADVICE = "bound the loops and repetitions of the template"


class _TooLong(Exception):
    """The timer of processor time has ended the rendering."""


def render_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Render {"text", "values"}.

    Returns {"lines", "numbers"}: the text's lines, and for each the number of the template's line
    that it comes from; or {"error", "line"}: a sentence, and that number where it is known.
    """
    try:
        text = _within_time(lambda: _jinja_template(request["text"]).render(request["values"]))
        lines, numbers = _lines(text)
        if sum(map(len, lines)) > LARGEST_SOURCE_CHARACTERS:
            return _failed(f"the text is longer than {LARGEST_SOURCE_CHARACTERS} characters", None)
        for line, origin in zip(lines, numbers, strict=True):
            if (character := _NO_SOURCE.search(line)) is not None:
                return _failed(f"the text holds {character[0]!r}, which no source can", origin)
        return {"lines": lines, "numbers": numbers}
    except jinja2.TemplateError as error:
        number = getattr(error, "lineno", None) or _line_of(error)
        return _failed(f"{type(error).__name__}: {error.message or error}", number)
    except _TooLong as error:
        seconds = f"{RENDER_S:g} s of processor time"
        return _failed(f"rendering takes more than {seconds}; {_ADVICE}", _line_of(error))
    except MemoryError as error:
        size = f"{MEMORY_BYTES >> 20} MiB"
        return _failed(f"rendering takes more than {size}; {_ADVICE}", _line_of(error))
    except OSError as error:  # its words would name this machine's folders
        return _failed(
            "a filter or method here loads a module, which no template may", _line_of(error)
        )
    except Exception as error:  # any other error of the author's code
        return _failed(f"{type(error).__name__}: {error}", _line_of(error))


def _failed(message: str, line: int | None) -> dict[str, Any]:
    return {"error": message[:2000], "line": line}


def _lines(marked: str) -> tuple[list[str], list[int]]:
    """The lines without their marks and without blank lines in a row, and their origins."""
    lines: list[str] = []
    numbers: list[int] = []
    number, was_blank = 1, True
    # Not splitlines(), as in RenderedSource.marked.
    for rendered in marked.removesuffix("\n").split("\n"):
        if mark := _MARK.search(rendered):
            number = int(mark.group(1))
            text = _MARK.sub("", rendered).rstrip()
        else:
            text = rendered.rstrip()
        if text or not was_blank:
            lines.append(text)
            numbers.append(number)
        was_blank = not text
        number += 1
    return lines, numbers


def _within_time(work: Callable[[], str]) -> str:
    """The result of `work`; _TooLong in its place when it takes longer than RENDER_S."""

    def stop(_: int, __: types.FrameType | None) -> None:
        raise _TooLong

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, RENDER_S, 0.1)  # again: a template's code may catch one
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


class _Bounded(ImmutableSandboxedEnvironment):
    """Bounds the operators whose result may be much larger than their operands.

    Jinja computes intercepted operators when it renders, so none of them is folded before.
    """

    intercepted_binops = frozenset(("**", "*", "%"))

    def call_binop(
        self, context: jinja2.runtime.Context, operation: str, left: Any, right: Any
    ) -> Any:
        if operation == "**":
            return _power(left, right)
        if operation == "*":
            return _product(left, right)
        if isinstance(left, str) and any(map(_is_wide, _WIDTH.finditer(left))):
            raise ValueError("a format with % has a width of at most 9999 characters")
        return operator.mod(left, right)


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int):
        _check_bits(base.bit_length() * exponent)
    return operator.pow(base, exponent)


def _product(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    elif not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
        sequence, times = (right, left) if isinstance(left, int) else (left, right)
        if hasattr(sequence, "__len__") and isinstance(times, int):
            length = len(sequence) * times
            if length > LARGEST_SOURCE_CHARACTERS:
                raise ValueError(
                    f"a repetition of {length} elements is longer than "
                    f"{LARGEST_SOURCE_CHARACTERS} characters"
                )
    return operator.mul(left, right)


def _is_wide(width: re.Match[str]) -> bool:
    return any(part is not None and (part == "*" or len(part) > 4) for part in width.groups())


def _check_bits(bits: int) -> None:
    if bits > LARGEST_NUMBER_BITS:
        raise OverflowError(f"a number of {bits} bits; {LARGEST_NUMBER_BITS} are allowed")


def _environment() -> jinja2.Environment:
    environment = _Bounded(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    # Nothing but `range` (the sandbox's, which is bounded) beside the candidate's own names.
    environment.globals = {"range": environment.globals["range"]}
    # A point has one text; and these two load modules, which a confined child cannot.
    for name in ("random", "pprint", "wordwrap"):
        del environment.filters[name]
    return environment


@lru_cache(maxsize=64)
def _jinja_template(text: str) -> jinja2.Template:
    """Compiled once for each template: this takes nine times as long as rendering."""
    return _environment().from_string(_mark_lines(text))


def _mark_lines(text: str) -> str:
    """Mark each line of plain text, before its first visible character.

    There a mark does not change how Jinja trims white space.
    """
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
                result.append(f"{piece[:indent]}\ue000{number}\ue001{piece[indent:]}")
            else:
                result.append(piece)
            if index < len(pieces) - 1:
                result.append("\n")
                number += 1
    return "".join(result)


def _line_of(error: BaseException) -> int | None:
    """The template's line that raised an error, from the traceback: rendered, or being parsed."""
    number, trace = None, error.__traceback__
    while trace is not None:
        parser = trace.tb_frame.f_locals.get("self")
        if trace.tb_frame.f_code.co_filename == "<template>":
            number = trace.tb_lineno
        elif isinstance(parser, jinja2.parser.Parser):
            number = parser.stream.current.lineno
        trace = trace.tb_next
    return number


def _prepare() -> None:
    """Load what Jinja loads late, and give up all rights to files."""
    for text in ("{{ missing }}", "{% if %}", "{{ (1, 'é')|join }}", "{{ '<b>'|striptags }}"):
        render_request({"text": text, "values": {}})
    lower(resource.RLIMIT_AS, MEMORY_BYTES)
    confine()


if __name__ == "__main__":
    _prepare()
    serve_requests(render_request, int(sys.argv[1]), int(sys.argv[2]))
