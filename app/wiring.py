"""Combines catalogue, toolchain, targets and store; the only file that names concrete classes."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import threading
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenfast.app.history import adopt_champions, require_same_kernel, todays_checks
from greenfast.app.settings import DEFAULT_WINDOW, Settings
from greenfast.db.neighbours import neighbours_of
from greenfast.db.rows import Claim, SearchRow, TuningRow
from greenfast.search.cores import usable_cores
from greenfast.search.errors import Refusals
from greenfast.search.executors.base import Executor
from greenfast.search.executors.this_machine import ThisMachine
from greenfast.search.gates.safety import like
from greenfast.search.gates.version import CHECKS, CHECKS_VERSION
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.frozen import KernelFiles, frozen_catalogue, kernel_files
from greenfast.search.kernels.submitted_name import is_submitted
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.loop.modelling import DEADLINE_S as MODEL_DEADLINE_S
from greenfast.search.loop.plan import DEFAULT_TARGET, SearchPlan, SearchRequest, make_plan
from greenfast.search.loop.scope import scope_of
from greenfast.search.loop.submitted import with_template
from greenfast.search.loop.target_space import target_device
from greenfast.search.loop.tuning import (
    TuningRequest,
    requested_workloads,
    search_requests,
    tuning_plan,
)
from greenfast.search.loop.wrong_fields import collect_wrong_fields, collect_wrong_templates
from greenfast.search.oracle.reference import end_guard, guard_references
from greenfast.search.peers.compare import compare_peers
from greenfast.search.shipped import own_version
from greenfast.search.space.candidate import Candidate
from greenfast.search.targets import TargetSettings, check_target_name
from greenfast.search.targets.base import Runner, Target, runner
from greenfast.search.targets.elsewhere import note_device
from greenfast.search.targets.gpu_names import numbers_of
from greenfast.search.toolchain import Toolchain
from greenfast.search.toolchain.cache_room import CacheRoom
from greenfast.search.toolchain.toolkit import toolkit_place

if TYPE_CHECKING:  # SQLAlchemy is imported when a command opens the database
    from greenfast.db.device_turns import DeviceTurns
    from greenfast.db.sink import StoreSink
    from greenfast.db.store import Store

MOST_IN_FLIGHT = 512  # candidates of one search on a cluster
IN_FLIGHT_PER_GPU = 4  # candidates: at least, whatever the number of cores


class Services:
    """The parts that commands and requests need, each created on first use."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stopping = threading.Event()  # set when the process is about to end: streams close
        self.open_streams = 0
        self.feeds: dict[str, Any] = {}  # of searches with followers (app/routes/feeds.py)
        self.ledger_jobs: Any = None  # of the serving process (app/views/ledger_jobs.py)
        self.readiness: asyncio.Future[dict[str, Any]] | None = None  # a query in progress
        self._targets: dict[tuple[str, float, tuple[Path, ...]], Target] = {}
        self._gpu_turns: DeviceTurns | None = None
        self._lock = threading.RLock()

    @cached_property
    def catalogue(self) -> Catalogue:
        return Catalogue.from_environment()

    @property
    def store(self) -> Store:
        """The database, opened once."""
        with self._lock:
            return self._store

    def open_store(self) -> None:
        """Open the database now, so that its errors are raised here."""
        _ = self.store

    @cached_property
    def _store(self) -> Store:
        from greenfast.db.store import Store

        self.settings.prepare_data()
        store = Store.open(self.settings.database, self.settings.database_timeouts)
        adopt_champions(store, self.catalogue)
        return store

    @cached_property
    def executor(self) -> Executor:
        """The machines that do the work; UsageError when they cannot be reached."""
        if self.settings.executor == "local":
            return ThisMachine()
        from greenfast.search.executors.on_cluster import OnCluster
        from greenfast.search.executors.ray_cluster import RayCluster

        cluster = RayCluster(self.settings.ray_address)
        return OnCluster(self.settings.executor, cluster, self.settings.run_deadline_s)

    @cached_property
    def toolchain(self) -> Toolchain:
        self.settings.prepare_data()
        return self.executor.toolchain(
            self.settings.cache,
            max(self.settings.window, usable_cores()),
            toolkit_place(self.settings.data.absolute()),
        )

    def target(
        self,
        name: str,
        run_deadline_s: float | None = None,
        include_dirs: tuple[Path, ...] | None = None,
    ) -> Target:
        """The target of that name, not prepared yet.

        It is opened once for each deadline (default: the setting) and, where it compiles candidates
        itself, for each set of headers (default: today's).
        """
        guard_references(self.settings.reference_deadline_s)
        run_deadline_s = self.settings.run_deadline_s if run_deadline_s is None else run_deadline_s
        include_dirs = self.catalogue.include_dirs if include_dirs is None else include_dirs
        key = (
            name,
            run_deadline_s,
            include_dirs if check_target_name(name)[0] == "emulator" else (),
        )
        with self._lock:
            if key not in self._targets:
                self.settings.prepare_data()
                workers = max(1, usable_cores() // self.settings.window)
                self._targets[key] = self.executor.target(
                    name,
                    TargetSettings(
                        self.settings.cache,
                        include_dirs,
                        workers,
                        run_deadline_s,
                        lambda uuid: self._turns().turn(uuid),
                    ),
                )
            return self._targets[key]

    def _turns(self) -> DeviceTurns:
        """This process's turns on GPUs that other workers of the database use too."""
        from greenfast.db.device_turns import DeviceTurns

        with self._lock:
            if self._gpu_turns is None:
                self._gpu_turns = DeviceTurns(
                    self.store, f"{platform.node()}:{os.getpid()}:{secrets.token_hex(2)}"
                )
            return self._gpu_turns

    def give_back_gpus(self) -> None:
        """Release the GPUs: this process does not need one for now."""
        if self._gpu_turns is not None:
            self._gpu_turns.give_back()

    def submit(self, request: SearchRequest) -> SearchRow:
        """Queue a search with its kernel's present files. Later edits do not affect it."""
        catalogue = Catalogue.from_environment()
        plan = self.plan(request, catalogue)
        return self.store.submit(plan, self.files_of(plan, catalogue))

    def submit_held(self, request: SearchRequest, worker: str) -> Claim:
        """Like `submit`, for a search that `worker` holds from the start."""
        catalogue = Catalogue.from_environment()
        plan = self.plan(request, catalogue)
        files = self.files_of(plan, catalogue)
        return self.store.submit_held(plan, files, worker, self.settings.lease_s)

    def files_of(self, plan: SearchPlan, catalogue: Catalogue) -> KernelFiles:
        """The files that a search of this plan freezes, with those of a submitted champion."""
        files = kernel_files(catalogue.kernel(plan.kernel), catalogue.include_dirs)
        if plan.champion is None or not is_submitted(plan.champion.template):
            return files
        search_id = plan.baseline.removeprefix("champion ").partition("/")[0]
        stored = self.store.frozen_files(search_id)
        return files if stored is None else with_template(files, stored, plan.champion.template)

    def submit_tuning(self, request: TuningRequest) -> TuningRow:
        """Queue the searches of a tuning with their kernel's present files."""
        catalogue = Catalogue.from_environment()
        kernel = catalogue.kernel(request.search.kernel)
        rows = requested_workloads(request, kernel)
        tuning = tuning_plan(request, rows, request.search.target or DEFAULT_TARGET)
        requests = search_requests(request, rows, kernel)
        plans = [self.plan(each, catalogue) for each in requests]
        files = kernel_files(kernel, catalogue.include_dirs)
        for plan in plans:
            files = KernelFiles(
                tuple(sorted({*files.files, *self.files_of(plan, catalogue).files}))
            )
        return self.store.submit_tuning(tuning, plans, files)

    def known_kernel(self, name: str | None) -> str | None:
        """`name` as the filter of a list; UsageError `unknown_kernel` for a misspelt one.

        A kernel whose folder is gone is known by its searches.
        """
        if (
            name is not None
            and name not in self.catalogue.names()
            and not self.store.searches(kernel=name, limit=1).items
        ):
            self.catalogue.kernel(name)
        return name

    def catalogue_of(self, search_id: str) -> Catalogue:
        """The catalogue of the files that a search ran with.

        A search of a version that kept no files gets those on disk while they are the same;
        UsageError `kernel_changed` otherwise.
        """
        files = self.store.frozen_files(search_id)
        if files is not None:
            self.settings.prepare_data()
            return self.frozen(files)
        require_same_kernel(self.store, search_id, self.catalogue)
        return self.catalogue

    def frozen(self, files: KernelFiles) -> Catalogue:
        """The catalogue of frozen files, which are written into the cache and count there."""
        room = CacheRoom(self.settings.cache, self.settings.cache_mib << 20)
        return frozen_catalogue(files, self.settings.cache, room.add)

    def plan(self, request: SearchRequest, catalogue: Catalogue | None = None) -> SearchPlan:
        """The complete plan of a request; UsageError or SpecError when it cannot run.

        Fault when this machine, which would run it, has no toolkit that can compile.
        """
        catalogue = catalogue or self.catalogue
        wrong = Refusals()
        self.check(request, wrong, catalogue)
        wrong.raise_all()
        target = request.target or DEFAULT_TARGET
        self._require_toolkit(target)
        plan = make_plan(
            request,
            catalogue,
            window=self._window(target),
            champion_of=self._champion_of,
            neighbours_of=lambda plan: neighbours_of(
                self.store, plan, target_device(plan.target).name
            ),
        )
        # The cores of a cluster have no idle time that this process could see.
        return plan if self.executor.is_here else replace(plan, modelled=0)

    def _require_toolkit(self, target: str) -> None:
        """Fault when CUDA's packages are missing or of different releases.

        A service without workers leaves that to the machines of its workers.
        """
        family, _ = check_target_name(target)
        if family != "replay" and self.settings.workers:
            _ = self.toolchain.toolkit

    def check(self, request: SearchRequest, wrong: Refusals, catalogue: Catalogue) -> None:
        """Add all wrong fields of a request to `wrong`, and look at the device of its target."""
        kernel, target = catalogue.kernel(request.kernel), request.target or DEFAULT_TARGET
        collect_wrong_fields(request, kernel, wrong)
        if "target" not in wrong.fields:
            with wrong.at("target"):
                note_device(target, self.executor.device(target))
                target_device(target)
        if wrong.errors:
            collect_wrong_templates(request, kernel, wrong)

    def _champion_of(self, plan: SearchPlan) -> tuple[str, Candidate] | None:
        """The champion of the scope that the plan's search will have."""
        environment = {
            "device": target_device(plan.target).name,
            "toolchain": toolchain_name(self.toolchain),
        }
        champion = self.store.champion(scope_of(plan, environment))
        if champion is None:
            return None
        return f"champion {champion.trial.search_id}/{champion.trial.number}", champion.candidate

    def _window(self, target: str) -> int:
        """The number of candidates in flight.

        On GPUs the default is at least twice the number of cores, and enough for each GPU. One GPU
        needs all cores to keep it busy, and trials are recorded in order, so that one with a slow
        safety check delays the trials behind it. On a cluster each is a thread that waits, so
        their number is limited.
        """
        window, (family, which) = self.settings.window, check_target_name(target)
        if window != DEFAULT_WINDOW or family == "replay":
            return window
        cores = self.executor.cores()
        if family == "cuda":
            gpus = len(numbers_of(which, self.executor.gpu_count()))
            window = max(window, 2 * cores, IN_FLIGHT_PER_GPU * gpus)
        elif not self.executor.is_here:
            window = cores
        return window if self.executor.is_here else min(window, MOST_IN_FLIGHT)

    def context(self, plan: SearchPlan, catalogue: Catalogue | None = None) -> EvaluationContext:
        """The context of evaluating the plan's candidates.

        `catalogue`: where the kernel's files come from (default: today's).
        """
        files = catalogue or self.catalogue
        kernel = files.kernel(plan.kernel)
        workloads = tuple(kernel.workload(name) for name in plan.workloads)
        target = self.target(plan.target, include_dirs=files.include_dirs)
        if isinstance(target, Runner):  # a recording compiles nothing
            self.toolchain.require_correct_code()
        measures = target.measures
        return EvaluationContext(
            kernel,
            workloads[0].compile_time(kernel),
            workloads,
            target,
            self.toolchain,
            files.include_dirs,
            plan.limits,
            plan.seed,
            checker=self._emulator(target, files.include_dirs) if measures else None,
            modeller=self._emulator(target, files.include_dirs, MODEL_DEADLINE_S)
            if plan.modelled and self.executor.is_here
            else None,
            # A peer runs beside the GPU, in a process of this machine.
            compare_peers=compare_peers if measures and self.executor.is_here else None,
            closing_checks=todays_checks(self.catalogue, kernel),
            sizes_secret=plan.sizes_secret,
        )

    def _emulator(
        self, target: Target, include_dirs: tuple[Path, ...], run_deadline_s: float | None = None
    ) -> Runner:
        """The emulator of the GPU that is most like the target's."""
        name = f"emulator:{like(target.device).name}"
        return runner(self.target(name, run_deadline_s, include_dirs))

    def search_context(self, search_id: str) -> tuple[SearchPlan, EvaluationContext]:
        """What a run of the search needs, with the files that it was submitted with."""
        plan = self.store.plan(search_id)
        return plan, self.context(plan, self.catalogue_of(search_id))

    def environment(self, context: EvaluationContext) -> dict[str, str]:
        """Device, toolchain and versions that results depend on. The target must be prepared."""
        entries = dict(context.target.identity())
        if "toolchain" not in entries:  # a recording names the toolchain that compiled it
            entries = {
                **dict(context.toolchain.identity),
                "toolchain": toolchain_name(context.toolchain),
                **entries,
            }
        return {
            "device": context.target.device.name,
            "arch": context.target.device.arch,
            "multiprocessors": str(context.target.device.multiprocessors),
            **entries,
            "greenfast": own_version(),
            CHECKS: str(CHECKS_VERSION),
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {usable_cores()} cores",
            **({} if self.executor.is_here else {"executor": self.executor.name}),
        }

    def sink(self, claim: Claim) -> StoreSink:
        from greenfast.db.sink import StoreSink

        return StoreSink(self.store, claim, self.settings.lease_s)

    def interrupt(self) -> None:
        """End the work of all children; the calls in progress raise Fault."""
        for part in self._opened():
            part.interrupt()

    def close(self) -> None:
        """End all children and close the database."""
        end_guard()
        for part in self._opened():
            part.close()
        if "executor" in self.__dict__:
            self.executor.close()
        self.give_back_gpus()
        if "_store" in self.__dict__:
            self._store.close()

    def _opened(self) -> Iterable[Target | Toolchain]:
        with self._lock:
            targets = tuple(self._targets.values())
        return (*targets, *([self.toolchain] if "toolchain" in self.__dict__ else []))


def toolchain_name(toolchain: Toolchain) -> str:
    """The toolchain's name in scopes: the compiler that makes a cubin of a source."""
    return f"nvrtc {dict(toolchain.identity)['nvidia-cuda-nvrtc']}"
