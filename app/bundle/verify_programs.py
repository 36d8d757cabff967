"""Whether a bundle's programs are those that greenfast writes: its readers run them.

Hashes tell nothing here: whoever changes a program can write its new hash.
"""

from __future__ import annotations

from collections.abc import Collection

from greenfast.app.bundle.callers import callers
from greenfast.app.bundle.download import example_programs
from greenfast.app.bundle.launch_header import launch_header
from greenfast.app.bundle.machine_code import is_machine_code
from greenfast.app.bundle.opened import NEEDED, OpenedBundle
from greenfast.app.bundle.opened_tuning import MANIFEST, NEEDED_FOR_KERNELS, OpenedTuning
from greenfast.runtime.archive import MALFORMED
from greenfast.search.kernels.spec import KernelSpec

CALLERS = "cpp/"
# Files beside those that a bundle needs. README.txt holds words, the others are compared elsewhere.
BASELINE = ("baseline.cu", "baseline_launch.json", "baseline_template.toml")
OTHERS = ("README.txt", *BASELINE, "baseline_template.cu.j2")


def changed_programs(bundle: OpenedBundle, kernel: KernelSpec) -> tuple[str, ...]:
    """Programs that differ from what this greenfast writes, and files that it never writes."""
    programs = {**example_programs(), "launch.h": _header(bundle)}
    known = {*NEEDED, *OTHERS, *kernel.reference_files}
    return tuple(
        name
        for name, data in sorted(bundle.files.items())
        if name not in known and not is_machine_code(name) and data != programs.get(name)
    )


def changed_callers(tuning: OpenedTuning, references: Collection[str]) -> tuple[str, ...]:
    """The same of a tuning bundle, whose programs are the C++ callers."""
    files = tuning.files
    written = callers({name: data for name, data in files.items() if not name.startswith(CALLERS)})
    known = {
        "": {MANIFEST, "dispatch.json", "kernel.toml", "README.txt", *references},
        **{f"kernels/{kernel}": {*NEEDED_FOR_KERNELS, *OTHERS} for kernel in tuning.kernels},
    }

    def is_known(name: str) -> bool:
        folder, _, own = name.rpartition("/")
        is_code = folder.startswith("kernels/") and is_machine_code(own)
        return folder in known and (is_code or own in known[folder])

    return tuple(
        name
        for name, data in sorted(files.items())
        if not is_known(name) and data != written.get(name)
    )


def _header(bundle: OpenedBundle) -> bytes:
    try:
        return launch_header(bundle.launch).encode()
    except MALFORMED:  # the item `launch` reports what is wrong there
        return b""
