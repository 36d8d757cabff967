"""`greenfast verify` on a tuning bundle: its table, and each of its kernels."""

from __future__ import annotations

import secrets
import tempfile
from dataclasses import replace
from pathlib import Path

from greenfast.app.bundle.opened import kernel_of
from greenfast.app.bundle.opened_tuning import OpenedTuning, is_tuning, open_tuning
from greenfast.app.bundle.verify import (
    Finding,
    Item,
    Report,
    programs_item,
    rechecked,
    target_to_verify,
    verify_bundle,
    vouching_catalogue,
)
from greenfast.app.bundle.verify_programs import changed_callers
from greenfast.app.bundle.verify_trust import judged_kernel
from greenfast.app.wiring import Services
from greenfast.search.oracle.cases import LARGEST_SEED
from greenfast.search.targets import check_target_name


def verify_any(
    services: Services,
    path: Path,
    target_name: str | None = None,
    *,
    trust: bool = False,
    seed: int | None = None,
) -> Report:
    """Recheck a candidate bundle or a tuning bundle."""
    if is_tuning(path):
        return verify_tuning(services, path, target_name, trust=trust, seed=seed)
    return verify_bundle(services, path, target_name, trust=trust, seed=seed)


def verify_tuning(
    services: Services,
    path: Path,
    target_name: str | None = None,
    *,
    trust: bool = False,
    seed: int | None = None,
) -> Report:
    """Recheck the table and every kernel; errors are those of `verify_bundle`."""
    tuning = open_tuning(path)
    name = target_to_verify(target_name)
    rendered = check_target_name(name)[0] == "emulator"
    seed = secrets.randbelow(LARGEST_SEED) if seed is None else seed
    # Whose code is run is settled before any of it runs.
    catalogues = {
        each: vouching_catalogue(services, tuning.bundle_of(each), rendered=rendered, trust=trust)
        for each in tuning.kernels
    }
    items = [
        Item("files", Finding.AGREES, f"all {len(tuning.files) - 1} files match the manifest"),
        Item("dispatch", Finding.AGREES, _dispatch_sentence(tuning)),
        programs_item(changed_callers(tuning.files)),
    ]
    templates = []
    for kernel_id, catalogue in catalogues.items():
        bundle = tuning.bundle_of(kernel_id)
        templates.append(f"{bundle.launch['template']} ({kernel_id})")
        with tempfile.TemporaryDirectory(prefix="greenfast-verify-") as folder:
            stated = kernel_of(bundle, Path(folder))
            kernel = judged_kernel((services.catalogue, catalogue), stated)
            own = rechecked(services, bundle, kernel, name, catalogue.include_dirs, seed)
        items += [replace(item, name=f"{kernel_id} {item.name}") for item in own]
    return Report(path.name, tuning.table.kernel, ", ".join(templates), name, seed, tuple(items))


def _dispatch_sentence(tuning: OpenedTuning) -> str:
    groups = tuning.table.groups
    workloads = sum(len(group.workloads) for group in groups)
    rules = sum(len(group.rules) for group in groups)
    return (
        f"the rules ({rules}) pick the kernel that the table states for each tuned workload "
        f"({workloads}), within {tuning.table.within_percent:g} % of the best "
        f"({tuning.table.time_kind} times)"
    )
