"""The texts of other kernels' reference.py that a kernel's reference.py imports.

With `reference_uses = ["attention"]` in its kernel.toml, a reference.py may import attention's as
`attention_reference`. A bundle holds that text as attention_reference.py beside reference.py, where
plain Python finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from greenfast.search.errors import SpecError
from greenfast.search.kernels.tables import Table
from greenfast.search.kernels.template_text import read_text


def importable_name(kernel: str) -> str:
    """The module name by which other references import that of `kernel`."""
    return f"{kernel}_reference"


def used_names(table: Table) -> tuple[str, ...]:
    """The kernels whose reference.py this kernel's reference.py imports."""
    return table.strings("reference_uses", [])


def used_reference(name: str, folder: Path, roots: Sequence[Path]) -> str:
    """The text of kernel `name`'s reference.py, which the kernel in `folder` imports.

    A bundle's folder holds it; otherwise it comes from the first of `roots` with that kernel.
    Raises SpecError when none has it, or when it imports another reference itself.
    """
    carried, where = folder / f"{importable_name(name)}.py", f"{folder.name}/kernel.toml"
    if carried.is_file():
        return read_text(carried, f"{folder.name}/{carried.name}")
    for root in roots:
        if (root / name / "kernel.toml").is_file():
            if used_names(Table.read(root / name / "kernel.toml", f"{name}/kernel.toml")):
                raise SpecError(
                    f"{where}: reference_uses names {name!r}, whose reference.py uses another one",
                    code="nested_reference",
                    mend="name a kernel without reference_uses",
                )
            return read_text(root / name / "reference.py", f"{name}/reference.py")
    known = sorted({path.parent.name for root in roots for path in root.glob("*/kernel.toml")})
    raise SpecError(
        f"{where}: reference_uses names {name!r}, and no such kernel is beside it or shipped",
        code="unknown_kernel",
        mend="known: " + ", ".join(known),
    )
