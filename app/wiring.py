"""The only file that names concretes: it puts catalogue, toolchain, targets and store together."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import threading
from collections.abc import Callable, Iterable
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from greenfast.app.history import adopt_champions, require_same_kernel, todays_checks
from greenfast.app.settings import Settings
from greenfast.db.device_turns import DeviceTurns
from greenfast.db.rows import Claim, SearchRow
from greenfast.db.sink import StoreSink
from greenfast.db.store import Store
from greenfast.search.cores import usable_cores
from greenfast.search.errors import UsageError
from greenfast.search.gates.safety import like
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.frozen import frozen_catalogue, kernel_files
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.loop.plan import (
    DEFAULT_TARGET,
    SearchPlan,
    SearchRequest,
    make_plan,
    target_device,
)
from greenfast.search.loop.run import History, SearchRun, Sink
from greenfast.search.loop.scope import scope_of
from greenfast.search.peers.compare import compare_peers
from greenfast.search.space.candidate import Candidate
from greenfast.search.targets import TargetSettings, check_target_name, open_target
from greenfast.search.targets.base import Runner, Target, runner
from greenfast.search.toolchain import Toolchain
from greenfast.search.verdict import Trial

LARGEST_SEED = 2**31 - 1


class Services:
    """What a command or a request needs, each part made when it is first asked for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stopping = threading.Event()  # set when the process is about to end: streams close
        self.open_streams = 0
        self.feeds: dict[str, Any] = {}  # of searches that somebody follows (app/routes/feeds.py)
        self.readiness: asyncio.Future[dict[str, Any]] | None = None  # a look at the database
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

    @cached_property
    def _store(self) -> Store:
        self.settings.prepare_data()
        store = Store.open(self.settings.database, self.settings.database_timeouts)
        adopt_champions(store, self.catalogue)
        return store

    @cached_property
    def toolchain(self) -> Toolchain:
        self.settings.prepare_data()
        return Toolchain(self.settings.cache, max(self.settings.window, usable_cores()))

    def target(
        self,
        name: str,
        run_deadline_s: float | None = None,
        include_dirs: tuple[Path, ...] | None = None,
    ) -> Target:
        """The target of that name, opened once for each deadline (the setting's unless given), and where it compiles
        candidates itself for each set of headers (today's unless given); not prepared yet."""
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
                self._targets[key] = open_target(
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
        with self._lock:
            if self._gpu_turns is None:
                self._gpu_turns = DeviceTurns(
                    self.store, f"{platform.node()}:{os.getpid()}:{secrets.token_hex(2)}"
                )
            return self._gpu_turns

    def give_back_gpus(self) -> None:
        """Nothing is to run on a GPU for a while."""
        if self._gpu_turns is not None:
            self._gpu_turns.give_back()

    def submit(self, request: SearchRequest) -> SearchRow:
        """Queue a search with the files of its kernel as they are now: what is edited later does not concern it."""
        catalogue = Catalogue.from_environment()
        plan = self.plan(request, catalogue)
        files = kernel_files(catalogue.kernel(plan.kernel), catalogue.include_dirs)
        return self.store.submit(plan, files)

    def catalogue_of(self, search_id: str) -> Catalogue:
        """Of the files that the search ran with. Those of one that was submitted before files were frozen are the files
        on disk, as long as they are the same; UsageError `kernel_changed` otherwise."""
        files = self.store.frozen_files(search_id)
        if files is not None:
            self.settings.prepare_data()
            return frozen_catalogue(files, self.settings.cache)
        require_same_kernel(self.store, search_id, self.catalogue)
        return self.catalogue

    def plan(self, request: SearchRequest, catalogue: Catalogue | None = None) -> SearchPlan:
        """The complete plan of a request; UsageError or SpecError when it cannot run."""
        if request.seed is not None and not 0 <= request.seed <= LARGEST_SEED:
            raise UsageError(
                f"the seed {request.seed}", code="bad_seed", mend=f"0 to {LARGEST_SEED}"
            )
        return make_plan(
            request,
            catalogue or self.catalogue,
            window=self._window(request.target or DEFAULT_TARGET),
            champion_of=self._champion_of,
        )

    def _champion_of(self, plan: SearchPlan) -> tuple[str, Candidate] | None:
        """The champion of the scope that the plan's search will have."""
        environment = {
            "device": target_device(plan.target).name,
            "toolchain": toolchain_name(self.toolchain),
        }
        found = self.store.champion(scope_of(plan, environment))
        return (
            (f"champion {found.trial.search_id}/{found.trial.number}", found.candidate)
            if found
            else None
        )

    def _window(self, target: str) -> int:
        """Candidates in flight. All of them wait for one GPU, which all cores together keep busy; twice as many, because
        trials are recorded in order, and one whose safety takes seconds holds up those behind it."""
        chosen = self.settings.window
        on_gpu = check_target_name(target)[0] == "cuda" and chosen == Settings().window
        return max(chosen, 2 * usable_cores()) if on_gpu else chosen

    def context(self, plan: SearchPlan, catalogue: Catalogue | None = None) -> EvaluationContext:
        """What evaluating the plan's candidates needs, from the files of `catalogue` (today's unless given)."""
        files = catalogue or self.catalogue
        kernel = files.kernel(plan.kernel)
        workloads = tuple(kernel.workload(name) for name in plan.workloads)
        target = self.target(plan.target, include_dirs=files.include_dirs)
        if isinstance(target, Runner):  # a recording compiles nothing
            self.toolchain.require_right()
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
            checker=self._checker(target, files.include_dirs) if measures else None,
            compare_peers=compare_peers if measures else None,
            closing_checks=todays_checks(self.catalogue, kernel),
        )

    def _checker(self, target: Target, include_dirs: tuple[Path, ...]) -> Runner:
        """The emulator of the GPU that is most like the target's."""
        name = f"emulator:{like(target.device).name}"
        return runner(self.target(name, include_dirs=include_dirs))

    def search_run(
        self,
        search_id: str,
        sink: Sink,
        history: History,
        on_trial: Callable[[Trial], None] = lambda trial: None,
        on_closing: Callable[[], None] = lambda: None,
    ) -> SearchRun:
        """The search with the files that it began with."""
        plan = self.store.plan(search_id)
        return SearchRun(
            plan,
            self.context(plan, self.catalogue_of(search_id)),
            sink,
            history,
            on_trial,
            on_closing,
        )

    def environment(self, context: EvaluationContext) -> dict[str, str]:
        """What results depend on beside the candidate; the target has been prepared."""
        found = dict(context.target.identity())
        if "toolchain" not in found:  # a recording names the one that it was made with
            found = {
                **dict(context.toolchain.identity),
                "toolchain": toolchain_name(context.toolchain),
                **found,
            }
        return {
            "device": context.target.device.name,
            "arch": context.target.device.arch,
            **found,
            "greenfast": own_version(),
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {usable_cores()} cores",
        }

    def sink(self, claim: Claim) -> StoreSink:
        return StoreSink(self.store, claim, self.settings.lease_s)

    def interrupt(self) -> None:
        """End what the children do now; the calls in progress raise Fault."""
        for one in self._opened():
            one.interrupt()

    def close(self) -> None:
        """End all children and close the database."""
        for one in self._opened():
            one.close()
        self.give_back_gpus()
        if "_store" in self.__dict__:
            self._store.close()

    def _opened(self) -> Iterable[Target | Toolchain]:
        with self._lock:
            targets = tuple(self._targets.values())
        return (*targets, *([self.toolchain] if "toolchain" in self.__dict__ else []))


def toolchain_name(toolchain: Toolchain) -> str:
    """What scopes call it: what makes a cubin of a source."""
    return f"nvrtc {dict(toolchain.identity)['nvidia-cuda-nvrtc']}"


def own_version() -> str:
    """The installed version; a bare checkout has none."""
    try:
        return version("greenfast")
    except PackageNotFoundError:
        return "not installed"
