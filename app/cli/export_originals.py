"""Parameters of an imported space as its file has them, for the exports to other tuners.

A template's names are small letters, and its choices are texts: `MWG` became `mwg`, and 0.5 a text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from greenfast.app.cli.export_recording import PREFIX
from greenfast.search.errors import UsageError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.spec import Parameter
from greenfast.search.recordings.imported import is_imported
from greenfast.search.recordings.shelf import find_recording


class Originals:
    """The name and the values of each parameter in the original file."""

    def __init__(self, parameters: Sequence[Parameter] = ()) -> None:
        self._names = {each.name: each.doc for each in parameters}
        self._numbers = {}
        for each in parameters:
            numbers = {text: _number(text) for text in each.values if each.type == "choice"}
            if None not in numbers.values():
                self._numbers[each.name] = numbers

    def __call__(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        return {
            self._names.get(name, name): self._numbers.get(name, {}).get(value, value)
            for name, value in parameters.items()
        }


def _number(text: object) -> int | float | None:
    """The number that JSON writes so; None for any other text."""
    try:
        number = json.loads(str(text))
    except ValueError:
        return None
    is_number = type(number) in (int, float) and math.isfinite(number)
    return number if is_number else None


def originals_of(target: str) -> Originals:
    """The originals of `replay:NAME`, if it is an imported space that still exists."""
    if not target.startswith(PREFIX):
        return Originals()
    try:
        recording = find_recording(target.removeprefix(PREFIX))
        kernel = Catalogue.from_environment().kernel(recording.heading.kernel)
    except UsageError:
        return Originals()
    if not is_imported(recording):
        return Originals()
    return Originals(kernel.template(recording.heading.template).parameters)
