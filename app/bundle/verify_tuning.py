"""`greenfast verify` on a tuning bundle: its table, and each of its kernels."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from greenfast.app.bundle.download import json_of
from greenfast.app.bundle.opened import kernel_of
from greenfast.app.bundle.opened_tuning import OpenedTuning, is_tuning, open_tuning
from greenfast.app.bundle.tuning import COMPILE_OPTIONS, operation
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
from greenfast.search.kernels.spec import KernelSpec
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
    ]
    templates: list[str] = []
    for kernel_id, catalogue in catalogues.items():
        bundle = tuning.bundle_of(kernel_id)
        with tempfile.TemporaryDirectory(prefix="greenfast-verify-") as folder:
            stated = kernel_of(bundle, Path(folder))
            if not templates:
                items.append(_manifest_item(tuning, stated, bundle.launch))
                items.append(_programs_item(tuning, stated))
            kernel = judged_kernel((services.catalogue, catalogue), stated)
            own = rechecked(services, bundle, kernel, name, catalogue, seed, trust=trust)
        templates.append(f"{bundle.launch['template']} ({kernel_id})")
        items += [replace(item, name=f"{kernel_id} {item.name}") for item in own]
    return Report(path.name, tuning.table.kernel, ", ".join(templates), name, seed, tuple(items))


def _manifest_item(tuning: OpenedTuning, kernel: KernelSpec, launch: Mapping[str, Any]) -> Item:
    """Readers of the format take these from the manifest, and the other items from other files.

    The kernel's identity is not compared: it depends on the version of greenfast that wrote it.
    """
    manifest, device = tuning.manifest, tuning.manifest["device"]
    sm_count = device.get("sm_count") if isinstance(device, dict) else None
    options = {"compile_options": list(COMPILE_OPTIONS), "sm_count": launch.get("sm_count")}
    given = json.loads(json_of({**operation(kernel), **options}))
    stated = {
        **manifest["kernel"],
        "compile_options": manifest["compile_options"],
        "sm_count": sm_count,
    }
    wrong = [name for name in given if name != "identity" and stated.get(name) != given[name]]
    wrong += [
        f"alignment of {row['id']}"
        for row in manifest["kernels"]
        if row.get("alignment") != tuning.bundle_of(row["id"]).launch.get("alignment")
    ]
    if wrong:
        words = f"manifest.json has other {' and '.join(wrong)} than the other files give"
        return Item("manifest", Finding.DISAGREES, words)
    return Item("manifest", Finding.AGREES, "manifest.json has what the other files give")


def _programs_item(tuning: OpenedTuning, kernel: KernelSpec) -> Item:
    return programs_item(changed_callers(tuning, kernel.reference_files.keys()))


def _dispatch_sentence(tuning: OpenedTuning) -> str:
    groups = tuning.table.groups
    workloads = sum(len(group.workloads) for group in groups)
    rules = sum(len(group.rules) for group in groups)
    return (
        f"the rules ({rules}) pick the kernel that the table states for each tuned workload "
        f"({workloads}), within {tuning.table.within_percent:g} % of the best "
        f"({tuning.table.time_kind} times)"
    )
