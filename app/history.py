"""Earlier searches and champions, compared with today's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from greenfast.db.rows import ChampionRow
from greenfast.search.devices.facts import Device, device, device_names
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.gates.version import is_of_today
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.identity import (
    earlier_form,
    kernel_identity,
    newer_checks,
    passed_checks,
    semantics_digest,
)
from greenfast.search.kernels.spec import Check, KernelSpec
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import resolve
from greenfast.search.targets import check_target_name

if TYPE_CHECKING:
    from greenfast.db.store import Store

UNSTORED_DEVICE = "h200"  # of a trial on a GPU of unknown model, for facts that are not stored


def require_same_kernel(store: Store, search_id: str, catalogue: Catalogue) -> None:
    """Refuse a changed kernel, for a search whose files were not kept.

    Added workloads and checks do not matter. UsageError `kernel_changed` names the file that
    differs, as far as the database can tell.
    """
    plan = store.plan(search_id)
    if plan.kernel not in catalogue.names():
        raise _changed(
            f"kernel {plan.kernel} is gone", "put its folder back, or start a new search"
        )
    kernel = catalogue.kernel(plan.kernel)
    if plan.kernel_digest == kernel_identity(kernel):
        return
    if earlier_form(kernel, plan.kernel_digest) is not None:
        return
    templates = [
        name
        for name in plan.templates
        if not _renders_the_same(store, search_id, plan, catalogue, name)
    ]
    files = [f"{plan.kernel}/{name}.toml, its .cu.j2 or a header" for name in templates]
    culprit = " and ".join(files)
    culprit = culprit or f"{plan.kernel}/kernel.toml, reference.py or a template that was not tried"
    raise _changed(
        f"{culprit} has changed since this search began", "undo the change, or start a new search"
    )


def _changed(change: str, mend: str) -> UsageError:
    return UsageError(
        f"{change}, and this search was submitted before searches kept their files",
        code="kernel_changed",
        mend=mend,
    )


def _renders_the_same(
    store: Store, search_id: str, plan: SearchPlan, catalogue: Catalogue, name: str
) -> bool:
    """Whether the first trial of template `name` still has its source; True without a trial."""
    trials = store.trials(search_id, template=name, sort="number", limit=1).items
    if not trials or trials[0].source_digest is None:
        return True
    try:
        kernel = catalogue.kernel(plan.kernel)
        template = kernel.template(name)
        parameters = complete_parameters(template, trials[0].parameters, plan.compiled)
        environment = store.trial(search_id, trials[0].number).environment
        ran_on = measured_device(plan.target, environment)
        point = resolve(template, parameters, plan.compiled, ran_on)
        source = render(kernel, template, point, catalogue.include_dirs)
    except (GreenfastError, KeyError):
        return False
    return isinstance(source, RenderedSource) and source.digest == trials[0].source_digest


def measured_device(target: str, environment: Mapping[str, str] | None) -> Device:
    """The device that a trial ran on, from the search's target and the trial's environment.

    For a GPU of unknown model only the number of SMs is its own, where it is stored.
    """
    family, which = check_target_name(target)
    if family == "emulator":
        return device(which)
    stored = environment or {}
    name = stored.get("device", "")
    known = device(name if name in device_names() else UNSTORED_DEVICE)
    return replace(known, multiprocessors=int(stored.get("multiprocessors", known.multiprocessors)))


def todays_checks(catalogue: Catalogue, kernel: KernelSpec) -> tuple[Check, ...] | None:
    """The checks on which a winner of `kernel` is confirmed; None: the kernel's own.

    Today's checks apply where the kernel on disk computes the same by the same reference.
    """
    today = kernel_today(catalogue, kernel.name)
    if today is None or today is kernel or semantics_digest(today) != semantics_digest(kernel):
        return None
    return today.checks


def kernel_today(catalogue: Catalogue, name: str) -> KernelSpec | None:
    """The kernel on disk; None if it is gone or broken, which does not affect old searches."""
    try:
        return catalogue.kernel(name) if name in catalogue.names() else None
    except GreenfastError:
        return None


def recheck_of(row: ChampionRow, kernel: KernelSpec | None) -> str:
    """Why a champion should be confirmed again, or that its last recheck failed.

    Empty if it has passed all of today's checks.
    """
    if row.replaced_at is not None:
        return ""
    if row.failed_recheck is not None:
        confirmation = row.failed_recheck.confirmation
        return f"its last recheck failed: {confirmation.sentence}"
    if kernel is None:
        return ""
    if row.checks is None:
        return "recheck asked: the checks that this confirmation passed were not recorded"
    count = len(newer_checks(kernel, row.checks))
    if not count and not is_of_today(row.confirmation.environment):
        return "recheck asked: another version of greenfast's own checks judged it"
    if not count:
        return ""
    checks = f"{count} checks are" if count > 1 else "1 check is"
    return f"recheck asked: {checks} newer than this confirmation"


def adopt_champions(store: Store, catalogue: Catalogue) -> None:
    """Give the champions of an earlier version today's scope, where their kernel has not changed.

    They passed the checks that it had then.
    """
    for earlier in store.earlier_scopes():
        kernel = kernel_today(catalogue, earlier.kernel)
        form = earlier_form(kernel, earlier.kernel_digest) if kernel is not None else None
        known = {workload.name: workload for workload in form.workloads} if form is not None else {}
        if form is None or not known.keys() >= set(earlier.workloads):
            continue
        workloads = [known[name] for name in earlier.workloads]
        shapes = tuple(
            sorted((workload.dims + workload.options for workload in workloads), key=repr)
        )
        scope = replace(earlier, kernel_digest=kernel_identity(form), shapes=shapes)
        store.adopt(earlier, scope, passed_checks(form))
