"""The first values of an imported tensor, spelt as for `greenfast check`: `x:int32[n]=zeros`."""

from __future__ import annotations

import re
from collections.abc import Set

from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.expressions import expression, require_names

FILLS = ("random", "zeros", "ones", "iota")
_RANGE = re.compile(r"(?P<kind>range|offsets)\((?P<first>[^,]+),(?P<end>[^,]+)\)\Z")


def checked_fill(text: str, name: str, scalars: Set[str]) -> str:
    """Python code of the values for `stored` of reference.py; UsageError for unknown words.

    The ends of a range are expressions over `scalars`.
    """
    text = text.strip()
    if text in ("zeros", "ones"):
        return "0" if text == "zeros" else "1"
    if text in FILLS:
        return repr(text)
    if (ends := _RANGE.match(text)) is not None:
        kind = "'offsets', " if ends["kind"] == "offsets" else ""
        return f"({kind}{_end(ends['first'], name, scalars)}, {_end(ends['end'], name, scalars)})"
    try:
        return repr(int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text))
    except ValueError:
        raise UsageError(
            f"--arg {name}: the values {text!r} are not known",
            code="bad_argument",
            mend=f"write {', '.join(FILLS)}, range(first, end), offsets(first, last) or a number",
        ) from None


def _end(text: str, name: str, scalars: Set[str]) -> str:
    text = text.strip()
    try:
        checked = expression(text, f"--arg {name}")
        require_names(checked, scalars)
        if not checked.names:
            return repr(checked({}))
    except SpecError as error:
        raise UsageError(error.message, code="bad_argument", mend=error.mend) from error
    return f"value_of({text!r}, dims)"
