"""The device code that some kernels of a CUDA file need, out of its preprocessed text.

A declaration is kept when a kept one mentions a name that it declares. Functions of the host,
their variables and the host's members of a class are left out, so that nothing of the host's
libraries has to be known.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from greenfast.search.diagnose.declarations import Declaration, Reader
from greenfast.search.errors import UsageError
from greenfast.search.kernels.template_text import Line
from greenfast.search.targets.emulator.source_text import HEADER_LINE, PROGRAMS
from greenfast.search.targets.emulator.source_tokens import PreprocessedText
from greenfast.search.targets.emulator.word_set import word_set
from greenfast.search.toolchain.includes import STANDARD_HEADERS

# Declares names that only gf/wgmma.cuh uses. The second is its name in a preprocessed text.
_OF_OUR_HEADERS = ("GF_WGMMA_SHAPE", "gf_emulator_wgmma_macro")
_PACK = re.compile(r"#pragma\s+pack\b")
_NAMESPACE = re.compile(r"(?:inline )?namespace(?: |$)")
_LIBRARIES = ("std", "nvcuda", "cooperative_groups", "cuda", "cub")
# The standard headers that device code uses and that bring no C library. The emulator's prelude has
# what else it may need.
DEVICE_STANDARD = word_set("""
    algorithm array bit cfloat climits float.h initializer_list iterator limits limits.h numeric
    tuple type_traits utility
""")
CONSTANTS = word_set("cfloat climits float.h limits.h")  # macros, which no token of `std` shows


_Edit = tuple[int, int, str]  # a range of the text, and what replaces it


@dataclass(frozen=True)
class Kernel:
    """A `__global__` function of a text."""

    name: str  # with its namespaces: ns::foo
    declaration: Declaration
    where: Line
    parameters: tuple[str, ...]  # as they are written, without default values
    defaults: tuple[str, ...]  # empty: none
    template_parameters: tuple[str, ...]  # as they are written
    grid_constants: frozenset[int] = frozenset()  # the numbers of parameters that are constant

    @property
    def is_template(self) -> bool:
        return self.declaration.template is not None

    @property
    def signature(self) -> str:
        template = f"template <{', '.join(self.template_parameters)}> " if self.is_template else ""
        return f"{template}{self.name}({', '.join(self.parameters)})"


class DeviceCode:
    """A preprocessed text, read once."""

    def __init__(self, preprocessed: str) -> None:
        self.source = PreprocessedText(preprocessed)
        self.reader = Reader(self.source.tokens)
        self.declarations = tuple(self.reader.read(0, len(self.source.tokens)))

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels that have a body, in the order of the text."""
        return tuple(
            self._kernel(declaration)
            for declaration in self.declarations
            if "global" in declaration.attributes
            and declaration.kind == "function"
            and declaration.body is not None
            and declaration.names
        )

    def _kernel(self, declaration: Declaration) -> Kernel:
        scopes = [scope for scope in declaration.scopes if _NAMESPACE.match(scope)]
        spaces = [name for scope in scopes if (name := scope.rpartition("namespace")[2].strip())]
        place = self.source.place(self.source.tokens[declaration.first].start)
        assert declaration.parameters is not None
        parts = list(self._parts(*declaration.parameters))
        parameters = [self._written(part) for part in parts]
        if parameters == [("void", "")]:
            parameters = []
        template = declaration.template
        return Kernel(
            "::".join((*spaces, *reversed(declaration.names))),
            declaration,
            Line(place.file, place.line),
            tuple(text for text, _ in parameters),
            tuple(default for _, default in parameters),
            tuple("".join(self._written(part, " = ")) for part in self._parts(*template))
            if template
            else (),
            frozenset(
                number
                for number, part in enumerate(parts)
                if any(token.text == "grid_constant" for token in self.source.tokens[slice(*part)])
            ),
        )

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """Types that are other names of simple ones: `typedef float floatX;`."""
        aliases = {}
        for each in self.declarations:
            if each.kind != "alias" or each.template or each.body or len(each.names) != 1:
                continue
            tokens = [
                token.text
                for token in self.source.tokens[each.first : each.end]
                if token.kind != "marker"
            ]
            if tokens[0] == "typedef":
                aliases[each.names[0]] = " ".join(tokens[1:-2])
            elif tokens[0] == "using" and "=" in tokens:
                aliases[each.names[0]] = " ".join(tokens[tokens.index("=") + 1 : -1])
        return aliases

    def unaliased(self, text: str) -> str:
        """A parameter's text with the types that its aliases stand for."""
        for _ in range(8):
            longer = re.sub(r"\w+", lambda word: self.aliases.get(word[0], word[0]), text)
            if longer == text:
                break
            text = longer
        return text

    def _parts(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of a list with commas, as tokens."""
        begin = index = first
        while index < end:
            text = self.reader.text(index)
            if text in ("(", "[", "{"):
                index = self.reader.closing(index)
            elif text == "<" and (close := self.reader.angle_end(index, end)) > 0:
                index = close
            elif text == ",":
                yield begin, index
                begin = index + 1
            index += 1
        if begin < end:
            yield begin, end

    def _written(self, part: tuple[int, int], joint: str = "") -> tuple[str, str]:
        """The text of a parameter and of its default value."""
        words: list[str] = []
        default: list[str] | None = None
        index = part[0]
        while index < part[1]:
            token = self.source.tokens[index]
            if token.text == "__attribute__":
                index = self.reader.closing(index + 1) + 1
                continue
            if token.text == "=" and default is None:
                default = []
            elif token.kind not in ("marker", "pragma"):
                (words if default is None else default).append(token.text)
            index += 1
        return spelled(words), (joint + spelled(default) if default else "")

    def mentions(self, declaration: Declaration) -> frozenset[str]:
        """The names in the part of a declaration that would be kept."""
        dropped = self._host_members(declaration)
        names = set()
        index = declaration.first
        while index < declaration.end:
            after = next((end for first, end in dropped if first == index), None)
            if after is not None:
                index = after
                continue
            token = self.source.tokens[index]
            if token.kind == "name":
                names.add(token.text)
            index += 1
        return frozenset(names)

    def _host_members(self, declaration: Declaration) -> list[tuple[int, int]]:
        """The member functions that device code cannot call, as ranges of tokens.

        One without a body that the rest of the class names is for `sizeof` and `decltype`.
        """
        if declaration.kind not in ("class", "alias") or declaration.body is None:
            return []
        of_host: list[Declaration] = []
        dropped: list[tuple[int, int]] = []
        for member in self.reader.read(*declaration.body):
            if member.kind == "function":
                usable = member.is_device or member.is_constant or member.is_defaulted
                if not usable:
                    of_host.append(member)
            elif member.kind == "class":
                dropped += self._host_members(member)
        tokens, (first, end) = self.source.tokens, declaration.body
        inside = {at for each in of_host for at in range(each.first, each.end)}
        named = {tokens[at].text for at in range(first, end) if at not in inside}
        named -= set(declaration.names)  # of its constructors
        unevaluated = [each for each in of_host if each.body is None and named & set(each.names)]
        return dropped + [(it.first, it.end) for it in of_host if it not in unevaluated]

    def needed(
        self, kernels: Iterable[Kernel], names: Collection[str] = ()
    ) -> tuple[Declaration, ...]:
        """The declarations that `kernels` and `names` need, in the order of the text."""
        usable = [each for each in self.declarations if _is_usable(each)]
        by_name: dict[str, list[Declaration]] = {}
        for declaration in usable:
            for name in declaration.names:
                by_name.setdefault(name, []).append(declaration)
        kept: set[int] = set()
        pending = [kernel.declaration for kernel in kernels]
        known = set(names)
        pending += [each for name in names for each in by_name.get(name, ())]
        while pending:
            declaration = pending.pop()
            if declaration.first in kept:
                continue
            kept.add(declaration.first)
            for name in self.mentions(declaration) - known:
                known.add(name)
                pending += by_name.get(name, ())
        always = ("directive", "using_namespace")
        return tuple(
            each
            for each in self.declarations
            if each.first in kept
            or (each.kind in always and self._is_kept_always(each))
            or self.source.tokens[each.first].text in _OF_OUR_HEADERS
        )

    def _is_kept_always(self, declaration: Declaration) -> bool:
        if declaration.kind == "using_namespace":
            return True
        text = self.source.tokens[declaration.first].text
        return _PACK.match(text) is not None

    @property
    def headers(self) -> tuple[str, ...]:
        """The stand-in headers that the text includes."""
        pragmas = (token.text for token in self.source.tokens if token.kind == "pragma")
        lines = filter(None, map(HEADER_LINE.match, pragmas))
        return tuple(dict.fromkeys(line[1] for line in lines if line[1] != PROGRAMS))

    def lines(
        self, kept: Sequence[Declaration], data: Mapping[str, str] = MappingProxyType({})
    ) -> Iterator[tuple[str, Line]]:
        """The text of the kept declarations, each line with its origin.

        `data` are initial values of device variables, by name. Raises UsageError for another name.
        """
        values = self._initialisers(data)
        uses_standard = any("std" in self.mentions(each) for each in kept)
        for header in ("climits", "cmath"):  # nvcc's own headers include them
            yield f"#include <{header}>", Line("includes", 1)
        for header in self.headers:
            is_brought = header in CONSTANTS or (uses_standard and header in DEVICE_STANDARD)
            if header in STANDARD_HEADERS and not is_brought:
                continue
            yield f"#include <{header}>", Line("includes", 1)
        open_scopes: tuple[str, ...] = ()
        spaces = {name for each in self.declarations for name in _namespaces(each)}
        for declaration in kept:
            place = self.source.place(self.source.tokens[declaration.first].start)
            origin = Line(place.file, place.line)
            if declaration.scopes != open_scopes:
                yield from ((("}", origin)) for _ in open_scopes)
                yield from ((f"{scope} {{", origin) for scope in declaration.scopes)
                open_scopes = declaration.scopes
            if declaration.kind == "using_namespace":
                name = self._used_namespace(declaration)
                if (
                    name == "std"
                ):  # its copies are not watched; device code has min, max, ... without
                    continue
                if name.split("::")[0] not in _LIBRARIES and name in spaces:
                    yield f"namespace {name} {{}}", origin
                elif name.split("::")[0] not in _LIBRARIES and not self._is_alias(name):
                    continue
            yield from self._declaration_lines(declaration, values.get(declaration.first, ()))
        yield from (("}", Line("includes", 1)) for _ in open_scopes)

    def _is_alias(self, name: str) -> bool:
        return any(each.kind == "alias" and name in each.names for each in self.declarations)

    def _used_namespace(self, declaration: Declaration) -> str:
        tokens = self.source.tokens[declaration.first + 2 : declaration.end]
        return "".join(token.text for token in tokens if token.text != ";")

    def _initialisers(self, data: Mapping[str, str]) -> dict[int, list[_Edit]]:
        """The edits that give variables their values, by the first tokens of their declarations.

        A value in the text is replaced: it is the one before the host wrote the variable.
        """
        variables = {
            name: each
            for each in self.declarations
            if each.kind == "variable" and each.is_device
            for name in each.names
        }
        edits: dict[int, list[_Edit]] = {}
        for name, value in data.items():
            if name not in variables:
                raise UsageError(
                    f"there is no __constant__ or __device__ variable {name!r}",
                    code="unknown_data",
                    mend="known: " + (", ".join(variables) or "none"),
                )
            declaration = variables[name]
            start, end = self._initialiser(declaration, name)
            edits.setdefault(declaration.first, []).append((start, end, f" = {value}"))
        return edits

    def _initialiser(self, declaration: Declaration, name: str) -> tuple[int, int]:
        """Where the value of a variable stands, or would stand, in the text."""
        tokens = self.source.tokens
        for first, end in self._parts(declaration.first, declaration.end - 1):
            index = next(
                (at for at in range(first, end) if tokens[at].text in (name, "=", "{")), end
            )
            if index < end and tokens[index].text == name:
                while self.reader.text(index + 1) == "[":
                    index = self.reader.closing(index + 1)
                return tokens[index].end, tokens[end].start
        place = self.source.place(tokens[declaration.first].start)
        raise UsageError(
            f"{place}: {name} cannot be given a value here",
            code="bad_data",
            mend="declare it alone: its type, its name and its sizes",
        )

    def _declaration_lines(
        self, declaration: Declaration, values: Sequence[_Edit]
    ) -> Iterator[tuple[str, Line]]:
        tokens, source = self.source.tokens, self.source
        start, end = tokens[declaration.first].start, tokens[declaration.end - 1].end
        edits = [
            (tokens[first].start, tokens[stop - 1].end, "")
            for first, stop in self._host_members(declaration)
        ]
        edits += values
        markers = {
            token.start
            for token in tokens[declaration.first : declaration.end]
            if token.kind == "marker"
        }
        position = start
        while position < end:
            newline = source.text.find("\n", position, end)
            stop = end if newline < 0 else newline
            if position not in markers:
                text = _edited(source.text, position, stop, edits)
                if text.strip():
                    place = source.place(position)
                    yield text, Line(place.file, place.line)
            position = stop + 1


def _edited(text: str, start: int, end: int, edits: Sequence[_Edit]) -> str:
    """A line with ranges replaced by texts; what is gone is blank."""
    line = text[start:end]
    for first, after, new in sorted(edits, reverse=True):
        begin, stop = max(first, start) - start, min(after, end) - start
        if begin < stop:
            line = line[:begin] + " " * (stop - begin) + line[stop:]
        if start <= first <= end:
            line = line[:begin] + new + line[begin:]
    return line


def _namespaces(declaration: Declaration) -> Iterator[str]:
    for scope in declaration.scopes:
        if _NAMESPACE.match(scope):
            yield scope.rpartition("namespace")[2].strip()


def _is_usable(declaration: Declaration) -> bool:
    """Whether device code can mean this declaration."""
    match declaration.kind:
        case "function":
            return declaration.is_device or declaration.is_constant
        case "variable":
            return declaration.is_device or declaration.is_constant
        case "class" | "enum" | "alias" | "guide":
            return True
    return False


def spelled(words: Collection[str]) -> str:
    """Tokens with the blanks that people write."""
    text = " ".join(words)
    text = re.sub(r" ?(::|<|\(|\[) ?", r"\1", text)
    return re.sub(r" (>|,|\)|\]|\*|&)", r"\1", text)
