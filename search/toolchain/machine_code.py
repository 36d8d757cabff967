"""A digest of what a GPU executes: instructions, what they read, and the attributes of entries.

NVRTC folds a constant of the text into instructions, and still stores it in the cubin as a variable
that no instruction reads. Candidates that differ in such a constant therefore have different cubins
and equal machine code. Left out are these variables, names, and the numbers of symbols. Whatever is
not known to be without effect counts, so that an equal digest means equal instructions on equal
data; different digests may still mean the same.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

DIGITS = 32
# No instruction depends on them: tables of names and symbols, notes, what debuggers read.
_WITHOUT_EFFECT = re.compile(
    r"(?:|\.(?:shstrtab|strtab|symtab|nv\.callgraph|note\.nv\.\w+|(?:rela?\.)?debug_\w+))\Z"
)
# Variables, and the table of their addresses. Those that the code uses are looked at one by one.
_VARIABLES = re.compile(r"\.nv\.global(?:\.init)?\Z")
_ADDRESSES, _ADDRESS_RELOCATIONS = ".nv.constant4", ".rela.nv.constant4"
NO_BITS = 8  # the type of a section without contents in the file
SYMBOL_BYTES = RELOCATION_BYTES = 24
# Attributes of `.nv.info`: how their value is stored, and which begin with a symbol's number.
_SIZED = 4
_OF_A_SYMBOL = frozenset({0x0A, 0x11, 0x12, 0x23, 0x2F})  # constant bank, frame, stacks, registers


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    size: int
    info: int
    alignment: int
    contents: bytes


@dataclass(frozen=True)
class _Symbol:
    name: str
    section: _Section | None
    value: int
    size: int

    @property
    def initial(self) -> bytes:
        """The first contents of a variable; empty where it starts as zeros."""
        section = self.section
        return section.contents[self.value : self.value + self.size] if section else b""


def machine_code_digest(image: bytes, ptx: bytes) -> str:
    """The digest of a cubin; `ptx` is that of the same compilation."""
    try:
        parts = sorted(_Image(image, ptx).parts())
    except (struct.error, IndexError, ValueError):
        parts = [image.hex()]  # another kind of file: all of it counts
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:DIGITS]


class _Image:
    """A 64-bit little-endian ELF file as NVRTC writes it."""

    def __init__(self, image: bytes, ptx: bytes) -> None:
        self._image, self._ptx = image, ptx
        self._numbers: dict[_Symbol, int] = {}  # of variables, as they are met

    def parts(self) -> Iterator[str]:
        """A text for each part of the image that counts."""
        (flags,) = struct.unpack_from("<I", self._image, 0x30)
        yield f"flags {flags}"
        for section in self._sections:
            if _WITHOUT_EFFECT.match(section.name) or _VARIABLES.match(section.name):
                continue
            if section.name == _ADDRESS_RELOCATIONS:
                yield from self._used_variables(section)
            elif section.name.startswith(".rela"):
                yield from self._relocations(section)
            elif section.name.startswith(".nv.info"):
                yield from self._attributes(section)
            elif section.name != _ADDRESSES or any(section.contents):
                contents = hashlib.sha256(section.contents).hexdigest()
                figures = (section.kind, section.flags, section.info >> 24, section.alignment)
                yield f"section {section.name} {figures} {section.size} {contents}"

    @cached_property
    def _sections(self) -> list[_Section]:
        image = self._image
        (at,) = struct.unpack_from("<Q", image, 0x28)
        count, names = struct.unpack_from("<HH", image, 0x3C)
        headers = [struct.unpack_from("<IIQQQQIIQQ", image, at + 64 * n) for n in range(count)]
        return [
            _Section(
                _text(image, headers[names][4] + name),
                kind,
                flags,
                size,
                info,
                alignment,
                b"" if kind == NO_BITS else image[start : start + size],
            )
            for name, kind, flags, _, start, size, _, info, alignment, _ in headers
        ]

    @cached_property
    def _symbols(self) -> list[_Symbol]:
        by_name = {section.name: section for section in self._sections}
        names, symbols = by_name[".strtab"].contents, by_name[".symtab"].contents
        found = []
        for at in range(0, len(symbols), SYMBOL_BYTES):
            name, _, _, number, value, size = struct.unpack_from("<IBBHQQ", symbols, at)
            section = self._sections[number] if number < len(self._sections) else None
            found.append(_Symbol(_text(names, name), section, value, size))
        return found

    def _used_variables(self, section: _Section) -> Iterator[str]:
        """The places in the table of addresses from which the code can read one."""
        for offset, kind, symbol, addend in self._entries(section):
            if not self._is_variable(symbol) or self._is_named_again(symbol.name.encode()):
                yield f"address {offset} {kind} {self._described(symbol)} {addend}"

    def _relocations(self, section: _Section) -> Iterator[str]:
        for offset, kind, symbol, addend in self._entries(section):
            yield f"{section.name} {offset} {kind} {self._described(symbol)} {addend}"

    def _entries(self, section: _Section) -> Iterator[tuple[int, int, _Symbol, int]]:
        for at in range(0, len(section.contents), RELOCATION_BYTES):
            offset, info, addend = struct.unpack_from("<QQq", section.contents, at)
            yield offset, info & 0xFFFFFFFF, self._symbols[info >> 32], addend

    def _attributes(self, section: _Section) -> Iterator[str]:
        """The attributes of an entry, or of all of them, without the numbers of symbols."""
        data, at = section.contents, 0
        while at < len(data):
            form, attribute, value = struct.unpack_from("<BBH", data, at)
            at += 4
            if form != _SIZED:
                yield f"{section.name} {attribute} {value}"
                continue
            words, at = data[at : at + value], at + value
            name = ""
            if attribute in _OF_A_SYMBOL:
                name = self._symbols[struct.unpack_from("<I", words)[0]].name
                words = words[4:]
            yield f"{section.name} {attribute} {name} {words.hex()}"

    def _described(self, symbol: _Symbol) -> str:
        """A variable by its number and its first contents, anything else by its name.

        Two places that name one variable differ from two that name two with the same contents.
        """
        if not self._is_variable(symbol) or symbol.section is None:
            return symbol.name
        number = self._numbers.setdefault(symbol, len(self._numbers))
        return f"{symbol.section.name} {number} {symbol.size} {symbol.initial.hex()}"

    @staticmethod
    def _is_variable(symbol: _Symbol) -> bool:
        return symbol.section is not None and bool(_VARIABLES.match(symbol.section.name))

    def _is_named_again(self, name: bytes) -> bool:
        """Whether the PTX names the variable beside its declaration; True without PTX."""
        ptx, found, at = self._ptx, 0, self._ptx.find(name)
        while at >= 0:
            before, after = ptx[at - 1 : at], ptx[at + len(name) : at + len(name) + 1]
            found += not (_is_of_a_name(before) or _is_of_a_name(after))
            if found > 1:
                return True
            at = ptx.find(name, at + 1)
        return found == 0  # without its declaration nothing is known


def _is_of_a_name(byte: bytes) -> bool:
    return byte.isalnum() or (byte != b"" and byte in b"_$%")


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
