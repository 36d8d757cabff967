"""The texts of other kernels' reference.py that a kernel's reference.py imports.

With `reference_uses = ["attention"]` in its kernel.toml, a reference.py may import attention's as
`attention_reference`. A bundle holds that text as attention_reference.py beside reference.py, where
plain Python finds it.

An entry MODULE:FUNCTION names a function of the author's own, in the file MODULE.py beside
reference.py, in the folder above it, or among the modules that greenfast ships
(greenfast_bounds.py). It is imported as MODULE, and its text is carried in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from greenfast.search.errors import SpecError
from greenfast.search.kernels.author_files import read_author_file
from greenfast.search.kernels.tables import Table

SHIPPED_MODULES = Path(__file__).parent / "modules"


def importable_name(used: str) -> str:
    """The module name by which a reference imports an entry of reference_uses."""
    module, colon, _ = used.partition(":")
    return module if colon else f"{used}_reference"


def file_and_function(used: str) -> tuple[str, str]:
    """The file of an entry, as messages name it, and the function that it names, if any.

    A kernel's own name gives its reference.py.
    """
    module, _, function = used.partition(":")
    return (f"{module}.py", function) if function else (f"{used}/reference.py", "")


def module_places(module: str, folder: Path) -> tuple[Path, ...]:
    """The places to look for MODULE.py of the kernel in `folder`, in this order."""
    return tuple(place / f"{module}.py" for place in (folder, folder.parent, SHIPPED_MODULES))


def used_names(table: Table) -> tuple[str, ...]:
    """The kernels whose reference.py this kernel's reference.py imports."""
    return table.strings("reference_uses", [])


def used_reference(name: str, folder: Path, roots: Sequence[Path]) -> str:
    """The text of kernel `name`'s reference.py, which the kernel in `folder` imports.

    A bundle's folder holds it; otherwise it comes from the first of `roots` with that kernel.
    Raises SpecError when none has it, or when it imports another reference itself.
    """
    carried, where = folder / f"{importable_name(name)}.py", f"{folder.name}/kernel.toml"
    if ":" in name:
        return _module_text(name, folder, where)
    if carried.is_file():
        return read_author_file(carried, f"{folder.name}/{carried.name}")
    for root in roots:
        if (root / name / "kernel.toml").is_file():
            if used_names(Table.read(root / name / "kernel.toml", f"{name}/kernel.toml")):
                raise SpecError(
                    f"{where}: reference_uses names {name!r}, whose reference.py uses another one",
                    code="nested_reference",
                    mend="name a kernel without reference_uses",
                )
            return read_author_file(root / name / "reference.py", f"{name}/reference.py")
    known = sorted({path.parent.name for root in roots for path in root.glob("*/kernel.toml")})
    raise SpecError(
        f"{where}: reference_uses names {name!r}, and no such kernel is beside it or shipped",
        code="unknown_kernel",
        mend="known: " + ", ".join(known),
    )


def _module_text(name: str, folder: Path, where: str) -> str:
    module, function = name.split(":", 1)
    if not (module.isidentifier() and function.isidentifier()) or module == "reference":
        raise SpecError(
            f"{where}: reference_uses holds {name!r}",
            code="bad_spec",
            mend="write MODULE:FUNCTION for a function of MODULE.py, or the name of a kernel",
        )
    for path in module_places(module, folder):
        if path.is_file():
            return read_author_file(path, f"{module}.py")
    raise SpecError(
        f"{where}: reference_uses names {name!r}, and there is no {module}.py",
        code="unknown_module",
        mend="it may be beside reference.py or in the folder above",
    )
