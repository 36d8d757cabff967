"""What a kernel's reference.py builds on: the reference.py of other kernels, as texts.

With `reference_uses = ["attention"]` in its kernel.toml, a reference.py may import `attention_reference` (at its top or in
a function): attention's reference.py. A bundle has it as attention_reference.py beside reference.py, where plain Python
finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from greenfast.search.errors import SpecError
from greenfast.search.kernels.tables import Table
from greenfast.search.kernels.template_text import read_text


def importable_name(kernel: str) -> str:
    """What another kernel's reference.py imports `kernel`'s by."""
    return f"{kernel}_reference"


def used_names(table: Table) -> tuple[str, ...]:
    """The kernels that a kernel.toml names as what its reference.py builds on."""
    return table.strings("reference_uses", [])


def used_reference(name: str, folder: Path, roots: Sequence[Path]) -> str:
    """The reference.py of kernel `name`, which the kernel in `folder` builds on: from `folder` itself, where it is a
    bundle's, else from the first of `roots` that has that kernel. SpecError: none has it, or it does not stand alone."""
    carried, where = folder / f"{importable_name(name)}.py", f"{folder.name}/kernel.toml"
    if carried.is_file():
        return read_text(carried, f"{folder.name}/{carried.name}")
    for root in roots:
        if (root / name / "kernel.toml").is_file():
            if used_names(Table.read(root / name / "kernel.toml", f"{name}/kernel.toml")):
                raise SpecError(
                    f"{where}: reference_uses names {name!r}, whose reference.py builds on another itself",
                    code="nested_reference",
                    mend="name one that stands alone",
                )
            return read_text(root / name / "reference.py", f"{name}/reference.py")
    known = sorted({path.parent.name for root in roots for path in root.glob("*/kernel.toml")})
    raise SpecError(
        f"{where}: reference_uses names {name!r}, and no such kernel is beside it or shipped",
        code="unknown_kernel",
        mend="known: " + ", ".join(known),
    )
