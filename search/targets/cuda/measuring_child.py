"""The parent's handle on a GPU's measuring child, which may be lost at any request."""

from __future__ import annotations

from typing import Any

from greenfast.search.children import Child, ChildDied, ChildTimeout, Limits
from greenfast.search.errors import Fault
from greenfast.search.targets.cuda.failures import cannot_start
from greenfast.search.targets.cuda.quarantine import Quarantine
from greenfast.search.text import last_line

START_DEADLINE_S = 120.0  # CuPy's import and a context, on a cold machine
JOB_DEADLINE_S = 600.0  # of a whole job, copies included: beyond it our own code is stuck
JOBS_A_CHILD = 5000


class MeasuringChild:
    """Starts, calls, replaces and ends the child of one GPU. Calls must not overlap."""

    def __init__(self, module: str, target: str, number: int, quarantine: Quarantine) -> None:
        """`module` is the child's; `target` its name in messages; `number` the GPU's."""
        self.hello: dict[str, Any] = {}  # the child's versions, from its start on
        self.jobs = 0  # requests that the present child has answered
        self._module, self._target, self._number = module, target, number
        self._quarantine = quarantine
        self._child: Child | None = None
        self._busy = False
        self._interrupts = 0

    def start(self) -> Child:
        """The child, with its context made.

        A GPU on which none starts twice in a row is set aside: Fault `gpu_quarantined`.
        """
        if self._child is not None and self.jobs < JOBS_A_CHILD:
            return self._child
        self.end()
        self._quarantine.check()
        try:
            child = self._started()
        except Fault as fault:
            if fault.code != "gpu_not_ready":
                raise
            try:
                child = self._started()
            except Fault as again:
                raise self._quarantine.begin(
                    f"it could not be started twice in a row; {again}"
                ) from None
        self._quarantine.lift()
        return child

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """The child's reply; one with "error" has ended the child. Fault when the child is lost."""
        child, interrupts = self.start(), self._interrupts
        self._busy = True
        try:
            reply = child.call(request, JOB_DEADLINE_S)
        except ChildTimeout:
            self._child = None
            raise Fault(
                f"the measuring child of {self._target} gave no answer within {JOB_DEADLINE_S:g} s",
                code="child_stuck",
            ) from None
        except ChildDied as died:
            self._child = None
            self._require_no_interrupt_since(interrupts)
            raise Fault(
                f"the measuring child was lost (exit {died.returncode}): {last_line(died.tail)}",
                code="child_lost",
            ) from None
        finally:
            self._busy = False
        self.jobs += 1
        if "error" in reply:
            self.end()  # after such an error every call in this context fails
        return reply

    def interrupt(self) -> None:
        """End a call in progress, from another thread; its caller gets Fault `interrupted`."""
        child = self._child
        if self._busy and child is not None:
            self._interrupts += 1
            child.kill()

    def end(self) -> None:
        """End the child, if there is one. A GPU whose child cannot be ended is set aside."""
        child, self._child = self._child, None
        if child is not None and not child.close():
            raise self._quarantine.begin(
                "its measuring process cannot be ended: the driver holds it"
            )

    def _started(self) -> Child:
        child = Child(self._module, Limits(file_bytes=None), [str(self._number)])
        self._child, self.jobs = child, 0
        interrupts, self._busy = self._interrupts, True
        try:
            hello = child.call({"do": "hello"}, START_DEADLINE_S)
        except ChildTimeout:
            self._child = None
            raise Fault(
                f"{self._target} gave no context within {START_DEADLINE_S:g} s",
                code="gpu_not_ready",
                mend="see `nvidia-smi` for its state",
            ) from None
        except ChildDied as died:
            self._child = None
            self._require_no_interrupt_since(interrupts)
            raise cannot_start(self._target, died.tail) from None
        finally:
            self._busy = False
        if "error" in hello:
            self.end()
            raise cannot_start(self._target, hello["error"])
        self.hello = hello
        return child

    def _require_no_interrupt_since(self, interrupts: int) -> None:
        if interrupts != self._interrupts:
            raise Fault(f"{self._target} was interrupted", code="interrupted") from None
