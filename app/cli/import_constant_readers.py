"""Device functions that read constant memory which became a parameter of the kernel.

Each gets it as its first parameter, and so does each function that calls one. Every call passes it
on. First, because a parameter behind others would need a default value where these have one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from greenfast.app.cli.import_file_scope import Statement, statements, without_directives
from greenfast.app.cli.import_source import CONSTANT, CudaText, without_comments
from greenfast.search.errors import UsageError

_TEMPLATE_ARGUMENTS = r"(?:<(?:[^<>;{}()]|\([^()]*\)|<[^<>;{}()]*>)*>\s*)?"
_NESTED = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
_FUNCTION = re.compile(
    rf"(?P<name>\b[A-Za-z_]\w*)\s*{_TEMPLATE_ARGUMENTS}\((?P<parameters>{_NESTED})\)"
    r"\s*(?:noexcept\s*)?(?:->[^(){};]*)?\Z"
)
_MACRO = re.compile(r"(?m)^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)(?P<body>(?:[^\\\n]|\\\n|\\.)*)$")


@dataclass(frozen=True)
class _Function:
    name: str
    parameters: tuple[int, int]
    name_at: int
    statement: Statement

    @property
    def is_kernel(self) -> bool:
        return "__global__" in self.statement.header

    @property
    def has_body(self) -> bool:
        return self.statement.body < self.statement.end


def passed_to_readers(source: CudaText, name: str, parameter: str) -> CudaText:
    """The text whose functions take the constant from their callers, in as many lines.

    `parameter` is how a function declares it. UsageError for a place that no parameter reaches.
    """
    bare = without_comments(source.text)
    code = without_directives(bare)
    every = list(statements(code))
    functions = list(_functions(every))
    _check_other_places(_Mentions(code, source.places, name, parameter), every, functions)
    readers = _readers(_Mentions(code, source.places, name, parameter), bare, functions)
    edits: dict[tuple[int, int], str] = {}
    for each in functions:
        if each.name in readers and not each.is_kernel:
            begin, end = each.parameters
            has_others = code[begin:end].strip() not in ("", "void")
            edits[begin, begin if has_others else end] = parameter + (", " if has_others else "")
    defined = {each.name_at for each in functions}
    for reader in readers:
        for match in re.finditer(_call(reader), bare):
            if match.start() not in defined:
                edits[match.end(), match.end()] = name + ("" if match["is_empty"] else ", ")
    text = source.text
    for (begin, end), words in sorted(edits.items(), reverse=True):
        text = text[:begin] + words + text[end:]
    return replace(source, text=text)


def _call(name: str) -> str:
    """A call up to its opening bracket."""
    return (
        rf"(?<![\w.])(?<!->)\b{re.escape(name)}\b\s*{_TEMPLATE_ARGUMENTS}"
        r"\((?=(?P<is_empty>\s*\))?)"
    )


def _functions(every: list[Statement]) -> Iterator[_Function]:
    """Those that the text defines or declares outside of classes."""
    for each in every:
        if match := _FUNCTION.search(each.header):
            begin, end = match.span("parameters")
            yield _Function(
                match["name"],
                (each.begin + begin, each.begin + end),
                each.begin + match.start("name"),
                each,
            )


@dataclass(frozen=True)
class _Mentions:
    """A constant in a text without comments, literals and directives."""

    code: str
    places: tuple[str, ...]
    name: str
    parameter: str

    def refusal(self, at: int, why: str, mend: str) -> UsageError:
        place = self.places[self.code.count("\n", 0, at)]
        return UsageError(
            f"{place}: {self.name} is constant memory that a host program fills and a launch "
            f"does not, and import cannot put a parameter in its place: {why}",
            code="bad_source",
            mend=mend,
        )

    def is_hidden_in(self, function: _Function) -> bool:
        """Whether a parameter of the function has the constant's name."""
        parameters = self.code[slice(*function.parameters)]
        return re.search(rf"\b{re.escape(self.name)}\b", parameters) is not None


def _readers(mentions: _Mentions, bare: str, functions: list[_Function]) -> frozenset[str]:
    """The functions that read the constant, or call one of these, also by a macro."""
    words, readers = {mentions.name}, set[str]()
    inner = [each for each in functions if each.has_body and not each.is_kernel]
    while True:
        macros = {each["name"] for each in _MACRO.finditer(bare) if _uses(words, each["body"])}
        found = set()
        for each in inner:
            is_hidden = mentions.is_hidden_in(each)
            body = mentions.code[each.statement.body : each.statement.end]
            if not _uses(words - {mentions.name} if is_hidden else words, body):
                continue
            if is_hidden:
                raise mentions.refusal(
                    each.name_at,
                    f"a parameter of {each.name}, which needs it, has the same name",
                    f"rename the parameter {mentions.name} of {each.name}",
                )
            found.add(each.name)
        if found <= readers and macros <= words:
            return frozenset(readers)
        readers |= found
        words |= macros | found


def _uses(words: Collection[str], text: str) -> bool:
    return any(re.search(rf"\b{re.escape(word)}\b", text) for word in words)


def _check_other_places(
    mentions: _Mentions, every: list[Statement], functions: list[_Function]
) -> None:
    """UsageError for a mention of the constant that would still mean the unfilled memory."""
    code, name = mentions.code, mentions.name
    of_functions = {each.statement for each in functions}
    declared = [each.span() for each in CONSTANT.finditer(code) if each["name"] == name]
    mention = rf"(?P<before>::\s*|\bsizeof\b\s*\(?\s*)?(?<![\w.])(?<!->)\b{re.escape(name)}\b"
    for match in re.finditer(mention, code):
        at = match.end() - 1
        if any(begin <= at < end for begin, end in declared):
            continue
        if match["before"]:
            raise mentions.refusal(
                at,
                f"{' '.join(match[0].split())} would not mean the parameter",
                f"write {name} alone, and numbers in place of sizeof",
            )
        inside = next((each for each in every if each.begin <= at < each.end), None)
        is_in_class = inside is not None and inside.body < inside.end
        if inside in of_functions or (inside is not None and _is_of_class(mentions, inside, at)):
            continue  # the parameter, what hides it, or a variable of a class
        raise mentions.refusal(
            at,
            "a function of a class reads it" if is_in_class else "no function reads it here",
            f"pass it there as a parameter: {mentions.parameter}",
        )


def _is_of_class(mentions: _Mentions, inside: Statement, at: int) -> bool:
    """Whether the name is a class's own there: outside of its functions, or its variable."""
    code, body = mentions.code, inside.body
    if body == inside.end:
        return False
    own = [
        code[body : match.start()]
        for match in re.compile(rf"\b{re.escape(mentions.name)}\b").finditer(code, body, inside.end)
        if _depth(code[body : match.start()], "{}") == 0
    ]
    has_variable = any(_depth(before, "()") == 0 for before in own)
    return has_variable or _depth(code[body:at], "{}") == 0


def _depth(text: str, brackets: str) -> int:
    return text.count(brackets[0]) - text.count(brackets[1])
