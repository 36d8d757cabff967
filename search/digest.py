"""Identity: the SHA-256 of a value's canonical JSON, over *all* fields of frozen dataclasses.

A class leaves a field out of its digest only by naming it in `DIGEST_EXCLUDES`. It leaves out a
field named in `DIGEST_WHEN_SET` while the field has its default, so that values from before the
field existed keep their digests.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any


def canonical(value: Any) -> Any:
    """`value` as JSON data with exactly one spelling.

    Dataclasses carry their class name, and mappings have sorted keys. Raises TypeError for a type
    that has no canonical form.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        excluded: frozenset[str] = getattr(value, "DIGEST_EXCLUDES", frozenset())
        when_set: frozenset[str] = getattr(value, "DIGEST_WHEN_SET", frozenset())
        fields = {
            field.name: canonical(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.name not in excluded
            and not (field.name in when_set and getattr(value, field.name) == field.default)
        }
        return {"type": type(value).__name__, "fields": fields}
    if isinstance(value, Enum):
        return canonical(value.value)
    if isinstance(value, Mapping):
        return {str(key): canonical(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, (tuple, list)):
        return [canonical(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(canonical(item) for item in value)
    if isinstance(value, (str, bool, int, type(None))):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(
        f"a {type(value).__name__} has no canonical form, so it cannot be part of an identity"
    )


def digest(value: Any) -> str:
    """The identity of `value`: 64 hexadecimal digits."""
    text = json.dumps(
        canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def text_digest(text: str) -> str:
    """The SHA-256 of a text's UTF-8 bytes, as `sha256sum` prints it for the saved file."""
    return hashlib.sha256(text.encode()).hexdigest()
