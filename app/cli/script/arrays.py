"""What NumPy, CuPy and alike make: arrays by their shapes, and numbers of their types."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from greenfast.app.cli.import_parameters import C_TYPES
from greenfast.app.cli.import_source import SPELLINGS
from greenfast.app.cli.script.values import (
    LONGEST_LIST,
    Array,
    Named,
    Scalar,
    Unknown,
    bounded,
    items,
    number,
)

SCALARS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
           "float16", "float32", "float64")  # fmt: skip
_EMPTY = ("zeros", "empty", "zeros_like", "empty_like")
_BY_SHAPE = ("zeros", "ones", "empty", "full", "random", "random_sample", "standard_normal")
_LIKE = ("zeros_like", "ones_like", "empty_like", "full_like")
_BY_SIZE = ("randint", "integers", "uniform", "normal", "random_integers")
_SAME = ("array", "asarray", "ascontiguousarray", "asfortranarray", "copy", "to_device")
_BY_ELEMENT = ("abs", "absolute", "sqrt", "exp", "log", "sin", "cos", "tanh", "square", "clip",
               "round", "floor", "ceil", "negative")  # fmt: skip
_MOST_VALUES = 4096
_DTYPE_PLACES = {"zeros": 1, "ones": 1, "empty": 1, "full": 2, "array": 1, "asarray": 1,
                 "zeros_like": 1, "ones_like": 1, "empty_like": 1, "full_like": 2}  # fmt: skip
_GENERATORS = ("default_rng", "RandomState", "Generator")


def dtype_name(value: Any) -> str | None:
    """NumPy's name of a type, however a script writes it."""
    if isinstance(value, Array):
        return None
    name = value.last if isinstance(value, Named) else value
    name = {"float": "float64", "int": "int64", "bool_": "bool", "double": "float64",
            "single": "float32", "half": "float16", "intc": "int32"}.get(name, name)  # fmt: skip
    code = re.fullmatch(r"[<=|]?([fiu])([1248])", name) if isinstance(name, str) else None
    if code is not None:  # NumPy's short name, such as f4 and <i8
        name = {"f": "float", "i": "int", "u": "uint"}[code[1]] + str(8 * int(code[2]))
    return name if name in SPELLINGS or name in C_TYPES.values() else None


def scalar(name: str, value: Any) -> Any:
    """`np.float32(value)`, of an array too."""
    if isinstance(value, Array):
        return replace(value, dtype=name)
    plain = number(value)
    if plain is None or (name.startswith(("int", "uint")) and not math.isfinite(plain)):
        return Unknown()
    return Scalar(name, float(plain) if name.startswith("float") else int(plain))


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Sizes, given as one number or as several."""
    parts = items(value) if not isinstance(value, Array) else value.values
    sizes = [number(each) for each in ([value] if parts is None else parts)]
    if not sizes or any(each is None or each != int(each) for each in sizes):
        return None
    shape = tuple(int(each) for each in sizes if each is not None)
    return shape if all(-1 <= size < 2**40 for size in shape) and len(shape) <= 16 else None


def made(name: str, given: Sequence[Any], words: Mapping[str, Any]) -> Any:
    """The array that a function of NumPy makes; ... where it is no such function."""
    if name in _GENERATORS:
        return Named("random")
    if name in SCALARS and len(given) == 1 and not words:
        return scalar(name, given[0])
    array = _made(name, given, words)
    if not isinstance(array, Array):
        return array
    place = _DTYPE_PLACES.get(name, 99)
    dtype = words.get("dtype", given[place] if len(given) > place else None)
    if dtype is not None:
        known = dtype_name(dtype)
        if known is None:
            return Unknown()
        array = replace(array, dtype=known)
    is_zero = name in ("full", "full_like") and len(given) > 1 and number(given[1]) == 0
    if name in (*_BY_SHAPE, *_LIKE):
        array = replace(array, is_empty=name in _EMPTY or is_zero)
    return array


def _made(name: str, given: Sequence[Any], words: Mapping[str, Any]) -> Any:
    if name in _LIKE and given:
        return given[0] if isinstance(given[0], Array) else Unknown()
    if name in ("rand", "randn"):
        return _between(_of_shape(list(given)), name)
    if name in _BY_SIZE:
        size = words.get("size", given[2] if len(given) > 2 else None)
        dtype = "int64" if name in ("randint", "integers", "random_integers") else "float64"
        array = _of_shape(size, dtype)
        return replace(array, ends=_ends(name, given, words)) if isinstance(array, Array) else array
    if name in _BY_SHAPE and (given or "shape" in words or "size" in words):
        shape = given[0] if given else words.get("shape", words.get("size"))
        dtype = "int64" if name == "full" and _is_whole(given[1:2]) else "float64"
        return _between(_of_shape(shape, dtype), name)
    if name in ("arange", "linspace", "logspace", "geomspace"):
        return _row(name, given, words)
    if name in _SAME and given:
        return _array(given[0])
    if name in ("eye", "identity") and given:
        return _of_shape([given[0], given[0]])
    if name == "sort" and given and isinstance(given[0], Array):
        return replace(given[0], values=None, is_sorted=True)
    if name == "permutation" and given:
        return _permuted(given[0])
    if name == "choice" and given:
        size = words.get("size", given[1] if len(given) > 1 else None)
        return _permuted(given[0], size)
    if name == "cumsum" and given and isinstance(given[0], Array):
        return replace(given[0], is_empty=False, values=None, ends=None, is_sorted=True)
    if name == "concatenate" and given:
        return _concatenated(items(given[0]) or ())
    if name in _BY_ELEMENT and given and isinstance(given[0], Array):
        return replace(given[0], is_empty=False, values=None, ends=None, is_sorted=False)
    if name == "prod" and given:
        return _product(given[0])
    return ...


def _ends(
    name: str, given: Sequence[Any], words: Mapping[str, Any]
) -> tuple[int | float, int | float] | None:
    """The least and the end of random numbers, where the call has both as numbers."""
    if name == "normal":
        return None
    low = number(words.get("low", given[0] if given else 0))
    high = number(words.get("high", given[1] if len(given) > 1 else None))
    if high is None and name != "uniform":  # randint(9) ends before 9
        low, high = 0, low
    return (low, high) if low is not None and high is not None and low < high else None


def _between(array: Any, name: str) -> Any:
    """The array; from 0 to 1 where the function's random numbers are."""
    is_unit = isinstance(array, Array) and name in ("rand", "random", "random_sample")
    return replace(array, ends=(0.0, 1.0)) if is_unit else array


def _is_whole(values: Sequence[Any]) -> bool:
    return all(isinstance(number(value), int) for value in values)


def _of_shape(value: Any, dtype: str = "float64") -> Any:
    shape = shape_of(value)
    return Unknown() if shape is None or -1 in shape else Array(shape, dtype)


def _row(name: str, given: Sequence[Any], words: Mapping[str, Any]) -> Any:
    """`arange`, and `linspace` and alike."""
    numbers = [value for each in given if (value := number(each)) is not None]
    if name != "arange":
        return _spaced(name, given, words)
    if not 0 < len(numbers) == len(given) <= 3:
        return Unknown()
    if not all(isinstance(each, int) for each in numbers):
        low, high = (0, numbers[0]) if len(numbers) == 1 else numbers[:2]
        step = numbers[2] if len(numbers) == 3 else 1
        return _of_shape(max(math.ceil((high - low) / step), 0)) if step else Unknown()
    if len(numbers) == 3 and not numbers[2]:
        return Unknown()
    whole = range(*map(int, numbers))
    return Array((len(whole),), "int64", values=whole if len(whole) <= _MOST_VALUES else None)


def _spaced(name: str, given: Sequence[Any], words: Mapping[str, Any]) -> Any:
    """`linspace`, `logspace` and `geomspace`: numbers between two ends, which are among them."""
    low, high, count, base = (
        number(words.get(word, given[place] if len(given) > place else default))
        for place, (word, default) in enumerate(
            (("start", None), ("stop", None), ("num", 50), ("base", 10.0))
        )
    )
    if low is None or high is None or not isinstance(count, int) or base is None or count < 1:
        return Unknown()
    if count > _MOST_VALUES or words.get("endpoint", True) is not True:
        return _of_shape(count)
    try:
        shares = [each / max(count - 1, 1) for each in range(count)]
        values = [low + (high - low) * share for share in shares]
        if name == "logspace":
            values = [float(base) ** value for value in values]
        if name == "geomspace":
            values = [low * (high / low) ** share for share in shares]
    except (ArithmeticError, ValueError):
        return Unknown()
    is_real = all(isinstance(value, (int, float)) for value in values)
    return Array((count,), values=[float(value) for value in values]) if is_real else Unknown()


def _array(value: Any) -> Any:
    """`np.array(value)`."""
    if isinstance(value, Array):
        return replace(value, is_list=False)
    if number(value) is not None:
        return Array((), "int64" if isinstance(number(value), int) else "float64")
    parts = items(value)
    if not parts or len(parts) > LONGEST_LIST:
        return Unknown()
    numbers = [number(each) for each in parts]
    if all(each is not None for each in numbers):
        first = parts[0]
        dtype = "int64" if _is_whole(parts) else "float64"
        dtype = first.dtype if isinstance(first, Scalar) else dtype
        return Array((len(parts),), dtype, values=numbers)
    inner = [_array(each) for each in parts[:64]]
    if not all(isinstance(each, Array) and each.shape == inner[0].shape for each in inner):
        return Unknown()
    return Array((len(parts), *inner[0].shape), inner[0].dtype)


def _permuted(value: Any, size: Any = None) -> Any:
    """Numbers of an array, or below a number, in another order; `size` of them."""
    high = number(value)
    array = Array((int(high),), "int64", ends=(0, high)) if isinstance(high, int) else _array(value)
    if not isinstance(array, Array):
        return Unknown()
    array = replace(array, values=None, is_sorted=False, ends=_ends_of(array))
    shape = array.shape if size is None else shape_of(size)
    return Unknown() if shape is None or -1 in shape else replace(array, shape=shape)


def _concatenated(parts: Sequence[Any]) -> Any:
    """One-dimensional arrays and lists, one after the other."""
    whole = parts[0] if parts else Unknown()
    for part in parts[1:]:
        is_known = isinstance(whole, (Array, list)) and isinstance(part, (Array, list))
        whole = strung(whole, part) if is_known else Unknown()
    return replace(whole, is_list=False) if isinstance(whole, Array) else Unknown()


def _product(value: Any) -> Any:
    if isinstance(value, Array) and value.values is None:
        return Unknown()
    numbers = [number(each) for each in items(value) or [value]]
    if len(numbers) > 64 or any(each is None for each in numbers):
        return Unknown()
    return bounded(math.prod(each for each in numbers if each is not None))


def method(array: Array, name: str, given: Sequence[Any], words: Mapping[str, Any]) -> Any:
    """What a method of an array gives."""
    if name == "astype" and (given or "dtype" in words):
        dtype = dtype_name(given[0] if given else words["dtype"])
        return Unknown() if dtype is None else replace(array, dtype=dtype)
    if name == "reshape" and given:
        return _reshaped(array, shape_of(given[0] if len(given) == 1 else list(given)))
    if name in ("copy", "get", "cuda", "contiguous"):
        return array
    if name in ("flatten", "ravel"):
        return replace(array, shape=(math.prod(array.shape),))
    if name == "transpose" and not given:
        return attribute(array, "T")
    if name == "tolist" and array.values is not None:
        return list(array.values)
    return Unknown()


def _reshaped(array: Array, shape: tuple[int, ...] | None) -> Any:
    if shape is None or shape.count(-1) > 1 or 0 in shape:
        return Unknown()
    rest = math.prod(array.shape) // math.prod(size for size in shape if size != -1)
    return replace(array, shape=tuple(rest if size == -1 else size for size in shape), values=None)


def attribute(array: Array, name: str) -> Any:
    """An attribute of an array."""
    match name:
        case "size":
            return math.prod(array.shape)
        case "shape":
            return array.shape
        case "itemsize" | "nbytes":
            bits = int("".join(re.findall(r"\d+", array.dtype)) or 8)
            return bits // 8 * (math.prod(array.shape) if name == "nbytes" else 1)
        case "ndim":
            return len(array.shape)
        case "dtype":
            return array.dtype
        case "T":
            return replace(array, shape=array.shape[::-1], values=None)
    return Unknown()


def combined(
    left: Any, operation: Callable[[Any, Any], Any], right: Any, is_linear: bool = False
) -> Any:
    """An operation element by element; a linear one keeps what lies between two ends there."""
    arrays = [each for each in (left, right) if isinstance(each, Array)]
    others = [each for each in (left, right) if not isinstance(each, Array)]
    if any(number(each) is None for each in others):
        return Unknown()
    array = max(arrays, key=lambda each: len(each.shape))
    if len({each.dtype for each in arrays}) > 1:
        return Unknown()
    if len(arrays) == 2 and len(arrays[0].shape) == len(arrays[1].shape):
        shape = tuple(map(max, arrays[0].shape, arrays[1].shape))
        return replace(array, shape=shape, is_empty=False, values=None, ends=None)
    values = None
    if array.values is not None and len(arrays) == 1 and len(array.values) <= _MOST_VALUES:
        plain = [
            operation(number(left) if left is not array else each,
                      number(right) if right is not array else each)
            for each in array.values
        ]  # fmt: skip
        values = None if any(number(each) is None for each in plain) else plain
    dtype = array.dtype
    if dtype.startswith(("int", "uint")) and any(
        isinstance(number(each), float) for each in others
    ):
        dtype = "float64"
    ends = _moved(left, operation, right, array) if is_linear and len(arrays) == 1 else None
    is_sorted = array.is_sorted and ends is not None and ends[0] < ends[1]
    ends = ends if ends is None else (min(ends), max(ends))
    return replace(
        array, dtype=dtype, is_empty=False, values=values, ends=ends, is_sorted=is_sorted
    )


def _moved(
    left: Any, operation: Callable[[Any, Any], Any], right: Any, array: Array
) -> tuple[int | float, int | float] | None:
    """Where a linear operation takes the ends of an array's numbers."""
    if array.ends is None:
        return None
    low, high = (
        number(operation(number(left) if left is not array else end,
                         number(right) if right is not array else end))
        for end in array.ends
    )  # fmt: skip
    return None if low is None or high is None else (low, high)


def strung(left: Any, right: Any) -> Any:
    """Two lists one behind the other, of which one at least has unknown numbers."""
    parts = [each if isinstance(each, Array) else _array(list(each)) for each in (left, right)]
    if not all(isinstance(each, Array) and len(each.shape) == 1 for each in parts):
        given = [each for each in (left, right) if isinstance(each, Array)]
        return given[0] if [] in (left, right) or () in (left, right) else Unknown()
    first, second = map(_ends_of, parts)
    ends, in_order = None, False
    if first is not None and second is not None:
        ends = (min(first[0], second[0]), max(first[1], second[1]))
        in_order = first[1] <= second[0] and all(map(_is_rising, parts))
    known = parts[0] if isinstance(left, Array) else parts[1]
    shape = (parts[0].shape[0] + parts[1].shape[0],)
    return replace(known, shape=shape, values=None, ends=ends, is_sorted=in_order, is_list=True)


def _ends_of(array: Array) -> tuple[int | float, int | float] | None:
    numbers = [value for each in array.values or () if (value := number(each)) is not None]
    return (min(numbers), max(numbers)) if numbers else array.ends


def _is_rising(array: Array) -> bool:
    numbers = [value for each in array.values or () if (value := number(each)) is not None]
    return array.is_sorted or (bool(numbers) and numbers == sorted(numbers))
