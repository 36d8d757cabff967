"""What `greenfast import` prints: the files, and what a user may have to correct in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from greenfast.app.cli.import_in_out import copied
from greenfast.app.cli.imported import Imported
from greenfast.app.cli.new_files import path_advice, shown
from greenfast.app.cli.output import print_json

MOST_CHECKED = 2**21  # elements, which cost the emulator about half a minute


@dataclass(frozen=True)
class Notes:
    """What the report tells beside the files."""

    told: list[str]  # arguments from the tuning script
    host_functions: tuple[str, ...]  # which are not in the kernel
    constants: tuple[str, ...]  # constant memory that became parameters


def report(
    imported: Imported, written: Path, notes: Notes, root: Path, elements: int, as_json: bool
) -> None:
    """Print what was written. `elements` are those of a check's tensors."""
    advice = path_advice(root)
    commands = [
        *([advice] if advice else []),
        f"greenfast lint {imported.name}",
        f"greenfast search {imported.name} --trials 20",
    ]
    files = sorted(path for path in written.iterdir() if path.is_file())
    if as_json:
        print_json(
            {
                "files": [str(path) for path in files],
                "told": notes.told,
                "left_out": notes.host_functions,
                "constants": notes.constants,
                "next": commands,
            }
        )
        return
    for path in files:
        print(shown(path))
    if notes.host_functions:
        print(f"\nleft out, because they are host code: {', '.join(notes.host_functions)}")
    if notes.told:
        print("\nThe script has these arguments; correct a wrong one with --arg:")
        print("  " + " ".join(f"--arg {each}" for each in notes.told))
    for name in notes.constants:
        print(
            f"\n{name} is constant memory in {imported.source} and a parameter here, so its loads "
            "take another way and times may differ"
        )
    if repeated := imported.repeated:
        print(
            f"\nThe size {next(iter(repeated.values()))} may be {' or '.join(repeated)}. To check "
            "other sizes, too, write the names into the sizes of --arg."
        )
    if compiled := imported.compiled_dims:
        sizes = ", ".join(f"{name} = {size}" for name, size in compiled.items())
        print(
            f"\nA block or its shared memory depends on {' and '.join(compiled)}, so a candidate "
            f"is compiled for one value ({sizes} here). For another, search with --workload."
        )
    if elements > MOST_CHECKED:
        print(
            f"\nThe checks have {elements:,} elements, because sizes are numbers in the file. On "
            "the emulator they take minutes: to search there, import a copy with smaller sizes."
        )
    for copy in copied(imported.arguments):
        print(
            f"\n{copy.name} is read and written: a first launch copies {copy.before} to "
            "it, and times include the copy"
        )
    print(f"\n{imported.truth}\n\nNext:")
    for command in commands:
        print(f"  {command}")
