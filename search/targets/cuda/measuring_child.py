"""The parent's handle on a GPU's measuring child, which may be lost at any request."""

from __future__ import annotations

from typing import Any

from greenfast.search.children import Child, ChildDied, ChildTimeout, Limits
from greenfast.search.errors import Fault
from greenfast.search.targets.cuda.failures import cannot_start
from greenfast.search.targets.cuda.quarantine import Quarantine
from greenfast.search.text import last_line

START_DEADLINE_S = 120.0  # CuPy's import and a context, on a cold machine
JOB_DEADLINE_S = 600.0  # of a whole job with its copies; after it, greenfast's code is stuck
JOBS_A_CHILD = 5000


class MeasuringChild:
    """Starts, replaces and ends the child of one GPU, and receives its replies.

    One thread at a time does so; others may send to the child that runs, or interrupt it.
    """

    def __init__(self, module: str, target: str, number: int, quarantine: Quarantine) -> None:
        """`module` is the child's; `target` its name in messages; `number` the GPU's."""
        self.hello: dict[str, Any] = {}  # the child's versions, from its start on
        self.jobs = 0  # requests that the present child has answered
        self.interrupts = 0  # of the requests in progress, so far
        self.running: Child | None = None  # it may have died without our knowing
        self._module, self._target, self._number = module, target, number
        self._quarantine = quarantine

    def start(self) -> Child:
        """The child, with its context made.

        A GPU on which none starts twice in a row is set aside: Fault `gpu_quarantined`.
        """
        if self.running is not None and self.running.alive and self.jobs < JOBS_A_CHILD:
            return self.running
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
                if again.code == "interrupted":
                    raise
                raise self._quarantine.begin(
                    f"it could not be started twice in a row; {again}"
                ) from None
        self._quarantine.lift()
        return child

    def takes(self, more: int) -> bool:
        """Whether the present child may answer so many more requests."""
        return self.running is not None and self.jobs + more <= JOBS_A_CHILD

    def receive(self, interrupts: int) -> dict[str, Any]:
        """The next reply of the child that runs; one with "error" has ended it.

        Fault when the child is lost. `interrupts`: their number when the request was made.
        """
        child = self.running
        assert child is not None, "a request was sent"
        try:
            reply = child.receive(JOB_DEADLINE_S)
        except ChildTimeout:
            self.running = None
            raise Fault(
                f"the measuring child of {self._target} did not answer within {JOB_DEADLINE_S:g} s",
                code="child_stuck",
            ) from None
        except ChildDied as died:
            self.running = None
            self.require_no_interrupt_since(interrupts)
            raise Fault(
                f"the measuring child was lost (exit {died.returncode}): {last_line(died.tail)}",
                code="child_lost",
            ) from None
        self.jobs += 1
        if "error" in reply:
            self.end()  # after such an error every call in this context fails
        return reply

    def interrupt(self) -> None:
        """End the requests in progress, from another thread; they get Fault `interrupted`."""
        child = self.running
        if child is not None:
            self.interrupts += 1
            child.kill()

    def require_no_interrupt_since(self, interrupts: int) -> None:
        if interrupts != self.interrupts:
            raise Fault(f"{self._target} was interrupted", code="interrupted") from None

    def end(self) -> None:
        """End the child, if there is one. A GPU whose child cannot be ended is set aside."""
        child, self.running = self.running, None
        if child is not None and not child.close():
            raise self._quarantine.begin(
                "its measuring process cannot be ended: the driver holds it"
            )

    def _started(self) -> Child:
        interrupts = self.interrupts
        child = Child(self._module, Limits(file_bytes=None), [str(self._number)])
        self.running, self.jobs = child, 0
        try:
            hello = child.call({"do": "hello"}, START_DEADLINE_S)
        except ChildTimeout:
            self.running = None
            raise Fault(
                f"{self._target} did not create a context within {START_DEADLINE_S:g} s",
                code="gpu_not_ready",
                mend="see `nvidia-smi` for its state",
            ) from None
        except ChildDied as died:
            self.running = None
            self.require_no_interrupt_since(interrupts)
            raise cannot_start(self._target, died.tail) from None
        if "error" in hello:
            self.end()
            raise cannot_start(self._target, hello["error"])
        self.hello = hello
        return child
