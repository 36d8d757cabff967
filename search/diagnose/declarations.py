"""The declarations of a preprocessed C++ text, by brackets and words, without types.

A declaration begins where the previous one ended, and ends at its `;` or at the brace that closes
a function's body. That is enough to tell functions, classes and variables apart, to learn the
names that each of them declares and mentions, and to leave whole declarations out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from greenfast.search.targets.emulator.source_tokens import Token

DEVICE_ATTRIBUTES = frozenset(("device", "global", "constant", "shared", "managed"))
_GROUPS_OF_WORDS = frozenset(
    (
        "__attribute__",
        "__attribute",
        "decltype",
        "alignas",
        "noexcept",
        "explicit",
        "throw",
        "typeof",
    )
)
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_CLASSES = ("struct", "class", "union", "enum")
_CONSTANTS = ("const", "constexpr", "constinit")
_CONSTANT_FUNCTIONS = ("constexpr", "consteval")  # a `const` there is its class's or its result's
_SKIPPED = ("marker", "pragma")


@dataclass(frozen=True)
class Declaration:
    """The tokens `first` to `end` (exclusive) of a text."""

    # function | guide (of deduction) | class | enum | variable | alias | directive |
    # using_namespace | other
    kind: str
    first: int
    end: int
    scopes: tuple[str, ...]  # the namespaces and `extern "C"` around it, as they are written
    names: tuple[str, ...]  # that it declares; of a member's definition its class, too
    attributes: frozenset[str] = frozenset()
    is_constant: bool = False  # const or constexpr
    template: tuple[int, int] | None = None  # the tokens of its parameters, without < and >
    parameters: tuple[int, int] | None = None  # of a function, without ( and )
    body: tuple[int, int] | None = None  # what its braces hold
    is_defaulted: bool = False  # `= default`, `= delete`

    @property
    def is_device(self) -> bool:
        return bool(self.attributes & DEVICE_ATTRIBUTES)


class Reader:
    """Reads the declarations between two tokens."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self._closing = _brackets(tokens)

    def text(self, index: int) -> str:
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def closing(self, index: int) -> int:
        """The bracket that closes the one at `index`; the text's end where none does."""
        return self._closing.get(index, len(self.tokens) - 1)

    def read(self, first: int, end: int, scopes: tuple[str, ...] = ()) -> Iterator[Declaration]:
        index = first
        while index < end:
            token = self.tokens[index]
            if token.kind == "marker" or token.text == ";" or token.text == "}":
                index += 1
            elif token.kind == "pragma":
                yield Declaration("directive", index, index + 1, scopes, ())
                index += 1
            elif (opening := self._scope(index)) is not None:
                words = " ".join(self.text(at) for at in range(index, opening))
                close = self.closing(opening)
                yield from self.read(opening + 1, min(close, end), (*scopes, words))
                index = close + 1
            else:
                declaration = self._declaration(index, end, scopes)
                yield declaration
                index = max(declaration.end, index + 1)

    def _scope(self, index: int) -> int | None:
        """The `{` of a namespace or of `extern "C"` that begins at `index`."""
        at = index + 1 if self.text(index) == "inline" else index
        if self.text(at) == "extern" and self._kind(at + 1) == "string":
            return at + 2 if self.text(at + 2) == "{" else None
        if self.text(at) != "namespace":
            return None
        while self.text(at) not in ("{", ";", "=", ""):
            at += 1
        return at if self.text(at) == "{" else None

    def _kind(self, index: int) -> str:
        return self.tokens[index].kind if 0 <= index < len(self.tokens) else ""

    def angle_end(self, index: int, end: int) -> int:
        """The `>` that closes the `<` at `index`; -1 where none does."""
        depth = 0
        while index < end:
            text = self.text(index)
            if text in _PAIRS:
                index = self.closing(index)
            elif text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return index
            elif text == ";":
                return -1
            index += 1
        return -1

    def _declaration(self, first: int, end: int, scopes: tuple[str, ...]) -> Declaration:
        index, template = first, None
        while self.text(index) == "template" and self.text(index + 1) == "<":
            close = self.angle_end(index + 1, end)
            if close < 0:
                break
            template = template or (index + 2, close)
            index = close + 1
        return _Head(self, first, index, end, scopes, template).declaration()


class _Head:
    """Walks over one declaration."""

    def __init__(
        self,
        reader: Reader,
        first: int,
        begin: int,
        end: int,
        scopes: tuple[str, ...],
        template: tuple[int, int] | None,
    ) -> None:
        self.reader, self.first, self.begin, self.end = reader, first, begin, end
        self.scopes, self.template = scopes, template
        self.attributes: set[str] = set()
        self.words: list[str] = []  # names at depth 0, before the first `=`
        self.class_at = -1
        self.parameters: tuple[int, int] | None = None
        self.body: tuple[int, int] | None = None
        self.name_at = -1
        self.names: list[str] = []
        self.has_value = self.in_initialisers = self.is_defaulted = self.is_guide = False

    def declaration(self) -> Declaration:
        index = self.begin
        while index < self.end:
            text = self.reader.text(index)
            if text == ";":
                index += 1
                break
            is_label = text == ":" and index == self.begin + 1 and self.class_at < 0
            if text == "}" or is_label:  # a stray brace, or `public:`; not `enum : int`
                index += 1
                break
            after = self._step(index)
            if after < 0:
                index = -after
                break
            index = after
        return self._finished(min(max(index, self.first + 1), self.end))

    def _step(self, index: int) -> int:
        """The next token to look at; negative: the declaration ends before it."""
        reader, text = self.reader, self.reader.text(index)
        kind = reader._kind(index)
        if kind in _SKIPPED:
            return index + 1
        if kind == "name" and not self.has_value:
            return self._word(index, text)
        if text == "=" and not self.has_value and reader.text(index - 1) != "operator":
            self.has_value = True
            self.is_defaulted = reader.text(index + 1) in ("default", "delete")
            self._declares(index)
            return index + 1
        if text in (",", "[") and not self.has_value and self.parameters is None:
            if text != "[" or reader.text(index + 1) != "[":
                self._declares(index)
            return reader.closing(index) + 1 if text == "[" else index + 1
        if text == "," and self.has_value and self.parameters is None:
            self._declares_another(index + 1)
        if text == "(":
            return self._parenthesis(index)
        if text == "<" and not self.has_value and self.words:
            close = reader.angle_end(index, self.end)
            return close + 1 if close > 0 else index + 1
        if text == ":" and self.parameters is not None:
            self.in_initialisers = True
            return index + 1
        if text == "{":
            return self._brace(index)
        if text == "[":
            return reader.closing(index) + 1
        return index + 1

    def _word(self, index: int, text: str) -> int:
        reader = self.reader
        if text in _GROUPS_OF_WORDS:
            if reader.text(index + 1) != "(":
                return index + 1
            close = reader.closing(index + 1)
            if text.startswith("__attribute"):
                self.attributes.update(
                    token.text.strip("_")
                    for token in reader.tokens[index + 2 : close]
                    if token.kind == "name"
                )
            return close + 1
        if text == "operator" and self.parameters is None:
            self.words.append(text)
            at = index + 1
            if reader.text(at) == "(" and reader.text(at + 1) == ")":
                return at + 2
            while at < self.end and reader.text(at) != "(":
                at += 1
            return at
        if text in _CLASSES and self.class_at < 0 and self.parameters is None:
            self.class_at = index
        self.words.append(text)
        return index + 1

    def _parenthesis(self, index: int) -> int:
        reader, close = self.reader, self.reader.closing(index)
        if self.parameters is None and not self.has_value and self.words:
            inside = reader.tokens[index + 1 : close]
            is_pointer = any(token.text in ("*", "&", "&&") for token in inside)
            if is_pointer and reader.text(close + 1) in ("(", "["):  # its name is inside
                self.names += [token.text for token in inside if token.kind == "name"]
                if all(token.text != "(" for token in inside):  # else a function returns one
                    return reader.closing(close + 1) + 1
            else:
                self.parameters = (index + 1, close)
                self.name_at = index - 1
                self.is_guide = len(self.words) == 1 and reader.text(close + 1) == "->"
        return close + 1

    def _brace(self, index: int) -> int:
        reader, close = self.reader, self.reader.closing(index)
        is_body = self.parameters is not None and not self.has_value
        if is_body and self.in_initialisers:
            before = reader.text(index - 1)
            is_body = not (reader._kind(index - 1) == "name" or before == ">")
        if is_body:
            self.body = (index + 1, close)
            return -(close + 1)
        if self.class_at >= 0 and self.body is None and not self.has_value:
            self.body = (index + 1, close)
            self.names += self._class_names(index)
        elif not self.has_value:
            self._declares(index)
        return close + 1

    def _class_names(self, brace: int) -> list[str]:
        at = self.class_at + 1
        while at < brace:
            text = self.reader.text(at)
            if text in _GROUPS_OF_WORDS:
                at = self.reader.closing(at + 1) + 1
            elif self.reader.text(at + 1) == "::":  # a specialisation outside its namespace
                at += 2
            elif self.reader._kind(at) == "name" and text not in ("class", "struct"):
                return [text]
            elif text == ":":
                return []
            else:
                at += 1
        return []

    def _declares(self, index: int) -> None:
        """The name before `index` is declared."""
        at = index - 1
        while self.reader.text(at) == "]":
            at -= 1
            while at > self.first and self.reader.text(at) != "[":
                at -= 1
            at -= 1
        if self.reader._kind(at) == "name":
            self.names.append(self.reader.text(at))

    def _declares_another(self, index: int) -> None:
        """The name at `index` is declared, if a declarator is there: `, b[2] = ` but not `, b>`."""
        at = index + 1
        while self.reader.text(at) == "[":
            at = self.reader.closing(at) + 1
        if self.reader._kind(index) == "name" and self.reader.text(at) in ("=", "{", ",", ";"):
            self.names.append(self.reader.text(index))

    def _finished(self, end: int) -> Declaration:
        reader = self.reader
        kind, names = self._kind(), list(self.names)
        if kind in ("function", "guide"):
            names = names or self._function_names()
        elif kind in ("variable", "alias", "class", "enum") and not self.has_value:
            self._declares(end - 1)
            names = list(self.names)
        if kind == "alias" and self.words[:1] == ["using"]:
            names = [self.words[1]] if self.has_value else self.words[-1:]
        if kind in ("class", "enum") and not names and self.class_at >= 0:
            names = self.words[1:2]
        if kind == "enum" and self.body is not None:
            names += [
                token.text for token in reader.tokens[slice(*self.body)] if token.kind == "name"
            ]
        constants = _CONSTANT_FUNCTIONS if kind == "function" else _CONSTANTS
        return Declaration(
            kind,
            self.first,
            end,
            self.scopes,
            tuple(dict.fromkeys(names)),
            frozenset(self.attributes),
            any(word in constants for word in self.words),
            self.template,
            self.parameters if kind == "function" else None,
            self.body,
            self.is_defaulted,
        )

    def _kind(self) -> str:
        word = self.words[0] if self.words else ""
        if word == "using" and self.words[1:2] == ["namespace"]:
            return "using_namespace"
        if word in ("using", "typedef") or word == "namespace":
            return "alias"
        if word in ("static_assert", "asm", "__asm__", "friend"):
            return "other"
        if word == "template":  # an explicit instantiation
            return "other"
        if self.class_at >= 0 and self.parameters is None:
            is_enum = self.reader.text(self.class_at) == "enum"
            if self.body is not None or len(self.words) <= 2:
                return "enum" if is_enum else "class"
            return "variable"
        if self.parameters is not None:
            return "guide" if self.is_guide else "function"
        return "variable"

    def _function_names(self) -> list[str]:
        """`Foo<T>::bar` declares bar, and belongs to Foo."""
        if "operator" in self.words:
            assert self.parameters is not None
            return [
                token.text
                for token in self.reader.tokens[slice(*self.parameters)]
                if token.kind == "name"
            ] or ["operator"]
        names, at = [], self.name_at
        while at > self.first:
            if self.reader.text(at) == ">":
                at = self._angle_begin(at) - 1
                continue
            if self.reader._kind(at) != "name":
                break
            names.append(self.reader.text(at))
            if self.reader.text(at - 1) != "::":
                break
            at -= 2
        return names

    def _angle_begin(self, index: int) -> int:
        depth = 0
        while index > self.first:
            text = self.reader.text(index)
            depth += (text == ">") - (text == "<")
            if depth == 0:
                return index
            index -= 1
        return index


def _brackets(tokens: Sequence[Token]) -> dict[int, int]:
    """For each opening bracket the index of the one that closes it."""
    closing: dict[int, int] = {}
    stack: list[tuple[int, str]] = []
    for index, token in enumerate(tokens):
        if token.kind != "punctuator":
            continue
        if token.text in _PAIRS:
            stack.append((index, _PAIRS[token.text]))
        elif token.text in (")", "]", "}"):
            while stack and stack[-1][1] != token.text:
                stack.pop()
            if stack:
                closing[stack.pop()[0]] = index
    return closing
