"""Reading what `greenfast import` is given: a CUDA text's entry, and tune parameters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from greenfast.app.cli.import_headers import (
    PlacedLine,
    cub_in_parts,
    device_lines,
    refuse_host_code,
)
from greenfast.app.cli.import_parameters import (
    C_TYPES,
    QUALIFIERS,
    Declared,
    declared,
    split_at_commas,
)
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
# A stranger's file may name any file, and what it names becomes part of a kernel that is shared.
SOURCE_SUFFIXES = word_set(
    ".h .hh .hpp .hxx .cuh .cu .c .cc .cpp .cxx .inl .ipp .tpp .inc .def .impl"
)
_LOCAL_INCLUDE = re.compile(r'\s*#\s*include\s+"(?!gf/)([^"]*)"')
_PRAGMA_ONCE = re.compile(r"(?m)^[ \t]*#[ \t]*pragma[ \t]+once\b.*$")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NESTED = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"  # text with brackets two deep
ENTRY = re.compile(
    rf"__global__\b(?P<between>(?:(?!__global__)[^;{{}}()]|\({_NESTED}\))*?)"
    rf"\b(?P<name>\w+)\s*\((?P<parameters>{_NESTED})\)\s*\{{"
)
_ATTRIBUTE_BEFORE = re.compile(
    rf"(?P<attribute>\b__(?:launch_bounds|cluster_dims|maxnreg|block_size)__\s*\({_NESTED}\))"
    r"(?P<blank>\s+)__global__\b"
)
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
_OPENCL = re.compile(r"\b(?:__)?kernel\s+(?:__attribute__\s*\([^;{]*\)\s*)?void\b")
_TEXTURE = re.compile(
    r"(?m)^[ \t]*(?:static[ \t]+)?(?:texture|surface)\s*<[^;{}]*>\s*(?P<name>\w+)"
)
CONSTANT = re.compile(
    r"(?m)^[ \t]*(?:(?:static|extern)[ \t]+)?__constant__\b(?P<type>[^;{=]*?)\b(?P<name>\w+)"
    r"(?P<rest>\s*(?:\[[^\]]*\]\s*)*[;={])"
)


@dataclass(frozen=True)
class CudaText:
    """A CUDA text, and the place of each of its lines: `FILE:LINE` of the file that it is from."""

    text: str
    places: tuple[str, ...]


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
    fill: str = ""  # of an input: its values, as Python writes them; empty: random ones

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
    """A problem's size along an axis: a number, a name, the name of a number, or an expression."""

    name: str = ""
    value: int | None = None
    text: str = ""  # an expression over the parameters


@dataclass(frozen=True)
class Tuning:
    """Parameters with their values, restrictions over them, and a launch where one is given."""

    parameters: Mapping[str, tuple[Value, ...]]
    restrictions: tuple[str, ...]
    problem_size: tuple[ProblemSize, ...] = ()  # along x, y, z
    # What the size along an axis is divided by: the threads of a block where it is None.
    grid_divisors: tuple[tuple[str, ...] | None, ...] = (None, None, None)
    block_names: tuple[str, ...] = ("block_size_x", "block_size_y", "block_size_z")
    smem: str = "0"  # bytes of dynamic shared memory


def read_cuda(path: Path) -> CudaText:
    """The text of a CUDA file, with the local files that it includes in their places."""
    return read_cuda_text(read_author_file(path, visible(path)), path)


def read_cuda_text(
    whole: str, path: Path, within: Path | None = None, places: Sequence[int] | None = None
) -> CudaText:
    """A CUDA text that a file holds or is, with the local files that it includes.

    With `within`, only files below that folder. `places` are the file's lines of a text in it.
    """
    included = _Included(path, within, [path.resolve()])
    lines = cub_in_parts(_with_includes(whole, included, visible(path), places))
    text = "\n".join(line for line, _ in lines)
    _refuse_other_languages(without_comments(text), [place for _, place in lines])
    text = _attributes_behind(_without_entry_macros(text))
    text = text.replace("__grid_constant__ ", "")  # on a number it only changes how it is passed
    if match := ENDS_RAW_TEXT.search(text):
        raise UsageError(
            f"{visible(path)} holds {match[0]!r}, which a template cannot hold", code="bad_source"
        )
    return CudaText(text, tuple(place for _, place in lines))


def _without_entry_macros(text: str) -> str:
    """The text with names spelt out that stand for `extern "C" __global__ void` or alike."""
    macros = list(_ENTRY_MACRO.finditer(text))
    names = Counter(macro["name"] for macro in macros)
    for macro in macros:
        if names[macro["name"]] > 1:  # one for each case of an #if
            continue
        body = without_comments(macro["body"].replace("\\\n", " ")).strip()
        text = text.replace(macro[0], "\n" * macro[0].count("\n"))
        literal = body.replace("\\", r"\\")
        text = re.sub(rf"(?<![\w#\"]){macro['name']}\b", literal, text)
    return text


def _attributes_behind(text: str) -> str:
    """The text with `__global__` before the attributes of an entry: `extern "C"` goes there."""
    text = re.sub(r"\b__global__(\s+)(static|inline)\b", r"\2\1__global__", text)
    while (changed := _ATTRIBUTE_BEFORE.sub(r"__global__\g<blank>\g<attribute>", text)) != text:
        text = changed
    return text


@dataclass(frozen=True)
class _Included:
    """A file whose includes are read: files in `within` alone, `known` ones but once."""

    path: Path
    within: Path | None
    known: list[Path]


def _with_includes(
    text: str, of: _Included, file: str, places: Sequence[int] | None = None
) -> list[PlacedLine]:
    """Each included file's lines stand where it is first included, as under `#pragma once`."""
    lines: list[PlacedLine] = []
    for number, line in enumerate(text.split("\n")):
        lines += _with_include(line, f"{file}:{places[number] if places else number + 1}", of)
    return lines


def _with_include(line: str, place: str, of: _Included) -> list[PlacedLine]:
    local, known = _LOCAL_INCLUDE.match(line), of.known
    if local is None:
        return [(each, place) for text in device_lines(line) for each in text.split("\n")]
    included = (of.path.parent / local[1]).resolve()
    sentence = f"{place}: it includes {visible(local[1])!r}"
    if of.within is not None and not included.is_relative_to(of.within.resolve()):
        raise UsageError(
            f"{sentence}, which is outside of the script's folder",
            code="local_include",
            mend="copy the file into the folder, or save the kernel as a file and name both: "
            "greenfast import FILE.cu --tune-file SCRIPT.py",
        )
    if not included.is_file() and is_allowed(local[1]):  # CUDA's own, in quotation marks
        return _with_include(f"#include <{local[1]}>", place, of)
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
        *_with_includes(inside, replace(of, path=included), visible(local[1])),
    ]


def without_comments(text: str) -> str:
    """The text with blanks in place of comments."""
    return _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _without_host_blocks(bare: str) -> str:
    """The text without the blocks that NVRTC skips: #ifndef __CUDACC_RTC__ ... #endif."""
    pattern = r"(?ms)^[ \t]*#[ \t]*ifndef[ \t]+__CUDACC_RTC__\b.*?^[ \t]*#[ \t]*endif\b"
    return re.sub(pattern, lambda match: "\n" * match[0].count("\n"), bare)


def known_entry(bare: str, wanted: str | None, file: str) -> tuple[str, re.Match[str]]:
    """The entry of that name, or the only one; `bare` is a text without comments."""
    entries = {match["name"]: match for match in ENTRY.finditer(bare)}
    if wanted is None and len(entries) != 1:
        raise UsageError(
            f"{file} has {len(entries)} __global__ functions"
            + (f": {', '.join(entries)}" if entries else ""),
            code="unknown_entry",
            mend="name one with --entry" if entries else "an entry is a __global__ function",
        )
    name = wanted or next(iter(entries))
    if name not in entries:
        raise UsageError(
            f"{file} has no __global__ function {visible(name)!r}",
            code="unknown_entry",
            mend="known: " + (", ".join(entries) or "none"),
        )
    return name, entries[name]


def _refuse_other_languages(bare: str, places: Sequence[str]) -> None:
    """UsageError for OpenCL, and for texture references, which CUDA 12 has no more."""
    if (match := _OPENCL.search(bare)) is not None and "__global__" not in bare:
        raise UsageError(
            f"{places[bare.count(chr(10), 0, match.start())]}: this is an OpenCL kernel, but "
            "greenfast takes CUDA only",
            code="bad_source",
            mend='write it as extern "C" __global__ void, with threadIdx and blockIdx',
        )
    if (match := _TEXTURE.search(bare)) is not None:
        raise UsageError(
            f"{places[bare.count(chr(10), 0, match.start('name'))]}: {match['name']} is a texture "
            "reference, which CUDA 12 has no more",
            code="bad_source",
            mend=f"pass the memory to the kernel, const float* {match['name']}, and read it there",
        )


def read_entry(source: CudaText, wanted: str | None, file: str) -> Entry:
    """The entry of that name, or the only one. It is no template and in no namespace."""
    bare = without_comments(source.text)
    name, match = known_entry(bare, wanted, file)
    before = bare[: match.start()].rstrip()
    refuse_host_code(_without_host_blocks(bare), source.places)
    texts = split_at_commas(match["parameters"])
    parameters = tuple(declared(part, bare, file) for part in texts if part != "void")
    _check_constant_memory(bare, source.places, {each.name for each in parameters})
    is_extern_c = before.endswith('extern "C"') or _is_in_extern_c(before)
    return Entry(name, parameters, is_extern_c)


def _is_in_extern_c(before: str) -> bool:
    """Whether a block of `extern "C" {` is open at the end of a text."""
    open_blocks: list[bool] = []
    for brace in re.finditer(r'(?P<c>extern\s*"C"\s*)?\{|\}|"(?:\\.|[^"\\\n])*"', before):
        if brace[0].endswith("{"):
            open_blocks.append(brace["c"] is not None)
        elif brace[0] == "}" and open_blocks:
            open_blocks.pop()
    return any(open_blocks)


def _check_constant_memory(bare: str, places: Sequence[str], hidden: Set[str]) -> None:
    """Refuse constant memory without values: its host program fills it, and a launch does not.

    `hidden` are the kernel's parameters, one of which may have its name.
    """
    for match in CONSTANT.finditer(bare):
        if not hidden.isdisjoint((match["name"], f"{match['name']}_values")):
            continue
        is_used = len(re.findall(rf"\b{match['name']}\b", bare)) > 1
        kind = " ".join(QUALIFIERS.sub(" ", match["type"]).split())
        if is_used and "=" not in match["rest"] and "{" not in match["rest"]:
            place = places[bare.count("\n", 0, match.start("rest"))]
            raise UsageError(
                f"{place}: {match['name']} is constant memory, which a host program fills "
                "and a launch does not",
                code="bad_source",
                mend=f"give it its values there, or name it: --arg {match['name']}:"
                f"{_example_of(kind, match['rest'])}, which "
                "makes it a parameter of the kernel",
            )


def _example_of(kind: str, rest: str) -> str:
    """Type and sizes of constant memory as --arg has them; 25 for a size that is not known."""
    sizes = [each.strip() for each in re.findall(r"\[([^\]]*)\]", rest)]
    known = [each if each.isdigit() and kind in C_TYPES else "25" for each in sizes]
    return C_TYPES.get(kind, "float32") + (f"[{','.join(known)}]" if sizes else "=25")


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
        checked = checked_values(
            name, [_value(word.strip()) for word in values.split(",")], "--tune"
        )
        if name in parameters:
            raise UsageError(
                f"--tune gives {visible(name)} twice",
                code="bad_tune",
                mend=f"commas separate values: --tune {name}=32,64,128",
            )
        parameters[name] = checked
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
    mend = f"commas separate values: --tune {name}=32,64,128" if where == "--tune" else ""
    if not values or len(kinds) != 1 or not kinds <= {int, bool, str}:
        raise UsageError(
            f"{where}: {name} has the values {shortened(visible(list(values)), 60)}; all must be "
            "whole numbers, or all true or false, or all names",
            code="bad_tune",
            mend=mend,
        )
    if len(values) > MOST_VALUES:
        raise UsageError(
            f"{where}: {name} has {len(values)} values; at most {MOST_VALUES}", code="bad_tune"
        )
    wrong = [value for value in values if not re.fullmatch(r"[\w.+-]{1,64}", str(value))]
    if wrong:
        raise UsageError(
            f"{where}: the value {shortened(visible(repr(wrong[0])), 60)} of {name} is neither a "
            "number nor a name of letters, digits and _",
            code="bad_tune",
            mend=mend,
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


def end_of_block(text: str, at: int) -> int:
    """Where the block ends whose content begins at `at`."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    return len(text)
