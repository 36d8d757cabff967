"""The clusters of an imported kernel: `__cluster_dims__` of its text, which its template repeats.

A template's text needs numbers there, so a parameter's name gives way to its value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from greenfast.app.cli.import_source import ENTRY, without_comments
from greenfast.search.errors import UsageError
from greenfast.search.text import visible

_DIMS = re.compile(r"__cluster_dims__\s*\((?P<sizes>[^()]*)\)")


def cluster_sizes(text: str, entry: str, defines: Mapping[str, str]) -> list[str]:
    """The sizes along x, y and z as expressions; empty without a cluster.

    `defines` are the parameters' names in the text, by those in small letters. UsageError for a
    size that is neither a number nor a parameter.
    """
    attribute = _declared(text, entry)
    if attribute is None:
        return []
    small = {define: name for name, define in defines.items()}
    sizes = [word.strip() for word in attribute["sizes"].split(",")]
    for size in sizes:
        if not size.isdigit() and size not in small:
            raise UsageError(
                f"{entry} declares clusters of {visible(attribute['sizes'].strip())!r} blocks",
                code="bad_source",
                mend="write numbers or tuned names in __cluster_dims__, separated by commas",
            )
    return [*(small.get(size, size) for size in sizes), "1", "1"][:3]


def with_cluster_sizes(text: str, entry: str, values: Mapping[str, str]) -> str:
    """The text with these values in place of names in the entry's `__cluster_dims__`."""
    attribute = _declared(text, entry)
    if attribute is None:
        return text
    begin, end = attribute.span("sizes")
    sizes = ", ".join(
        values.get(word.strip(), word.strip()) for word in attribute["sizes"].split(",")
    )
    return text[:begin] + sizes + text[end:]


def _declared(text: str, entry: str) -> re.Match[str] | None:
    """The entry's attribute, at its place in the text."""
    bare = without_comments(text)
    for kernel in ENTRY.finditer(bare):
        if kernel["name"] == entry:
            return _DIMS.search(bare, kernel.start("between"), kernel.end("between"))
    return None
