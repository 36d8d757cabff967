"""Arguments on the command line: `x:float32[4096]`, `y:float[64,64]=zeros:out`, `n:int=4096`.

    NAME[:TYPE][[SIZES]][=VALUE][:in|out|inout|workspace]

With sizes it is an array, and VALUE fills it. Without, it is a scalar or `null`. The type may be
left out where the kernel's parameter names a built-in one. An array without a role is an input
where the parameter points to `const`, else it is read and written.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from greenfast.search.diagnose.brought_buffers import (
    BUFFER_DTYPES,
    MOST_BYTES,
    array_from_file,
    contiguous_tensor,
    filled_array,
)
from greenfast.search.diagnose.entries import parameter_name
from greenfast.search.diagnose.plain_argument_text import GRAMMAR, ArgumentText, refused
from greenfast.search.diagnose.plain_textures import is_texture, texture
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.oracle.problem import GivenArgument, Packed, Scalar, Tensor
from greenfast.search.targets.emulator.job import SCALAR_FORMATS

# CUDA's and C++'s names of the types that launch.toml calls float32, int32, ...
TYPE_NAMES = {
    **{name: name for name in BUFFER_DTYPES},
    "float": "float32",
    "double": "float64",
    "half": "fp16",
    "__half": "fp16",
    "float16": "fp16",
    "__nv_bfloat16": "bf16",
    "nv_bfloat16": "bf16",
    "bfloat16": "bf16",
    "char": "int8",
    "int8_t": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "uchar": "uint8",
    "uint8_t": "uint8",
    "short": "int16",
    "int16_t": "int16",
    "unsigned short": "uint16",
    "ushort": "uint16",
    "uint16_t": "uint16",
    "int": "int32",
    "int32_t": "int32",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "uint": "uint32",
    "uint32_t": "uint32",
    "long": "int64",
    "long int": "int64",
    "long long": "int64",
    "long long int": "int64",
    "int64_t": "int64",
    "ptrdiff_t": "int64",
    "size_t": "uint64",
    "unsigned long": "uint64",
    "unsigned long int": "uint64",
    "unsigned long long": "uint64",
    "unsigned long long int": "uint64",
    "uint64_t": "uint64",
    "bool": "uint8",
    "clock_t": "int64",
}
_VECTOR = re.compile(
    r"(char|uchar|short|ushort|int|uint|long|ulong|longlong|ulonglong|float|double|(?:__)?half|"
    r"(?:__)?nv_bfloat16)([1234])\Z"
)
_VECTOR_BASES = {"ulong": "uint64", "longlong": "int64", "ulonglong": "uint64"}
_ROLE = "in|out|inout|workspace|input|output"
_SHORT = {"input": "in", "output": "out"}  # as `greenfast import` spells them, too
_ARGUMENT = re.compile(
    r"\s*(?P<name>[A-Za-z_]\w{0,200})\s*"
    rf"(?::\s*(?P<type>(?!(?:{_ROLE})\b)[A-Za-z_][\w ]*?)\s*)?"
    r"(?P<sizes>\[[^\]]*\])?\s*"
    r"(?:=\s*(?P<value>.*?)\s*)?"
    rf"(?::\s*(?P<role>{_ROLE}))?\s*\Z",
    re.DOTALL,
)
_SIZE = re.compile(r"[\d\s*]+\Z")
ROLES = {"in": "input", "out": "output", "inout": "output", "workspace": "workspace"}


def read_argument_text(text: str) -> ArgumentText:
    """One `--arg`; UsageError with its grammar."""
    match = _ARGUMENT.match(text)
    if match is None:
        raise refused(text, "cannot be read")
    sizes = match["sizes"]
    if sizes is not None:
        parts = sizes[1:-1].split(",")
        if not all(part.strip() and _SIZE.match(part) for part in parts):
            raise refused(text, "has sizes that are not whole numbers or products of whole numbers")
        shape = tuple(math.prod(int(factor) for factor in part.split("*")) for part in parts)
    elif match["value"] is None:
        raise refused(text, "is a scalar without a value")
    return ArgumentText(
        text,
        match["name"],
        (match["type"] or "").strip(),
        None if sizes is None else shape,
        match["value"],
        _SHORT.get(match["role"] or "", match["role"] or ""),
    )


def ordered(
    arguments: Sequence[ArgumentText], parameters: Sequence[str]
) -> tuple[ArgumentText, ...]:
    """By the parameters' names where the arguments bear exactly those, else as they are given."""
    names = [parameter_name(parameter) for parameter in parameters]
    by_name = {argument.name: argument for argument in arguments}
    if len(by_name) == len(arguments) == len(names) and set(by_name) == set(names):
        return tuple(by_name[name] for name in names)
    return tuple(arguments)


def given_argument(
    argument: ArgumentText, parameter: str, folder: Path, seed: tuple[int, int]
) -> GivenArgument:
    """The value of an argument for the parameter that is declared as `parameter`."""
    if argument.sizes is not None:
        return _array(argument, parameter, folder, np.random.default_rng(seed))
    if argument.value in ("null", "nullptr", "NULL"):
        return None
    type_name = argument.type or _base_type(parameter)
    vector = _VECTOR.match(type_name)
    if vector is None and type_name not in TYPE_NAMES:
        raise refused(
            argument.text,
            f"has the type {type_name!r}, which is none of " + ", ".join(TYPE_NAMES)
            if argument.type
            else f"cannot give the parameter `{parameter}` its value; a launch file can, also a "
            "struct: { struct = [{ int32 = 4 }, { float32 = 0.5 }] }",
        )
    assert argument.value is not None
    words = argument.value.strip("{}()").split(",") if vector else [argument.value]
    base = _vector_base(vector) if vector else TYPE_NAMES[type_name]
    if vector and len(words) != int(vector[2]):
        raise refused(argument.text, f"gives {len(words)} values for a {type_name}")
    packed = b"".join(_scalar_bytes(argument, base, word.strip()) for word in words)
    if vector is None and base in SCALAR_FORMATS:
        (number,) = struct.unpack(SCALAR_FORMATS[base], packed)
        return Scalar(base, number)
    return Packed(packed)


def _scalar_bytes(argument: ArgumentText, base: str, word: str) -> bytes:
    dtype = BUFFER_DTYPES[base]
    word = {"true": "1", "false": "0"}.get(word, word)
    try:
        value = float(word) if dtype.kind not in "iu" else int(word, 0)
    except ValueError:
        raise refused(
            argument.text, f"has the value {word!r}, which is not of type {base}"
        ) from None
    if isinstance(value, int):
        limits = np.iinfo(dtype)
        if not limits.min <= value <= limits.max:
            raise refused(argument.text, f"has the value {word}, which {base} cannot hold")
    return np.array(value, dtype).tobytes()


def _vector_base(vector: re.Match[str]) -> str:
    return _VECTOR_BASES.get(vector[1]) or TYPE_NAMES[vector[1]]


def _base_type(parameter: str) -> str:
    """The type that a parameter's text names, without `const` and its name."""
    text = re.sub(r"\b(?:const|volatile|__restrict__|__restrict|restrict)\b", " ", parameter)
    text = re.sub(r"\[.*", "", text.replace("*", " ").replace("&", " "))
    words = text.split()
    whole = " ".join(words)
    if whole in TYPE_NAMES or _VECTOR.match(whole):
        return whole
    return " ".join(words[:-1])


def _array(
    argument: ArgumentText, parameter: str, folder: Path, random: np.random.Generator
) -> Tensor:
    assert argument.sizes is not None
    if is_texture(argument):
        return texture(argument, lambda texels: _array(texels, "", folder, random))
    type_name = argument.type or _base_type(parameter)
    vector = _VECTOR.match(type_name)
    if vector is None and type_name not in TYPE_NAMES:
        raise refused(
            argument.text,
            f"has elements of {type_name!r}, which are none of " + ", ".join(TYPE_NAMES)
            if argument.type
            else f"needs a type, for example {argument.name}:float32: "
            f"its parameter is `{parameter}`",
        )
    dtype = BUFFER_DTYPES[_vector_base(vector) if vector else TYPE_NAMES[type_name]]
    shape = argument.sizes + ((int(vector[2]),) if vector else ())
    if math.prod(shape) * dtype.itemsize > MOST_BYTES:
        raise refused(argument.text, f"has more than {MOST_BYTES >> 30} GiB")
    is_input = argument.role == "in" or (not argument.role and _is_constant(parameter))
    role = "input" if is_input else ROLES[argument.role or "inout"]
    fill = argument.value or ("poison" if argument.role in ("out", "workspace") else "random")
    values = _values(argument, fill, shape, dtype, folder, random)
    return contiguous_tensor(argument.name, role, dtype, shape, values)


def _values(
    argument: ArgumentText,
    fill: str,
    shape: tuple[int, ...],
    dtype: np.dtype,
    folder: Path,
    random: np.random.Generator,
) -> np.ndarray | None:
    where = f"--arg {argument.text!r}"
    try:
        if fill.startswith("@"):
            return array_from_file(folder / fill[1:], shape, dtype, where)
        number: str | float = fill
        if re.fullmatch(r"[-+]?(?:\d|\.\d|inf|nan).*", fill):
            number = float(fill)
        return filled_array(number, shape, dtype, random, where)
    except ValueError:
        raise refused(argument.text, f"has the value {fill!r}, which is not a number") from None
    except SpecError as error:
        raise UsageError(error.message, code="bad_command_line", mend=GRAMMAR) from None


def _is_constant(parameter: str) -> bool:
    """Whether what the parameter points to is const."""
    return re.search(r"\bconst\b", parameter.partition("*")[0]) is not None


def suggestion(parameters: Sequence[str]) -> str:
    """Arguments for a kernel's parameters, to be edited."""

    def suggested(parameter: str) -> str:
        name = parameter_name(parameter) or "NAME"
        base = _base_type(parameter)
        shown = f":{TYPE_NAMES.get(base, base)}" if base else ""
        return f"--arg {name}{shown}{'[N]' if '*' in parameter or '[' in parameter else '=VALUE'}"

    return " ".join(map(suggested, parameters))
