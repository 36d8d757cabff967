"""Judging a submitted source: the search that does it, and whether it was done before."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from greenfast.app.views.submission_feedback import feedback
from greenfast.app.wiring import Services, toolchain_name
from greenfast.db.rows import SearchRow, TrialDetail
from greenfast.search.errors import Fault, SpecError, UsageError
from greenfast.search.gates.version import is_of_today
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.frozen import KernelFiles, kernel_files
from greenfast.search.kernels.submitted_name import is_submitted
from greenfast.search.loop.plan import DEFAULT_TARGET, SearchPlan, SearchRequest
from greenfast.search.loop.submitted import (
    SOURCE,
    Submission,
    files_with,
    launch_of,
    plan_of_submission,
    record_in,
    retold,
    submitted_files,
    with_template,
)
from greenfast.search.shipped import own_version
from greenfast.search.status import SearchStatus
from greenfast.search.targets import check_target_name
from greenfast.search.verdict import VerdictName

if TYPE_CHECKING:
    from greenfast.db.store import Store

JSON = dict[str, Any]
# Clients that send one source at the same time get one search: of this process, and of all that
# share its data folder. The kernel frees the file's lock when a process is killed.
_ONE_AT_A_TIME = threading.Lock()
LOCK = "submissions.lock"
LOOK_S = 0.05  # between two looks at its lock
MOST_REPEATS = 20  # earlier searches of one source that are compared
WAITING = (SearchStatus.QUEUED, SearchStatus.RUNNING)
# What decides a verdict beside the source and its launches; and a seed, if one is given.
DECIDING = (
    "kernel_digest",
    "compiled",
    "shapes",
    "weights",
    "target",
    "baseline",
    "min_gain",
    "mode",
    "limits",
)


@dataclass(frozen=True)
class JudgeRequest:
    """A submission, and the settings of its judgement; None: the defaults of a search."""

    submission: Submission
    workloads: tuple[str, ...] | None = None
    target: str | None = None
    baseline: str | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Ticket:
    """The search that judges a submission; `repeated`: it was begun for an earlier request."""

    search_id: str
    repeated: bool


def submit_source(services: Services, request: JudgeRequest, name: str = "") -> Ticket:
    """Queue the search that judges a source, unless one of the same scope has or will.

    `name`: of that search in lists.
    UsageError and SpecError name what is wrong with the source, its launches or the request.
    """
    target = request.target or DEFAULT_TARGET
    if check_target_name(target)[0] == "replay":
        raise UsageError(
            f"{target} answers from a record and knows no submitted source",
            code="replay_runs_nothing",
            mend="use emulator:h200 or cuda:0",
        )
    catalogue = Catalogue.from_environment()
    kernel = catalogue.kernel(request.submission.kernel)
    submission = _with_parent(services, request.submission.checked())
    files = files_with(kernel_files(kernel, catalogue.include_dirs), kernel.folder.name, submission)
    plan = _plan(services, request, submission, files, kernel.folder.name)
    plan = replace(plan, name=name or plan.name)
    champion = services.files_of(plan, catalogue)
    with _alone_in(services.settings.data, services.settings.database_busy_s):
        if (earlier := _judged_before(services, plan, files, request.seed)) is not None:
            return Ticket(earlier, repeated=True)
        if plan.champion is not None:
            files = with_template(files, champion, plan.champion.template)
        return Ticket(services.store.submit(plan, files).id, repeated=False)


@contextmanager
def _alone_in(data: Path, wait_s: float) -> Iterator[None]:
    """No other request, of any process, is between its look and its submission meanwhile."""
    deadline = time.monotonic() + wait_s
    if not _ONE_AT_A_TIME.acquire(timeout=wait_s):
        raise _busy(wait_s)
    try:
        with _opened(data / LOCK) as lock:
            while not _is_locked(lock):
                if time.monotonic() >= deadline:
                    raise _busy(wait_s)
                time.sleep(LOOK_S)
            yield
    finally:
        _ONE_AT_A_TIME.release()


def _opened(path: Path) -> TextIO:
    try:
        return path.open("a")
    except OSError as error:
        raise Fault(
            f"{path.name} in the data folder cannot be opened: {error.strerror}",
            code="submissions_lock",
            mend="check the permissions and the free space of the data folder",
        ) from error


def _is_locked(lock: TextIO) -> bool:
    """Whether this process has the file's lock now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _busy(wait_s: float) -> Fault:
    return Fault(
        f"other submissions held {LOCK} in the data folder for {wait_s:g} s",
        code="submissions_busy",
        mend="try again; if it persists, end the process that `fuser` shows for this file",
    )


def _with_parent(services: Services, submission: Submission) -> Submission:
    """The submission with the whole digest of its parent; UsageError if that is not stored."""
    if not submission.parent:
        return submission
    try:
        parent = services.store.source(submission.parent)
    except UsageError as error:
        raise UsageError(error.message, code="unknown_parent", mend=error.mend) from error
    if parent.kernel != submission.kernel:
        raise UsageError(
            f"the parent {parent.digest[:12]} is a source of kernel {parent.kernel}",
            code="unknown_parent",
            mend=f"name a source of {submission.kernel}, or none",
        )
    return replace(submission, parent=parent.digest)


def _plan(
    services: Services,
    request: JudgeRequest,
    submission: Submission,
    files: KernelFiles,
    folder: str,
) -> SearchPlan:
    services.settings.prepare_data()
    try:
        plan = services.plan(
            SearchRequest(
                kernel=submission.kernel,
                name=f"{submission.kernel}: submission {submission.digest[:12]}",
                workloads=request.workloads,
                templates=(submission.template,),
                target=request.target,
                strategy="random",
                trials=2,
                seed=request.seed,
                baseline=request.baseline,
                reuse=False,  # the ledger goes by sources, and launches decide here, too
            ),
            services.frozen(files),
        )
    except (SpecError, UsageError) as error:
        raise type(error)(
            retold(error.message, folder, submission),
            code=error.code,
            mend=retold(error.mend, folder, submission),
        ) from error
    return plan_of_submission(plan, submission)


def _judged_before(
    services: Services, plan: SearchPlan, files: KernelFiles, seed: int | None
) -> str | None:
    """An earlier search that judges the same under the same conditions, or None."""
    assert plan.submitted is not None, "the plan is a submission's"
    store = services.store
    earlier = store.submissions(plan.kernel, plan.submitted.template, limit=MOST_REPEATS).items
    for row in earlier:
        known = store.plan(row.id)
        alike = (
            known.submitted is not None
            and known.submitted.digest == plan.submitted.digest
            and all(getattr(known, name) == getattr(plan, name) for name in DECIDING)
            and (seed is None or known.seed == seed)
            and _checks(store.frozen_files(row.id)) == _checks(files)
        )
        if alike and (row.status in WAITING or _is_current(services, row)):
            return row.id
    return None


def _checks(files: KernelFiles | None) -> tuple[tuple[str, str], ...]:
    """The files that say how every candidate is checked."""
    return tuple(
        file for file in (files.files if files else ()) if file[0].endswith("/kernel.toml")
    )


def _is_current(services: Services, row: SearchRow) -> bool:
    """Whether a completed search has a verdict of this greenfast with this toolchain."""
    if row.status != SearchStatus.COMPLETED:
        return False
    trial = judged_trial(services, row)
    return (
        trial is not None
        and trial.verdict in (VerdictName.ACCEPTED, VerdictName.GREEN, VerdictName.REJECTED)
        and trial.environment.get("greenfast") == own_version()
        and is_of_today(trial.environment)
        and trial.environment.get("toolchain") == toolchain_name(services.toolchain)
    )


def judged_trial(services: Services, row: SearchRow) -> TrialDetail | None:
    """The trial of the submission; None while it has not begun."""
    store = services.store
    candidate = store.plan(row.id).submitted
    if candidate is None:
        raise UsageError(
            f"search {row.id} judges no submitted source",
            code="unknown_submission",
            mend="`greenfast searches` lists searches",
        )
    number = store.numbers_of(row.id, (candidate.digest,)).get(candidate.digest)
    return None if number is None else store.trial(row.id, number)


def author_record(store: Store, search_id: str, template: str) -> dict[str, str]:
    """The author's statements about a submission; empty for any other template."""
    files = store.frozen_files(search_id) if is_submitted(template) else None
    return record_in(files, template) if files is not None else {}


def submission_texts(services: Services, search_id: str) -> tuple[str, str]:
    """The source and the launch file of a submission, as they were judged."""
    plan, files = services.store.plan(search_id), services.store.frozen_files(search_id)
    if plan.submitted is None or files is None:
        raise UsageError(
            f"search {search_id} judges no submitted source", code="unknown_submission"
        )
    texts = submitted_files(files, plan.submitted.template)
    source = next(text for path, text in texts.items() if path.endswith(f"/{SOURCE}"))
    heading = next(text for path, text in texts.items() if path.endswith(".toml"))
    return source, launch_of(heading)


def submission_report(services: Services, search_id: str, *, repeated: bool = False) -> JSON:
    """A submission with its verdict and feedback, as commands, REST and MCP answer it."""
    store = services.store
    row = store.search(search_id)
    trial = judged_trial(services, row)
    plan = store.plan(search_id)
    assert plan.submitted is not None, "judged_trial has refused other searches"
    files = store.frozen_files(search_id)
    template = plan.submitted.template
    texts = submitted_files(files, template) if files else {}
    record = record_in(files, template) if files else {}
    text = next((value for path, value in texts.items() if path.endswith(SOURCE)), "")
    report: JSON = {
        "id": row.id,
        "status": row.status,
        "why": row.why,
        "repeated": repeated,
        "kernel": row.kernel,
        "workloads": list(row.workloads),
        "target": row.target,
        "baseline": row.baseline,
        "submission_digest": dict(plan.submitted.parameters)["submission"],
        **{name: record.get(name, "") for name in ("author", "model", "parent", "hypothesis")},
        "trial": None,
        "verdict": None,
        "feedback": [],
    }
    if trial is not None:
        report |= _judgement(trial, text)
    return report


def _judgement(trial: TrialDetail, text: str) -> JSON:
    performance = trial.gates.get("performance", {})
    return {
        "trial": trial.number,
        "verdict": trial.verdict or None,
        "stage": trial.stage,
        "reason": trial.reason,
        "sentence": trial.finding,
        "source_digest": trial.source_digest,
        "time_median_us": trial.time_median_us,
        "time_kind": trial.time_kind,
        "time_band": trial.time_band,
        "ratio_to_baseline": trial.ratio_to_baseline,
        "ratio_interval": performance.get("ratio_interval"),
        "gates": {
            name: {key: gate[key] for key in ("outcome", "sentence", "reason")}
            for name, gate in trial.gates.items()
        },
        "feedback": feedback(trial, text),
    }
