"""Which kind of bundle a set of files is, and the kernels in it."""

from __future__ import annotations

from collections.abc import Mapping

from greenfast.runtime.archive import MANIFEST, bad_bundle
from greenfast.runtime.fallbacks import FALLBACKS
from greenfast.runtime.kernel_set import KernelSet
from greenfast.runtime.single_bundle import single_program
from greenfast.runtime.tuning_bundle import tuned_set


def kernel_set(files: Mapping[str, bytes], name: str) -> KernelSet:
    """The kernels of a bundle's files; `name` is for messages."""
    if MANIFEST in files:
        kernels = tuned_set(files, name, has_library=False)
        has_library = kernels.operation.name in FALLBACKS
        return KernelSet(
            kernels.origin,
            kernels.operation,
            kernels.programs,
            kernels.groups,
            kernels.device,
            has_library,
        )
    if "launch.json" in files:
        program = single_program(files)
        return KernelSet(name, program.operation, {"k0": program})
    raise bad_bundle(f"{name} is no bundle of greenfast: it has no launch.json")
