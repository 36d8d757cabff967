"""References of authors' kernels, computed in a child that can be killed.

A reference.py is trusted, but it can have a mistake: a loop that does not end, or a list that only
grows. In this process neither could be stopped. The references that greenfast brings end, so they
are computed here, without the quarter of a second that a child takes to start.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from greenfast.search.children import ChildDied, ChildTimeout
from greenfast.search.cores import usable_cores
from greenfast.search.errors import SpecError
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import LARGE_FLOP, Case
from greenfast.search.oracle.reference_children import (
    MEMORY_BYTES,
    OUT_OF_MEMORY,
    Arrays,
    ReferenceChildren,
    Work,
)
from greenfast.search.shipped import ALBUM, KERNEL_TEMPLATES

DEADLINE_VARIABLE = "GREENFAST_REFERENCE_DEADLINE_S"
CHILDREN = 2  # as many as may compute in Python at once: search/compute_turns.py
PATIENCE_S = 1.0  # most references of a search take less than the start of a second child
# A reference that imports this runs a kernel on the emulator, whose runs have their own deadline.
RUNS_A_KERNEL = "greenfast.search.diagnose.plain_reference"


class GuardedReferences:
    """Computes references in children with a deadline and a limit of memory."""

    def __init__(self, deadline_s: float) -> None:
        self._children = ReferenceChildren(CHILDREN, patience_s=PATIENCE_S)
        self._large = ReferenceChildren(1, threads=usable_cores())
        self.deadline_s = deadline_s
        self._loaded: set[str] = set()  # texts that a child has loaded
        self._lock = threading.Lock()

    def watches(self, kernel: KernelSpec) -> bool:
        """Whether the kernel's reference is an author's, and runs no kernel itself."""
        return RUNS_A_KERNEL not in kernel.reference_text and not _is_shipped(kernel)

    def require_loads(self, kernel: KernelSpec) -> None:
        """SpecError unless a child gets to the end of loading the text, also by an exception."""
        with self._lock:
            known = kernel.reference_text in self._loaded
        if not known:
            self._ask(kernel, [], "loading it")
            with self._lock:
                self._loaded.add(kernel.reference_text)

    def computed(self, kernel: KernelSpec, case: Case) -> Arrays | None:
        """The arrays of the case; SpecError for an exception, or where the reference did not end.

        None if its results break the contract: computing them again here shows how.
        """
        return self._arrays(kernel, case, *self._ask(kernel, [case], f"case {case.label}")[0])

    def _arrays(
        self, kernel: KernelSpec, case: Case, arrays: Arrays | None, error: str
    ) -> Arrays | None:
        if arrays is not None or not error:
            return arrays
        if error.endswith(OUT_OF_MEMORY):
            raise _mistake(kernel, f"case {case.label}: {_memory()}", "reference_memory")
        raise SpecError(error, code="reference_failed")

    def moved(self, kernel: KernelSpec, case: Case) -> Mapping[str, Any]:
        """The outputs for inputs changed by one rounding; empty if reference.py fails on them.

        SpecError if it does not end.
        """
        doing = f"case {case.label}, computed again"
        ((arrays, _),) = self._ask(kernel, [case], doing, Work.MOVED)
        return arrays[1] if arrays is not None else {}

    def inputs(self, kernel: KernelSpec, case: Case) -> dict[str, np.ndarray] | None:
        """The inputs of the case; SpecError and None as for `computed`."""
        doing = f"make_inputs of case {case.label}"
        arrays = self._arrays(kernel, case, *self._ask(kernel, [case], doing, Work.INPUTS)[0])
        return arrays[0] if arrays is not None else None

    def takes_sizes(self, kernel: KernelSpec, case: Case) -> bool:
        """Whether make_inputs takes the case's sizes; SpecError if it did not end."""
        ((_, error),) = self._ask(kernel, [case], f"make_inputs of case {case.label}", Work.INPUTS)
        return not error

    def close(self) -> None:
        """End the children, with all processes that a reference has started."""
        for children in (self._children, self._large):
            children.pool.kill()
            children.pool.close()

    def _ask(
        self, kernel: KernelSpec, cases: list[Case], doing: str, work: Work = Work.ALL
    ) -> list[tuple[Arrays | None, str]]:
        try:
            return self._twice(kernel, cases, work)
        except ChildTimeout:
            sentence = f"{doing} takes more than {self.deadline_s:g} s"
            mend = f"end its loop, make the case smaller, or set {DEADLINE_VARIABLE}"
            raise _mistake(kernel, sentence, "reference_slow", mend) from None
        except ChildDied as died:
            tail = ""
            with suppress(IndexError):
                tail = died.tail.strip().splitlines()[-1][-200:]
            if "MemoryError" in tail:
                raise _mistake(kernel, f"{doing}: {_memory()}", "reference_memory") from None
            status = f"{doing} ended its process (exit status {died.returncode})"
            sentence = f"{status}: {tail}" if tail else status
            raise _mistake(kernel, sentence, "reference_failed") from None

    def _twice(
        self, kernel: KernelSpec, cases: list[Case], work: Work
    ) -> list[tuple[Arrays | None, str]]:
        """The reply; from another child when the first was ended from outside."""
        is_large = any(case.flop(kernel) > LARGE_FLOP for case in cases)
        children = self._large if is_large else self._children
        try:
            return children.asked(kernel, cases, self.deadline_s, work)
        except ChildDied as died:
            if not died.signal_number or died.has_crashed:
                raise
        return children.asked(kernel, cases, self.deadline_s, work)


def _mistake(kernel: KernelSpec, sentence: str, code: str, mend: str = "") -> SpecError:
    return SpecError(f"{kernel.name}/reference.py: {sentence}", code=code, mend=mend)


def _memory() -> str:
    return f"the reference needs more than {MEMORY_BYTES / 2**30:g} GiB of memory"


def _is_shipped(kernel: KernelSpec) -> bool:
    """Whether greenfast brings this text; also where a stored search has frozen it."""
    for folder in (KERNEL_TEMPLATES, ALBUM):
        with suppress(OSError):
            path = folder / kernel.folder.name / "reference.py"
            if path.read_text("utf-8") == kernel.reference_text:
                return True
    return False
