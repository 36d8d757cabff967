"""Reading what `greenfast import` is given: a CUDA text's entry, and tune parameters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenfast.app.cli.import_headers import device_lines, refuse_host_code
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.author_files import read_author_file
from greenfast.search.kernels.expressions import Value, expression
from greenfast.search.kernels.template_text import ENDS_RAW_TEXT
from greenfast.search.targets.emulator.word_set import word_set
from greenfast.search.text import shortened, visible
from greenfast.search.toolchain.includes import is_allowed

MOST_VALUES = 4096
NAME = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,47}\Z", re.ASCII)
MOST_INCLUDES = 32
PlacedLine = tuple[str, str]  # a line, and `FILE:LINE` of the file that it is from
# A stranger's file may name any file, and what it names becomes part of a kernel that is shared.
SOURCE_SUFFIXES = word_set(
    ".h .hh .hpp .hxx .cuh .cu .c .cc .cpp .cxx .inl .ipp .tpp .inc .def .impl"
)
_LOCAL_INCLUDE = re.compile(r'\s*#\s*include\s+"(?!gf/)([^"]*)"')
_PRAGMA_ONCE = re.compile(r"(?m)^[ \t]*#[ \t]*pragma[ \t]+once\b.*$")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
ENTRY = re.compile(
    r"__global__\b(?P<between>[^;{}()]*(?:__launch_bounds__\s*\([^)]*\)[^;{}()]*)?)"
    r"\b(?P<name>\w+)\s*\((?P<parameters>[^)]*)\)\s*\{"
)
_CALL_IT = 'make it a __device__ function, and write an extern "C" __global__ one that calls it'
C_TYPES = {
    "float": "float32",
    "int": "int32",
    "unsigned": "int32",
    "unsigned int": "int32",
    "int32_t": "int32",
    "uint32_t": "int32",
    "uint": "int32",
    "long": "int64",
    "long int": "int64",
    "unsigned long": "int64",
    "unsigned long int": "int64",
    "long long": "int64",
    "long long int": "int64",
    "unsigned long long": "int64",
    "unsigned long long int": "int64",
    "int64_t": "int64",
    "uint64_t": "int64",
    "ptrdiff_t": "int64",
    "size_t": "int64",
    "half": "fp16",
    "__half": "fp16",
    "__nv_bfloat16": "bf16",
    "nv_bfloat16": "bf16",
    "unsigned char": "uint8",
    "uint8_t": "uint8",
    "char": "int8",
    "signed char": "int8",
    "int8_t": "int8",
    "short": "int16",
    "int16_t": "int16",
    "unsigned short": "int16",
    "uint16_t": "int16",
    "double": "float64",
    "bool": "bool",
}
# Spellings for --arg besides C's names and kernel.toml's. An unsigned number is stored
# as the signed one of its width: only the bits are compared.
SPELLINGS = {
    "uint16": "int16",
    "uint32": "int32",
    "uint64": "int64",
    "float16": "fp16",
    "bfloat16": "bf16",
}
# A macro without parameters whose text contains `__global__`.
_ENTRY_MACRO = re.compile(
    r"(?m)^[ \t]*#[ \t]*define[ \t]+(?P<name>[A-Za-z_]\w*)(?P<body>[ \t](?:[^\n]|\\\n)*?"
    r"\b__global__\b(?:[^\\\n]|\\\n|\\.)*)$"
)
_TEMPLATE = re.compile(r"\btemplate\s*<[^;{}#]*>\s*\Z")
_CONSTANT = re.compile(
    r"(?m)^[ \t]*(?:(?:static|extern)[ \t]+)?__constant__\b(?P<type>[^;{=]*?)\b(?P<name>\w+)"
    r"(?P<rest>\s*(?:\[[^\]]*\]\s*)*[;={])"
)
_QUALIFIERS = re.compile(r"\b(?:const|__restrict__|__restrict|restrict|volatile)\b")


@dataclass(frozen=True)
class CudaText:
    """A CUDA text, and the place of each of its lines: `FILE:LINE` of the file that it is from."""

    text: str
    places: tuple[str, ...]


@dataclass(frozen=True)
class Declared:
    """A parameter of the entry, as the CUDA text declares it."""

    name: str
    dtype: str  # of C_TYPES; "" for another type
    is_pointer: bool
    is_const: bool


@dataclass(frozen=True)
class Entry:
    name: str
    parameters: tuple[Declared, ...]
    is_extern_c: bool


@dataclass(frozen=True)
class ImportedArgument:
    """--arg NAME:TYPE[SIZES]:ROLE, or NAME:TYPE=VALUE for a scalar."""

    name: str
    dtype: str
    shape: tuple[str, ...]  # numbers, names of scalars, or sums and products of these
    role: str  # "input" | "output" | "inout" | "scalar"
    value: int | float = 0
    before: str = ""  # of an output: the input that it begins as a copy of

    @property
    def storage(self) -> str:
        """The type of the tensor's elements in kernel.toml: a bool is a byte of 0 or 1."""
        return "uint8" if self.dtype == "bool" else self.dtype

    @property
    def dims(self) -> tuple[str, ...]:
        """The dims of kernel.toml that its sizes are, in their order."""
        return tuple(
            size
            if size.isidentifier()
            else f"size_{size}"
            if size.isdigit()
            else f"size_of_{self.name}_{axis}"
            for axis, size in enumerate(self.shape)
        )

    @property
    def computed(self) -> dict[str, str]:
        """The expressions among its sizes, by their dims."""
        sizes = zip(self.dims, self.shape, strict=True)
        return {dim: size for dim, size in sizes if not size.isdigit() and size != dim}

    @property
    def is_size(self) -> bool:
        """Whether the value may be the size of a tensor."""
        return self.role == "scalar" and self.dtype in ("int32", "int64")


@dataclass(frozen=True)
class ProblemSize:
    """A problem's size along an axis: a number, a name, or the name of a number."""

    name: str = ""
    value: int | None = None


@dataclass(frozen=True)
class Tuning:
    """Parameters with their values, restrictions over them, and a launch where one is given."""

    parameters: Mapping[str, tuple[Value, ...]]
    restrictions: tuple[str, ...]
    problem_size: tuple[ProblemSize, ...] = ()  # along x, y, z
    # What the size along an axis is divided by: the threads of a block where it is None.
    grid_divisors: tuple[tuple[str, ...] | None, ...] = (None, None, None)
    block_names: tuple[str, ...] = ("block_size_x", "block_size_y", "block_size_z")


def read_cuda(path: Path) -> CudaText:
    """The text of a CUDA file, with the local files that it includes in their places."""
    return read_cuda_text(read_author_file(path, visible(path)), path)


def read_cuda_text(whole: str, path: Path) -> CudaText:
    """A CUDA text that a file holds or is, with the local files that it includes."""
    lines = _with_includes(whole, path, visible(path), [path.resolve()])
    text = _without_entry_macros("\n".join(line for line, _ in lines))
    if match := ENDS_RAW_TEXT.search(text):
        raise UsageError(
            f"{visible(path)} holds {match[0]!r}, which a template cannot hold", code="bad_source"
        )
    return CudaText(text, tuple(place for _, place in lines))


def _without_entry_macros(text: str) -> str:
    """The text with names spelt out that stand for `extern "C" __global__ void` or alike."""
    found = list(_ENTRY_MACRO.finditer(text))
    names = Counter(macro["name"] for macro in found)
    for macro in found:
        if names[macro["name"]] > 1:  # one for each case of an #if
            continue
        body = without_comments(macro["body"].replace("\\\n", " ")).strip()
        text = text.replace(macro[0], "\n" * macro[0].count("\n"))
        literal = body.replace("\\", r"\\")
        text = re.sub(rf"(?<![\w#\"]){macro['name']}\b", literal, text)
    return text


def _with_includes(text: str, path: Path, file: str, known: list[Path]) -> list[PlacedLine]:
    """Each included file's lines stand where it is first included, as under `#pragma once`."""
    lines: list[PlacedLine] = []
    for number, line in enumerate(text.split("\n"), 1):
        lines += _with_include(line, f"{file}:{number}", path, known)
    return lines


def _with_include(line: str, place: str, path: Path, known: list[Path]) -> list[PlacedLine]:
    local = _LOCAL_INCLUDE.match(line)
    if local is None:
        return [(each, place) for text in device_lines(line) for each in text.split("\n")]
    included = (path.parent / local[1]).resolve()
    if not included.is_file() and is_allowed(local[1]):  # CUDA's own, in quotation marks
        return _with_include(f"#include <{local[1]}>", place, path, known)
    sentence = f"{place}: it includes {visible(local[1])!r}"
    if not included.is_file():
        raise UsageError(
            f"{sentence}, which is not in the same folder",
            code="local_include",
            mend="put the file there, or paste its text in the line's place",
        )
    if included.suffix not in SOURCE_SUFFIXES:
        raise UsageError(
            f"{sentence}, whose name is not that of a source file",
            code="local_include",
            mend="a template would contain its text; paste it in if you want that",
        )
    if included in known:
        return [(f"// {line.strip()}  (above)", place)]
    if len(known) >= MOST_INCLUDES:
        raise UsageError(
            f"{sentence}, and a kernel takes {MOST_INCLUDES} files at most", code="local_include"
        )
    known.append(included)
    inside = _PRAGMA_ONCE.sub("", read_author_file(included, visible(local[1])))
    return [
        (f"// {line.strip()}", place),
        *_with_includes(inside, included, visible(local[1]), known),
    ]


def without_comments(text: str) -> str:
    """The text with blanks in place of comments."""
    return _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _without_host_blocks(bare: str) -> str:
    """The text without the blocks that NVRTC skips: #ifndef __CUDACC_RTC__ ... #endif."""
    pattern = r"(?ms)^[ \t]*#[ \t]*ifndef[ \t]+__CUDACC_RTC__\b.*?^[ \t]*#[ \t]*endif\b"
    return re.sub(pattern, lambda match: "\n" * match[0].count("\n"), bare)


def read_entry(source: CudaText, wanted: str | None, file: str) -> Entry:
    """The entry of that name, or the only one."""
    bare = without_comments(source.text)
    entries = {match["name"]: match for match in ENTRY.finditer(bare)}
    if wanted is None and len(entries) != 1:
        raise UsageError(
            f"{file} has {len(entries)} __global__ functions"
            + (f": {', '.join(entries)}" if entries else ""),
            code="unknown_entry",
            mend="name one with --entry" if entries else "an entry is a __global__ function",
        )
    name = wanted or next(iter(entries))
    if "<" in name and name.partition("<")[0].strip() in entries:
        raise UsageError(
            f"{file}: {visible(name)} is an instance of a C++ template, which no launch names",
            code="bad_source",
            mend=_CALL_IT,
        )
    if name not in entries:
        raise UsageError(
            f"{file} has no __global__ function {visible(name)!r}",
            code="unknown_entry",
            mend="known: " + (", ".join(entries) or "none"),
        )
    match = entries[name]
    before = bare[: match.start()].rstrip()
    if _TEMPLATE.search(before):
        raise UsageError(
            f"{file}: {name} is a template of C++, which has no name to launch",
            code="bad_source",
            mend=_CALL_IT,
        )
    refuse_host_code(_without_host_blocks(bare), source.places)
    _check_constant_memory(bare, source.places)
    texts = [part.strip() for part in match["parameters"].split(",") if part.strip()]
    return Entry(
        name,
        tuple(_declared(part, bare, file) for part in texts if part != "void"),
        before.endswith('extern "C"') or 'extern "C" {' in before,
    )


def _check_constant_memory(bare: str, places: Sequence[str]) -> None:
    """Refuse constant memory without values: its host program fills it, and a launch does not."""
    for match in _CONSTANT.finditer(bare):
        is_used = len(re.findall(rf"\b{match['name']}\b", bare)) > 1
        kind = " ".join(_QUALIFIERS.sub(" ", match["type"]).split())
        if is_used and "=" not in match["rest"] and "{" not in match["rest"]:
            place = places[bare.count("\n", 0, match.start("rest"))]
            raise UsageError(
                f"{place}: {match['name']} is constant memory, which a host program fills "
                "and a launch does not",
                code="bad_source",
                mend="give it its values there, or make it a parameter of the entry: const "
                f"{kind or 'float'}* {match['name']}",
            )


def _declared(text: str, bare: str, file: str) -> Declared:
    words = _QUALIFIERS.sub(" ", text)
    pointers = words.count("*")
    kind, _, name = words.replace("*", " ").strip().rpartition(" ")
    dtype = C_TYPES.get(" ".join(kind.split()), "")
    if pointers > 1 or "[" in name or not IDENTIFIER.match(name) or not kind:
        raise UsageError(
            f"{file}: the parameter {shortened(visible(text), 60)!r}; a launch passes pointers to "
            "tensors and numbers",
            code="bad_source",
        )
    if not pointers and kind in ("cudaTextureObject_t", "cudaSurfaceObject_t"):
        raise UsageError(
            f"{file}: the parameter {shortened(visible(text), 60)!r} is a texture or a surface; a "
            "launch passes pointers to tensors and numbers",
            code="bad_source",
            mend=f"read the memory through a pointer, const float* {name}; `greenfast check` runs "
            "kernels with textures",
        )
    if not pointers and not dtype and _is_record(kind.split()[-1], bare):
        raise UsageError(
            f"{file}: the parameter {shortened(visible(text), 60)!r} is a struct; a launch passes "
            "pointers to tensors and numbers",
            code="bad_source",
            mend='write an extern "C" __global__ function that takes its members one by one',
        )
    return Declared(name, dtype, pointers == 1, bool(re.search(r"\bconst\b", text)))


def _is_record(kind: str, bare: str) -> bool:
    """Whether a type is a struct of the text, or a vector such as float4."""
    name = re.escape(kind)
    return bool(
        re.fullmatch(r"u?(?:char|short|int|long|longlong)[1-4]|(?:float|double)[1-4]|half2", kind)
        or re.search(rf"\b(?:struct|class|union)\s+{name}\b|\}}\s*{name}\s*;", bare)
    )


def own_define(text: str, name: str) -> str | None:
    """The value that the text itself defines for a name."""
    match = re.search(rf"^\s*#\s*define\s+{name}\s+([^\s/]+)", text, re.MULTILINE)
    return match[1] if match else None


def parsed_tune(texts: Sequence[str]) -> dict[str, tuple[Value, ...]]:
    """--tune NAME=V1,V2,..."""
    parameters: dict[str, tuple[Value, ...]] = {}
    for text in texts:
        name, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not name or not values:
            raise UsageError(
                f"--tune {visible(text)!r} is not NAME=VALUE,VALUE,...", code="bad_tune"
            )
        parameters[name] = checked_values(
            name, [_value(word.strip()) for word in values.split(",")], "--tune"
        )
    return parameters


def checked_values(name: str, values: Sequence[Any], where: str) -> tuple[Value, ...]:
    """The values of a parameter, of one type and without repetitions."""
    if not IDENTIFIER.match(name):
        raise UsageError(
            f"{where}: the name {shortened(visible(repr(name)), 60)}; a #define's name is letters, "
            "digits and _",
            code="bad_tune",
        )
    kinds = {type(value) for value in values}
    if not values or len(kinds) != 1 or not kinds <= {int, bool, str}:
        raise UsageError(
            f"{where}: {name} has the values {shortened(visible(list(values)), 60)}; all must be "
            "whole numbers, or all true or false, or all names",
            code="bad_tune",
        )
    if len(values) > MOST_VALUES:
        raise UsageError(
            f"{where}: {name} has {len(values)} values; at most {MOST_VALUES}", code="bad_tune"
        )
    if kinds == {str} and not all(re.fullmatch(r"[\w.+-]{1,64}", value) for value in values):
        raise UsageError(
            f"{where}: a text of {name} is not a name of letters, digits and _", code="bad_tune"
        )
    return tuple(dict.fromkeys(values))


def _value(text: str) -> Value:
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def checked_restrictions(texts: Sequence[str], names: Sequence[str], where: str) -> tuple[str, ...]:
    """Restrictions as constraints; UsageError for one that is no expression over the names."""
    for text in texts:
        try:
            checked = expression(text, where)
        except SpecError as error:
            raise UsageError(error.message, code="bad_restriction", mend=error.mend) from error
        unknown = sorted(checked.names - set(names))
        if unknown:
            raise UsageError(
                f"{where}: {visible(text)!r} uses {unknown[0]!r}, which is not a parameter",
                code="bad_restriction",
                mend="known: " + ", ".join(names),
            )
    return tuple(texts)
