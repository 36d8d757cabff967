"""The expressions of a launch, as `greenfast import` is given them, and the names in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from greenfast.app.cli.import_launch import respelt
from greenfast.app.cli.import_source import own_define
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.expressions import expression
from greenfast.search.text import visible


@dataclass(frozen=True)
class Known:
    """The names that an expression may use, and those that it may be thought to."""

    source: str  # the CUDA text
    defines: Mapping[str, str]  # parameters: a name in the CUDA text by that in small letters
    sizes: tuple[str, ...]  # scalars that are whole numbers


def three(option: str, texts: Sequence[str], known: Known) -> list[str]:
    """Expressions for x, y and z, with parameters in small letters; UsageError for wrong ones."""
    if not 0 < len(texts) <= 3:
        raise UsageError(
            f"{option} is given {len(texts)} times, but must be given one to three times",
            code="bad_command_line",
            mend=f'for example {option} "ceil_div(n, block_size_x)"',
        )
    return [*(checked(option, text, known) for text in texts), "1", "1"][:3]


def checked(option: str, text: str, known: Known) -> str:
    """The expression with parameters in small letters; UsageError for one that cannot be."""
    small = respelt(text, known.defines)
    try:
        expression(text, option)
        names = expression(small, option).names
    except SpecError as error:
        raise UsageError(error.message, code="bad_expression", mend=error.mend) from error
    for name in sorted(names - {*known.defines, *known.sizes}):
        raise _unknown(f"{option}: {visible(text)!r}", name, known)
    return small


def _unknown(place: str, name: str, known: Known) -> UsageError:
    spelt = ", ".join([*known.defines.values(), *known.sizes])
    if value := own_define(known.source, name):
        sentence = f"{place} uses {name}, which the file defines as {value}"
        mend = f"tune it (--tune {name}={value}), or write its value"
    else:
        sentence, mend = f"{place} uses the unknown name {name!r}", f"known: {spelt or 'none'}"
    return UsageError(sentence, code="bad_expression", mend=mend)
