"""The parameters of a kernel as its CUDA text declares them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from greenfast.search.errors import UsageError
from greenfast.search.text import shortened, visible

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
QUALIFIERS = re.compile(
    r"\b(?:const|__restrict__|__restrict|restrict|volatile|__grid_constant__)\b"
)
_NAME = re.compile(r"[A-Za-z_]\w{0,47}\Z", re.ASCII)
_MOST_ALIASES = 8  # that stand for one another


@dataclass(frozen=True)
class Declared:
    """A parameter of the entry, as the CUDA text declares it."""

    name: str
    dtype: str  # of C_TYPES; "" for another type
    is_pointer: bool
    is_const: bool


def split_at_commas(text: str) -> list[str]:
    """The parts between the commas that are in no brackets, without empty ones."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<([{") - (character in ">)]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def declared(text: str, bare: str, file: str) -> Declared:
    """A parameter, from its text; `bare` is the file without comments."""
    words = QUALIFIERS.sub(" ", text.partition("=")[0])  # a launch passes every argument
    pointers = words.count("*")
    kind, _, name = words.replace("*", " ").strip().rpartition(" ")
    if array := re.match(r"(\w+)\s*\[[^\]]*\]\Z", name):  # `float x[]` is a pointer
        name, pointers = array[1], pointers + 1
    said = f"{file}: the parameter {shortened(visible(' '.join(text.split())), 60)!r}"
    if pointers > 1 or not _NAME.match(name) or not kind.strip():
        raise UsageError(
            f"{said}; a launch passes pointers to tensors and numbers", code="bad_source"
        )
    kind = _meant(" ".join(kind.split()), bare)
    if pointers == 0:
        _require_number(kind, name, bare, said)
    is_const = re.search(r"\bconst\b", text.partition("*")[0]) is not None
    return Declared(name, C_TYPES.get(kind, ""), pointers == 1, is_const)


def _meant(kind: str, bare: str) -> str:
    """The type that a name of the text's own stands for: typedef, using or #define."""
    for _ in range(_MOST_ALIASES):
        kind = re.sub(r"^(?:::)?(?:std::|cuda::std::)?", "", kind)
        if kind in C_TYPES or not _NAME.match(kind):
            break
        alias = re.search(
            rf"\btypedef\s+(?P<old>[\w\s:]+?)\s+{kind}\s*;|\busing\s+{kind}\s*=\s*(?P<new>[\w\s:]+?)\s*;"
            rf"|(?m:^)[ \t]*#[ \t]*define[ \t]+{kind}[ \t]+(?P<macro>[A-Za-z_][\w ]*?)[ \t]*$",
            bare,
            re.MULTILINE,
        )
        if alias is None:
            break
        kind = " ".join((alias["old"] or alias["new"] or alias["macro"]).split())
    return kind


def _require_number(kind: str, name: str, bare: str, said: str) -> None:
    """UsageError for a parameter that is passed by value and is no number."""
    if kind in ("cudaTextureObject_t", "cudaSurfaceObject_t"):
        raise UsageError(
            f"{said} is a texture or a surface; a launch passes pointers to tensors and numbers",
            code="bad_source",
            mend=f"read the memory through a pointer, const float* {name}; `greenfast check` runs "
            "kernels with textures",
        )
    if kind not in C_TYPES and _is_record(kind, bare):
        raise UsageError(
            f"{said} is a struct; a launch passes pointers to tensors and numbers",
            code="bad_source",
            mend='write an extern "C" __global__ function that takes its members one by one',
        )


def _is_record(kind: str, bare: str) -> bool:
    """Whether a type's name is that of a struct in the text, or of a vector such as float4."""
    name = re.escape(kind.removeprefix("struct ").rpartition("::")[2].partition("<")[0].strip())
    return kind.startswith("struct ") or bool(
        re.fullmatch(r"u?(?:char|short|int|long|longlong)[1-4]|(?:float|double)[1-4]|half2", name)
        or re.search(rf"\b(?:struct|class|union)\s+{name}\b|\}}\s*{name}\s*;", bare)
    )
