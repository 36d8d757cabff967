"""The host's part of a preprocessed CUDA text, as a C++ program that records launches.

A kernel's body becomes a call that writes the launch down (host_include/gf_recorder.h), functions
for the device alone lose their bodies, and `kernel<<<grid, block>>>(...)` becomes two calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from greenfast.search.errors import UsageError

_QUALIFIER = re.compile(
    r"__(?:global|device|host|constant|managed|shared|grid_constant)__\b"
    r"|__(?:launch_bounds|cluster_dims|maxnreg|block_size)__\s*(?=\()"
)
_TAKES_VALUES = re.compile(r"__(?:launch_bounds|cluster_dims|maxnreg|block_size)__")
_LITERAL = re.compile(
    r'R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"'
    r"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_TYPE_WORDS = frozenset(
    """const volatile unsigned signed int char short long float double bool void auto struct class
    enum typename wchar_t""".split()  # noqa: SIM905
)
LONGEST_NAME = 400
_LAST_WORD = re.compile(r"[A-Za-z_]\w*\Z")
_LAST_JOINT = re.compile(r"(::|\.|->)\s*\Z")
_MARKER = re.compile(r'# (\d+) "([^"\n]*)".*\Z')  # of a preprocessor
_OPEN, _CLOSE = "([{", ")]}"
# The kernel of cudaLaunchKernel((void*)k, ...), whose type the record needs.
_UNTYPED = re.compile(
    r"(?P<call>\bcudaLaunch(?:Cooperative)?Kernel\s*\(\s*)"
    r"(?:\(\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*\)\s*(?P<bare>&?)"
    r"|reinterpret_cast\s*<\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*>\s*(?=\())"
)
_LAUNCH_BEGIN, _LAUNCH_END = (
    re.compile(r"(?<!operator)<<\s*<(?!<)"),
    re.compile(r">>\s*>"),
)  # nvcc takes both


def host_program(text: str) -> str:
    """The program's text. UsageError where a launch or a kernel is written in an unknown way."""
    text = _UNTYPED.sub(lambda match: match["call"] + (match["bare"] or ""), text)
    return _with_calls(_without_device_code(text))


def _without_device_code(text: str) -> str:
    bare = _blanked(text)
    pieces: list[str] = []
    end = 0
    for edit in sorted(_edits(text, bare), key=lambda edit: (edit.begin, -edit.end)):
        if edit.begin < end:
            continue  # inside of what is gone
        pieces += [text[end : edit.begin], edit.text]
        end = edit.end
    return "".join([*pieces, text[end:]])


@dataclass(frozen=True)
class _Edit:
    begin: int
    end: int
    text: str


def _edits(text: str, bare: str) -> Iterator[_Edit]:
    for match in _QUALIFIER.finditer(bare):
        end = match.end()
        if _TAKES_VALUES.match(match[0]):
            end = _behind(bare, end)
        yield _Edit(match.start(), end, "")
        word = match[0]
        if word == "__global__" or (word == "__device__" and _is_for_device_alone(bare, match)):
            yield from _body_edits(text, bare, match.start(), end, is_kernel=word == "__global__")


def _is_for_device_alone(bare: str, match: re.Match[str]) -> bool:
    begin = max(bare.rfind(each, 0, match.start()) for each in ";{}")
    end = min(at for each in "({;=" if (at := bare.find(each, match.end())) >= 0)
    declaration = bare[begin + 1 : end]
    return not re.search(r"__host__|\bconstexpr\b|__global__", declaration)


def _body_edits(
    text: str, bare: str, qualifier: int, at: int, *, is_kernel: bool
) -> Iterator[_Edit]:
    """What becomes of a function whose qualifier ends at `at`; nothing for a variable."""
    begin = _parameters_at(bare, at)
    if begin is None:
        return
    end = _behind(bare, begin)
    body = _body_at(bare, end)
    if body is None:
        return  # a declaration
    if not is_kernel:
        yield _Edit(_without_initialisers(bare, end, body), _behind(bare, body), ";")
        return
    parameters, names = _named(text[begin + 1 : end - 1])
    yield _Edit(begin, end, f"({', '.join(parameters)})")
    values = "".join(f", {name}" for name in names)
    listed = ", ".join(name.removesuffix("...") for name in names)
    count = _template_parameters(bare, qualifier) or _of_primary(bare, qualifier, begin)
    call = f'{{ ::gf_recorder::launch(__PRETTY_FUNCTION__, {count}, "{listed}"{values}); }}'
    lines = "\n" * bare.count("\n", body, _behind(bare, body))
    yield _Edit(body, _behind(bare, body), call + lines)


def _template_parameters(bare: str, at: int) -> int:
    """How many parameters the template has whose function's qualifier is at `at`; 0 for none."""
    begin = max(bare.rfind(each, 0, at) for each in ";}") + 1
    count = 0
    for match in re.finditer(r"\btemplate\s*(?=<)", bare[begin:at]):
        first = begin + match.end()
        end = _behind_angle(bare, first)
        # A parameter may be a template: its own list is inside the one that is read.
        if re.fullmatch(r"[^;{}]*", bare[end:at]):
            inner = bare[first + 1 : end - 1]
            count += len(_parts(inner)) if inner.strip() else 0
            break
    return count


def _of_primary(bare: str, at: int, parameters: int) -> int:
    """How many parameters the template has that the kernel at `at` specialises; 0 for none.

    `template <> void k(int* x)` specialises a `k` that the text has before.
    """
    head = re.search(r"\btemplate\s*<\s*>[^;{}]*\Z", bare[:at])
    end = _before_blanks(bare, parameters)
    if bare[end - 1] == ">":
        end = _before_blanks(bare, _opening(bare, end, "<>"))
    name = _LAST_WORD.search(bare, max(0, end - LONGEST_NAME), end)
    if head is None or name is None:
        return 0
    declared = re.finditer(rf"\b{name[0]}\s*\(", bare[: head.start()])
    return next((n for each in declared if (n := _template_parameters(bare, each.start()))), 0)


def _parameters_at(bare: str, at: int) -> int | None:
    """The parenthesis of a function's parameters; None where a variable is declared."""
    while at < len(bare):
        character = bare[at]
        if character in ";={}[":
            if not bare[:at].rstrip().endswith("operator"):
                return None
        elif character == "(":
            word = re.search(r"(\w+)\s*\Z", bare[max(0, at - 80) : at])
            is_named = re.search(r"operator\s*\W+\Z|>\s*\Z", bare[max(0, at - 20) : at])
            if word is None and not is_named:
                return None  # an extended lambda
            if word is None or not re.fullmatch(
                r"__\w+__|alignas|decltype|operator|noexcept|explicit", word[1]
            ):
                return at
            at = _behind(bare, at)
            continue
        elif character == "<":
            at = _behind_angle(bare, at)
            continue
        at += 1
    return None


def _body_at(bare: str, at: int) -> int | None:
    """The brace of the body behind a function's parameters; None for a declaration."""
    initialises = False
    while at < len(bare):
        character = bare[at]
        if character in ";=":
            return None
        if character == ":" and bare[at : at + 2] != "::" and bare[at - 1] != ":":
            initialises = True
        if character in "([":
            at = _behind(bare, at)
            continue
        if character == "{":
            is_value = initialises and re.search(r"[\w>]\s*\Z", bare[max(0, at - 40) : at])
            if not is_value:
                return at
            at = _behind(bare, at)
            continue
        at += 1
    return None


def _without_initialisers(bare: str, end: int, body: int) -> int:
    """Where the declaration of a constructor ends: before `: member(value)`."""
    at = re.search(r"(?<!:):(?!:)", bare[end:body])
    return end + at.start() if at else body


def _behind(bare: str, at: int) -> int:
    """The position behind the bracket that closes the one at `at`."""
    depth = 0
    for match in re.compile(r"[()\[\]{}]").finditer(bare, at):
        depth += 1 if match[0] in _OPEN else -1
        if depth == 0:
            return match.end()
    return len(bare)


def _behind_angle(bare: str, at: int) -> int:
    """The position behind the arguments of a template, or behind the `<` of a comparison."""
    depth, begin = 0, at
    while at < len(bare):
        character = bare[at]
        if character in _OPEN:
            at = _behind(bare, at)
            continue
        if character in ";)]}":
            return begin + 1
        depth += (character == "<") - (character == ">")
        at += 1
        if depth == 0:
            return at
    return begin + 1


def _named(text: str) -> tuple[list[str], list[str]]:
    """A kernel's parameters, each with a name, and the names as a call passes them."""
    parameters, names = [], []
    parts = [] if text.strip() in ("", "void") else _parts(text)
    for number, part in enumerate(parts):
        declaration, _, default = _cut(_QUALIFIER.sub("", part), "=")
        inner = re.search(r"\(\s*[*&]+\s*(\w+)\s*\)", declaration)
        found = inner[1] if inner else _name_of(declaration)
        name = found or f"gf_parameter_{number}"
        pack = "..." if "..." in declaration else ""
        if not found:
            declaration += f" {name}"
        parameters.append(declaration + (f" = {default}" if default else ""))
        names.append(name + pack)
    return parameters, names


def _name_of(declaration: str) -> str:
    """The name that a parameter's declaration ends with; empty where it has none."""
    text = re.sub(r"\[[^\]]*\]", "", declaration).rstrip()
    word = re.search(r"([A-Za-z_]\w*)\Z", text)
    if word is None or word[1] in _TYPE_WORDS or text[: word.start()].endswith("::"):
        return ""
    before = re.sub(r"\b(?:const|volatile|struct|class|enum|typename)\b", "", text[: word.start()])
    return word[1] if before.strip() else ""


def _parts(text: str) -> list[str]:
    """At its commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    bare = _blanked(text)
    for at, character in enumerate(bare):
        depth += (character in _OPEN + "<") - (character in _CLOSE + ">")
        if character == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def _cut(text: str, sign: str) -> tuple[str, str, str]:
    depth = 0
    for at, character in enumerate(text):
        depth += (character in _OPEN + "<") - (character in _CLOSE + ">")
        if character == sign and depth == 0:
            return text[:at], sign, text[at + 1 :]
    return text, "", ""


def _with_calls(text: str) -> str:
    """`k<T><<<g, b>>>(x)` as `(gf_recorder::configure(g, b), k<T>(x))`."""
    bare = _blanked(text)
    pieces: list[str] = []
    end = 0
    for match in _LAUNCH_BEGIN.finditer(bare):
        if match.start() < end:
            continue
        begin = _kernel_begin(bare, match.start())
        sizes_end, behind = _launch_end(bare, match.end())
        call = re.compile(r"\s*\(").match(bare, behind)
        if begin is None or call is None or begin < end:
            raise UsageError(
                f"the launch in {_place(text, match.start())} cannot be read",
                code="unreadable_launch",
                mend="write the kernel's name before <<<, and its arguments in parentheses behind "
                ">>>",
            )
        close = _behind(bare, call.end() - 1)
        sizes = text[match.end() : sizes_end]
        kernel = text[begin : match.start()]
        arguments = text[call.end() - 1 : close]
        pieces += [
            text[end:begin],
            f"(::gf_recorder::configure({sizes}), {kernel}{arguments})",
        ]
        end = close
    return "".join([*pieces, text[end:]])


def _place(text: str, at: int) -> str:
    """The file and line of a position, by the preprocessor's last marker before it."""
    lines = text[:at].split("\n")
    for above, line in enumerate(reversed(lines)):
        if marker := _MARKER.match(line):
            return f"{marker[2]}:{int(marker[1]) + above - 1}"
    return f"line {len(lines)}"


def _launch_end(bare: str, at: int) -> tuple[int, int]:
    """Where the `>>>` of a launch begins and ends."""
    while at < len(bare):
        if bare[at] in _OPEN:
            at = _behind(bare, at)
        elif end := _LAUNCH_END.match(bare, at):
            return at, end.end()
        else:
            at += 1
    return at, at


def _kernel_begin(bare: str, at: int) -> int | None:
    """Where the expression before a `<<<` begins: `k`, `ns::k<4>`, `a.table[i]`, `(*pointer)`."""
    while True:
        at = _before_blanks(bare, at)
        last = bare[at - 1 : at]
        if last == ")":
            return _opening(bare, at, "()")
        if last in (">", "]"):
            at = _opening(bare, at, "<(>)" if last == ">" else "[]")
            continue
        word = _LAST_WORD.search(bare, max(0, at - LONGEST_NAME), at)
        if word is None:
            return None
        at = word.start()
        joint = _LAST_JOINT.search(bare, max(0, at - LONGEST_NAME), at)
        if joint is None:
            return at
        at = joint.start()
        if joint[1] == "::" and not re.search(r"[\w>]\Z", bare[max(0, at - 1) : at]):
            return at  # of the global namespace


def _before_blanks(bare: str, at: int) -> int:
    while at > 0 and bare[at - 1].isspace():
        at -= 1
    return at


def _opening(bare: str, at: int, brackets: str) -> int:
    """The position of the bracket that the one before `at` closes."""
    half = len(brackets) // 2
    depth = 0
    while at > 0:
        at -= 1
        depth += (bare[at] in brackets[half:]) - (bare[at] in brackets[:half])
        if depth == 0:
            break
    return at


def _blanked(text: str) -> str:
    """With literals and lines of the preprocessor blank, at the same positions."""
    return re.sub(r"(?m)^[ \t]*#.*$", _blank, _LITERAL.sub(_blank, text))


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])
