"""A tensor's size in a script, which is a number there, by the names of the kernel's arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement

_SMALLEST = 16  # a smaller number is rather a tile's size, or a count, than a size of the problem
_MOST_TIMES = 4  # numbers an element, such as a colour's
_MOST_BORDER = 64


def size_text(size: int, names: Mapping[int | float, str]) -> str:
    """The simplest expression of the arguments with this value, else the number.

    `names` has each argument by its value. Where two expressions are equally simple, no one knows
    which is meant.
    """
    if size in names:
        return names[size]
    numbers = sorted(int(number) for number in names if number > 1)
    for forms in (_products, _multiples, _bordered):
        found = list(dict.fromkeys(forms(size, numbers, names)))
        if found:
            return found[0] if len(found) == 1 else str(size)
    return str(size)


def _products(size: int, numbers: Sequence[int], names: Mapping[int | float, str]) -> Iterator[str]:
    """n*n, m*n*k"""
    for count in (2, 3):
        for each in combinations_with_replacement(numbers, count):
            if math.prod(each) == size:
                yield "*".join(names[number] for number in each)


def _multiples(
    size: int, numbers: Sequence[int], names: Mapping[int | float, str]
) -> Iterator[str]:
    """2*n, 3*m*n"""
    for count in (1, 2):
        for each in combinations_with_replacement(numbers, count):
            times, rest = divmod(size, math.prod(each))
            if not rest and 2 <= times <= _MOST_TIMES and math.prod(each) >= _SMALLEST:
                yield "*".join([str(times), *(names[number] for number in each)])


def _bordered(size: int, numbers: Sequence[int], names: Mapping[int | float, str]) -> Iterator[str]:
    """n+1, (m+2)*(n+2)"""
    for number in numbers:
        if _is_border(size - number, number):
            yield f"{names[number]}{size - number:+d}"
    for first, second in combinations_with_replacement(numbers, 2):
        for border in range(-_MOST_BORDER, _MOST_BORDER + 1):
            is_border = _is_border(border, first) and _is_border(border, second)
            if is_border and (first + border) * (second + border) == size:
                yield f"({names[first]}{border:+d})*({names[second]}{border:+d})"


def _is_border(border: int, number: int) -> bool:
    return number >= _SMALLEST and border != 0 and abs(border) <= min(_MOST_BORDER, number // 4)
