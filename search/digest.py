"""Identity: the SHA-256 of a value's canonical JSON, over *all* fields of frozen dataclasses.

A field stays out of a digest only by being named in its class's `DIGEST_EXCLUDES`, and a test changes each
other field and sees the digest change. One named in `DIGEST_WHEN_SET` stays out while it has its default, so that what
does without it keeps the name that it had before there was such a field.
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
    """`value` as plain JSON data with one spelling: dataclasses carry their class name, mappings sorted keys."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        excluded, when_set = (
            getattr(value, name, frozenset()) for name in ("DIGEST_EXCLUDES", "DIGEST_WHEN_SET")
        )
        fields = {
            f.name: canonical(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if f.name not in excluded
            and not (f.name in when_set and getattr(value, f.name) == f.default)
        }
        return {"type": type(value).__name__, "fields": fields}
    if isinstance(value, Enum):
        return canonical(value.value)
    if isinstance(value, Mapping):
        return {str(key): canonical(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, (tuple, list)):
        return [canonical(one) for one in value]
    if isinstance(value, frozenset):
        return sorted(canonical(one) for one in value)
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
    """64 hexadecimal digits that name `value`."""
    text = json.dumps(
        canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def text_digest(text: str) -> str:
    """64 hexadecimal digits that name a text by its bytes: what `sha256sum` prints for the saved file."""
    return hashlib.sha256(text.encode()).hexdigest()
