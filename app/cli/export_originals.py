"""Parameters of an imported space as its file has them, for the exports to other tuners.

A template's names are small letters, and its choices are texts: `MWG` became `mwg`, and 0.5 a text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from greenfast.app.cli.export_recording import PREFIX
from greenfast.search.errors import UsageError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.spec import Parameter
from greenfast.search.recordings.foreign_kernel import ORIGINALS
from greenfast.search.recordings.imported import is_imported
from greenfast.search.recordings.shelf import find_recording


class Originals:
    """The name and the values of each parameter in the original file."""

    def __init__(self, parameters: Sequence[Parameter] = (), folder: Path | None = None) -> None:
        self._names = {each.name: each.doc for each in parameters}
        stored = _stored(folder)
        self._values = {each.name: stored.get(each.name) or _numbers(each) for each in parameters}

    def __call__(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        return {
            self._names.get(name, name): self._values.get(name, {}).get((type(value), value), value)
            for name, value in parameters.items()
        }


def _stored(folder: Path | None) -> dict[str, dict[tuple[type, Any], Any]]:
    """The values that an import kept; empty for an import from before they were kept."""
    if folder is None or not (folder / ORIGINALS).is_file():
        return {}
    try:
        table = json.loads((folder / ORIGINALS).read_text("utf-8"))
        return {
            name: {(type(here), here): there for here, there in pairs}
            for name, pairs in table.items()
        }
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{folder / ORIGINALS} is damaged",
            code="space_damaged",
            mend="import the space again with --replace",
        ) from error


def _numbers(parameter: Parameter) -> dict[tuple[type, Any], Any]:
    """Choices that are all numbers, as numbers."""
    numbers = {text: _number(text) for text in parameter.values if parameter.type == "choice"}
    if None in numbers.values():
        return {}
    return {(str, text): number for text, number in numbers.items()}


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
    template = kernel.template(recording.heading.template)
    return Originals(template.parameters, kernel.folder)
