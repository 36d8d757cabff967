"""Which argument of a failed call is of a kind that the operation never takes.

The calls are written for speed and check little, so arguments are examined only after something
has failed. If all are of the right kinds, the original exception is raised: PyTorch's own messages
about shapes and devices are clear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from greenfast.runtime.frameworks import framework_of
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.text import shortened


def require_right_kinds(
    operation: str, error: Exception | None, arguments: Mapping[str, Any]
) -> None:
    """UsageError for the first argument that is no tensor, number, flag or name where one goes.

    `arguments` are those of a call by name, with their defaults; `error` is what it has raised.
    """
    if isinstance(error, GreenfastError):
        return
    optional = _OPTIONAL | ({"weight"} if operation == "rms_norm" else set())
    for name, value in arguments.items():
        is_right, wanted, code = _KINDS[name]
        if name in optional and value is None:
            continue
        if not is_right(value):
            raise UsageError(
                f"{operation}: {name} is {_kind(value)}, not {wanted}", code=code
            ) from error
    _require_one_library(operation, error, arguments)


def _require_one_library(
    operation: str, error: Exception | None, arguments: Mapping[str, Any]
) -> None:
    """UsageError for PyTorch's tensors among those of another library."""
    libraries = {
        name: _library(value)
        for name, value in arguments.items()
        if _KINDS[name] is _TENSOR and value is not None
    }
    first = next(iter(libraries), "")
    for name, library in libraries.items():
        if library != libraries[first] and "torch" in (library, libraries[first]):
            raise UsageError(
                f"{operation}: {name} is {_kind(arguments[name])} of {library}, and {first} of "
                f"{libraries[first]}",
                code="bad_call",
                mend="convert one of them, for example by torch.from_dlpack",
            ) from error


def _library(value: object) -> str:
    framework = framework_of(value)
    return framework.name if framework else type(value).__module__.partition(".")[0]


def _kind(value: object) -> str:
    """A value in a sentence: its type, and how it is written where that is short."""
    kind = type(value).__name__
    if value is None or isinstance(value, type):
        return shortened(str(value), 40)
    if isinstance(value, (str, bytes, int, float, complex)):
        try:
            return f"{shortened(repr(value), 40)}"
        except ValueError:  # an int with more digits than Python writes
            return "a very large int"
    return f"of type {shortened(kind, 40)}"


def is_tensor(value: object) -> bool:
    """Whether it is an array of a library that is known, or one that speaks DLPack."""
    return framework_of(value) is not None or hasattr(type(value), "__dlpack__")


def _is_number(value: Any) -> bool:
    """A float, or a number that a float can hold; a tensor's number can change between calls."""
    return isinstance(value, float) or _is_finite(value)


def _is_finite(value: Any) -> bool:
    return isinstance(value, Real) and abs(value) < LARGEST_NUMBER  # type: ignore[operator]


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")  # NumPy's


def _is_name(value: Any) -> bool:
    return isinstance(value, str)


LARGEST_NUMBER = 2**1000
Kind = tuple[Callable[[Any], bool], str, str]
_TENSOR: Kind = is_tensor, "a tensor", "not_a_tensor"
_FLAG: Kind = _is_flag, "True or False", "bad_call"
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("q", "k", "v", "attn_mask", "out"), _TENSOR),
    **dict.fromkeys(("x", "weight", "bias", "residual"), _TENSOR),
    **dict.fromkeys(("is_causal", "enable_gqa", "return_lse"), _FLAG),
    "dropout_p": (_is_number, "a number", "bad_call"),
    "scale": (_is_number, "a number", "bad_call"),
    "eps": (_is_finite, "a finite number", "bad_call"),
    "mask": (_is_name, "the name of a mask", "bad_mask"),
    "activation": (_is_name, "the name of an activation", "bad_activation"),
}
_OPTIONAL = {"attn_mask", "out", "bias", "residual", "mask", "scale"}
