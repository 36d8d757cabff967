"""The tools that `greenfast mcp` serves, as functions over the services."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from greenfast.app.cli.judge_here import judged_here
from greenfast.app.service.worker import Stop
from greenfast.app.views.comparing import compare
from greenfast.app.views.listings import kernel_out, list_kernels
from greenfast.app.views.submission_feedback import feedback
from greenfast.app.views.submitting import JudgeRequest, submission_report
from greenfast.app.views.trial_names import named, trial_named
from greenfast.app.views.writers import best_source, device_brief, kernel_brief, negatives_brief
from greenfast.app.wiring import Services
from greenfast.search.errors import Fault
from greenfast.search.kernels.submitted_name import is_submitted
from greenfast.search.loop.plan import DEFAULT_TARGET
from greenfast.search.loop.submitted import Submission

JSON = dict[str, Any]
MOST_NEGATIVES = 100


class Tools:
    """Each public method is a tool; its docstring is what an agent reads about it."""

    def __init__(self, services: Services, stop: Stop) -> None:
        self._services, self._stop = services, stop
        self._turn = threading.Lock()  # one source is judged at a time

    def list_kernels(self) -> JSON:
        """List the kernels that sources can be written for."""
        loaded, broken = list_kernels(self._services.catalogue)
        return {
            "kernels": [
                {"name": kernel.name, "title": kernel.title, "templates": kernel.templates}
                for kernel in loaded
            ],
            "broken": [kernel.name for kernel in broken],
        }

    def list_workloads(self, kernel: str) -> JSON:
        """List a kernel's workloads: the shapes on which sources are timed."""
        known = kernel_out(self._services.catalogue.kernel(kernel))
        return {"workloads": [workload.model_dump() for workload in known.workloads]}

    def get_spec(self, kernel: str, target: str = DEFAULT_TARGET) -> JSON:
        """A kernel's arguments in order, its reference in Python, its rules, and the device."""
        return {**kernel_brief(self._services, kernel), "device": device_brief(target)}

    def best_source(self, kernel: str, workload: str = "", target: str = DEFAULT_TARGET) -> JSON:
        """The fastest correct source known for a workload, with the launch file to submit it."""
        return best_source(self._services, kernel, workload or None, target)

    def submit(
        self,
        kernel: str,
        source: str,
        launch: str,
        entry: str = "",
        workloads: list[str] | None = None,
        target: str = DEFAULT_TARGET,
        author: str = "",
        model: str = "",
        parent: str = "",
        hypothesis: str = "",
    ) -> JSON:
        """Judge a CUDA source: compile, compare with the reference, look for races, time it.

        `launch` is TOML with [[launches]]; `parent` the digest of the source that yours was made
        from. The answer has a verdict (accepted, green, rejected, faulted) and feedback by line.
        """
        submission = Submission(kernel, source, launch, entry, author, model, parent, hypothesis)
        request = JudgeRequest(submission, tuple(workloads) if workloads else None, target)
        with self._turn:
            if self._stop.requested:
                raise Fault("stopped before the source was judged", code="stopped")
            report = judged_here(self._services, request, self._stop)
        if report is None:
            raise Fault("stopped before the source was judged", code="stopped")
        return report

    def explain(self, trial: str) -> JSON:
        """Return a stored submission or trial (an id, or SEARCH/NUMBER) with its feedback."""
        store, name = self._services.store, named(self._services.store, trial)
        if name.number is None:
            return submission_report(self._services, name.search_id)
        detail = store.trial(name.search_id, name.number)
        if is_submitted(detail.template):
            return submission_report(self._services, name.search_id)
        return {
            "trial": str(name),
            "template": detail.template,
            "parameters": detail.parameters,
            "verdict": detail.verdict,
            "source_digest": detail.source_digest,
            "time_median_us": detail.time_median_us,
            "time_kind": detail.time_kind,
            "ratio_to_baseline": detail.ratio_to_baseline,
            "feedback": feedback(detail, ""),
        }

    def search_negatives(self, kernel: str, text: str = "", limit: int = 20) -> JSON:
        """What was tried for a kernel and did not help, newest first; `text` selects."""
        rows = negatives_brief(self._services, kernel, MOST_NEGATIVES)
        if not rows:
            self._services.catalogue.kernel(kernel)  # a misspelt name has no negatives either
        words = text.lower().split()
        matching = [row for row in rows if all(word in str(row).lower() for word in words)]
        return {"negatives": matching[: max(1, min(limit, MOST_NEGATIVES))]}

    def compare(self, a: str, b: str) -> JSON:
        """Two trials side by side (SEARCH/NUMBER): parameters, times, figures, sources."""
        store = self._services.store
        return compare(store, trial_named(store, a), trial_named(store, b)).model_dump()

    def drain(self, deadline_s: float) -> None:
        """Wait for the judgement in progress, after the stop, to leave the database."""
        if self._turn.acquire(timeout=deadline_s):
            self._turn.release()

    @property
    def all(self) -> tuple[Callable[..., JSON], ...]:
        """The tools, in the order in which an agent needs them."""
        return (
            self.list_kernels,
            self.list_workloads,
            self.get_spec,
            self.best_source,
            self.submit,
            self.explain,
            self.search_negatives,
            self.compare,
        )
