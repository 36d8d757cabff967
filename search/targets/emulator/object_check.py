"""Looks into a candidate's library before it is loaded: loading alone may run code.

A library may call the runtime and mathematics, and give its kernels. Source: the System V ABI,
"Object Files" and "Program Loading and Dynamic Linking", and its supplements for processors.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from greenfast.search.targets.emulator.word_set import word_set

_NEEDED = frozenset(
    ("libgf_runtime.so", "libm.so.6", "libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")
)
_RUNTIME = re.compile(r"gf_emulator_\w+|__tsan_\w+|__ubsan_handle_\w+|__wrap_\w+")
_REPLACED = re.compile(r"_Z(nw|na|dl|da)")
_LIBRARY = word_set("memcpy memmove memset memcmp __tls_get_addr")
_REAL_FUNCTIONS = word_set("""
    acos acosh asin asinh atan atan2 atanh cbrt ceil cos cosh erf erfc exp exp10 exp2 expm1
    fabs fdim floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log
    log10 log1p log2 logb lrint lround modf nan nearbyint nextafter pow remainder remquo rint round
    scalbln scalbn sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn
""")
_MATHEMATICS = _REAL_FUNCTIONS | {f"{name}f" for name in _REAL_FUNCTIONS}
# DT_: NULL NEEDED PLTRELSZ PLTGOT HASH STRTAB SYMTAB RELA RELASZ RELAENT STRSZ SYMENT SONAME REL..
# and the versions of symbols; INIT_ARRAY is judged on its own.
_TAGS = frozenset((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 20, 23, 24, 30))
_TAGS |= {0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFF9, 0x6FFFFFFB, 0x6FFFFFFE, 0x6FFFFFFF}
# DT_FLAGS and DT_FLAGS_1, with their bits for names that are bound at once and for static TLS.
_FLAGS = {30: 0x18, 0x6FFFFFFB: 0x1}
_INIT_ARRAY, _INIT_ARRAY_BYTES = 25, 27
_MACHINES = {
    62: frozenset((1, 6, 7, 8, 16, 17, 18, 36)),
    183: frozenset((257, 1025, 1026, 1027, 1028, 1029, 1030, 1031)),
}
# The relocation that puts an address of the library's own into a table.
_RELATIVE = {62: 8, 183: 1027}
# ret, also behind the landing mark of an indirect call.
_RETURNS = {
    62: (b"\xc3", b"\xf3\x0f\x1e\xfa\xc3"),
    183: (b"\xc0\x03\x5f\xd6", b"\x5f\x24\x03\xd5\xc0\x03\x5f\xd6"),
}
_LOAD, _DYNAMIC, _INTERPRETER, _THREAD_LOCAL, _STACK = 1, 2, 3, 7, 0x6474E551
_EXECUTE, _WRITE = 1, 2
_FUNCTION_TYPE, _INDIRECT_FUNCTION = 2, 10
_POINTER_BYTES = 8
# Checked runs keep several bytes for each byte of these, within a process's 4 GiB.
_MOST_LOADED_BYTES = 128 * 2**20
# Static shared memory, with the gaps of a checked build. No GPU has a quarter of it.
_MOST_SHARED_BYTES = 2**20


@dataclass(frozen=True)
class ObjectFault:
    sentence: str
    name: str = ""  # of the symbol that is at fault


@dataclass(frozen=True)
class _Segment:
    kind: int
    flags: int
    offset: int
    address: int
    file_bytes: int
    memory_bytes: int


@dataclass(frozen=True)
class _Symbol:
    name: str
    kind: int
    section: int  # 0: it is imported


class _Malformed(Exception):
    """The file is no library that the linker writes for a kernel."""


def object_fault(image: bytes, exports: frozenset[str]) -> ObjectFault | None:
    """Why the library must not be loaded; None: it imports hooks and mathematics, gives `exports`,
    and runs nothing when it is loaded."""
    try:
        return _Library(image).fault(exports)
    except (struct.error, IndexError, ValueError, OverflowError, _Malformed) as error:
        return ObjectFault(f"the compiled library cannot be read: {error}")


class _Library:
    def __init__(self, image: bytes) -> None:
        self.image = image
        if image[:7] != b"\x7fELF\x02\x01\x01":
            raise _Malformed("it is not an ELF file of 64 bits")
        kind, self.machine = struct.unpack_from("<HH", image, 16)
        if kind != 3 or self.machine not in _MACHINES:
            raise _Malformed("it is not a shared library for this machine")
        (table,) = struct.unpack_from("<Q", image, 32)
        entry_bytes, count = struct.unpack_from("<HH", image, 54)
        if entry_bytes != 56:
            raise _Malformed("its segments have another size")
        self.segments = [self._segment(table + 56 * index) for index in range(count)]
        self.dynamic = self._dynamic()

    def fault(self, exports: frozenset[str]) -> ObjectFault | None:
        return (
            self._segment_fault()
            or self._tag_fault()
            or self._symbol_fault(exports)
            or self._relocation_fault()
        )

    def _segment(self, at: int) -> _Segment:
        kind, flags, offset, address, _, file_bytes, memory_bytes = struct.unpack_from(
            "<IIQQQQQ", self.image, at
        )
        return _Segment(kind, flags, offset, address, file_bytes, memory_bytes)

    def _dynamic(self) -> dict[int, list[int]]:
        tables = [segment for segment in self.segments if segment.kind == _DYNAMIC]
        if len(tables) != 1:
            raise _Malformed("it has not one dynamic section")
        # The loader decides: it reads the section at its address.
        begin = self._offset(tables[0].address)
        values: dict[int, list[int]] = {}
        for at in range(begin, begin + tables[0].memory_bytes - 15, 16):
            tag, value = struct.unpack_from("<QQ", self.image, at)
            values.setdefault(tag, []).append(value)
            if tag == 0:
                return values
        raise _Malformed("its dynamic section has no end")

    def _offset(self, address: int) -> int:
        """The place in the file from which an address is loaded."""
        for segment in self.segments:
            inside = address - segment.address
            if segment.kind == _LOAD and 0 <= inside < segment.file_bytes:
                return segment.offset + inside
        raise _Malformed(f"nothing is loaded at {address:#x}")

    def _value(self, tag: int) -> int:
        values = self.dynamic.get(tag, [])
        if len(values) != 1:
            raise _Malformed(f"dynamic tag {tag} occurs {len(values)} times")
        return values[0]

    def _string(self, index: int) -> str:
        begin = self._offset(self._value(5)) + index
        return self.image[begin : self.image.index(b"\0", begin)].decode("ascii")

    def _segment_fault(self) -> ObjectFault | None:
        for segment in self.segments:
            if segment.kind == _INTERPRETER:
                return ObjectFault("the library names a program that interprets it")
            is_both = segment.flags & _EXECUTE and segment.flags & _WRITE
            if segment.kind in (_LOAD, _STACK) and is_both:
                return ObjectFault("the library has memory that is writable and executable")
            if segment.kind == _STACK and segment.flags & _EXECUTE:
                return ObjectFault("the library asks for an executable stack")
            if segment.kind == _THREAD_LOCAL and segment.memory_bytes > _MOST_SHARED_BYTES:
                return ObjectFault(
                    f"the text's `__shared__` objects take {segment.memory_bytes:,} bytes; "
                    "no block has so much shared memory"
                )
        loaded = sum(part.memory_bytes for part in self.segments if part.kind == _LOAD)
        if loaded > _MOST_LOADED_BYTES:
            return ObjectFault(
                f"the text's `__device__` and `__constant__` objects take {loaded >> 20} MiB; the "
                f"emulator has room for {_MOST_LOADED_BYTES >> 20} MiB"
            )
        return None

    def _tag_fault(self) -> ObjectFault | None:
        for tag in self.dynamic:
            if tag not in _TAGS | {_INIT_ARRAY, _INIT_ARRAY_BYTES}:
                return ObjectFault(
                    f"the library has the dynamic tag {tag:#x}, which no kernel needs"
                )
        for tag, bits in _FLAGS.items():
            if any(value & ~bits for value in self.dynamic.get(tag, [])):
                return ObjectFault("the library asks the loader for what no kernel needs")
        for index in self.dynamic.get(1, []):
            if (name := self._string(index)) not in _NEEDED:
                return ObjectFault(f"the library needs {name!r}, which no kernel needs")
        # One entry is the compiler's own, for the hooks (-fsanitize=thread): it calls __tsan_init.
        allowed = 1 if "__tsan_init" in self.imports else 0
        if self._early_calls() > allowed:
            return ObjectFault(
                "the text has code that runs before its kernel: a constructor, or a value of a "
                "global object that is not a constant"
            )
        return None

    def _early_calls(self) -> int:
        """How many entries of the table of constructors call a function that does anything.

        g++ 12 writes an empty one for a global array of a class with a defaulted constructor
        (__half, too) under -fsanitize=alignment.
        """
        size = sum(self.dynamic.get(_INIT_ARRAY_BYTES, []))
        calls = -(-size // _POINTER_BYTES)
        if not calls or 7 not in self.dynamic:
            return calls
        table = self._value(_INIT_ARRAY)
        begin, bytes_of_relocations = self._offset(self._value(7)), self._value(8)
        empty = set()
        for at in range(begin, begin + bytes_of_relocations, 24):
            place, information, function = struct.unpack_from("<QQq", self.image, at)
            inside = 0 <= place - table < size and (place - table) % _POINTER_BYTES == 0
            if inside and information == _RELATIVE[self.machine] and self._is_empty(function):
                empty.add(place)
            elif inside:
                empty.discard(place)
        return calls - len(empty)

    def _is_empty(self, function: int) -> bool:
        code = self.image[self._offset(function) :][:8]
        return code.startswith(_RETURNS[self.machine])

    @property
    def symbols(self) -> list[_Symbol]:
        if self._value(11) != 24:
            raise _Malformed("its symbols have another size")
        begin = self._offset(self._value(6))
        # The linker puts the strings behind the symbols, and the loader knows no other bound.
        count, rest = divmod(self._offset(self._value(5)) - begin, 24)
        if count < 1 or rest >= 24:
            raise _Malformed("its symbols are not before their names")
        symbols = []
        for at in range(begin, begin + 24 * count, 24):
            name, information, _, section = struct.unpack_from("<IBBH", self.image, at)
            symbols.append(_Symbol(self._string(name), information & 15, section))
        return symbols

    @property
    def imports(self) -> frozenset[str]:
        return frozenset(symbol.name for symbol in self.symbols if symbol.section == 0)

    def _symbol_fault(self, exports: frozenset[str]) -> ObjectFault | None:
        for symbol in self.symbols:
            if symbol.kind == _INDIRECT_FUNCTION:
                return ObjectFault(
                    "an indirect function (ifunc) runs before its kernel", symbol.name
                )
            if not symbol.name:
                continue
            if symbol.section == 0:
                if not _is_importable(symbol.name):
                    return ObjectFault(
                        f"`{symbol.name}` is not a CUDA function that the emulator supports, and "
                        "the text does not define it",
                        symbol.name,
                    )
            elif _REPLACED.match(symbol.name):  # it is always visible
                return ObjectFault(
                    "the emulator does not run texts that replace `operator new` or `operator "
                    "delete`",
                    "operator",
                )
            elif symbol.name not in exports or symbol.kind != _FUNCTION_TYPE:
                return ObjectFault(f"`{symbol.name}` is visible outside its library", symbol.name)
        return None

    def _relocation_fault(self) -> ObjectFault | None:
        allowed = _MACHINES[self.machine]
        for table_tag, size_tag in ((7, 8), (23, 2)):
            if table_tag not in self.dynamic:
                continue
            begin, size = self._offset(self._value(table_tag)), self._value(size_tag)
            for at in range(begin, begin + size, 24):
                (information,) = struct.unpack_from("<Q", self.image, at + 8)
                if information & 0xFFFFFFFF not in allowed:
                    return ObjectFault(
                        f"the library has relocations of the kind {information & 0xFFFFFFFF}, "
                        "which no kernel needs"
                    )
        return None


def _is_importable(name: str) -> bool:
    return bool(_RUNTIME.fullmatch(name)) or name in _LIBRARY or name in _MATHEMATICS
