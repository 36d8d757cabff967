"""A cluster of machines in this process, for tests of what is done when one dies or differs.

A machine takes a task as bytes, as in a real cluster, and answers in bytes. `dies` says after which
task a machine is gone; that task's answer is lost, whether or not it was carried out.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from greenfast.search.executors import node
from greenfast.search.executors.cluster import Actor, Cluster, Differs, MachineLost, replied
from greenfast.search.executors.gpu_actor import GpuActor


@dataclass(eq=False)
class Machine:
    name: str
    dies_at: int = 10**9  # at this task, counted from 1
    differs: bool = False
    tasks: list[str] = field(default_factory=list)


class StandInCluster(Cluster):
    def __init__(self, machines, openers=()):
        """`openers`: one for each GPU."""
        self.machines, self.openers = list(machines), list(openers)
        self.opened_actors = []
        self._lock = threading.Lock()
        self._turn = 0

    def cores(self):
        return 2 * len(self._alive(()))

    def gpu_count(self):
        return len(self.openers)

    def run(self, task, parcel, arrays, near, avoided):
        with self._lock:
            alive = self._alive(avoided)
            if not alive:
                raise MachineLost("none is left")
            self._turn += 1
            machine = alive[self._turn % len(alive)]
            machine.tasks.append(task.__name__)
            dies = len(machine.tasks) >= machine.dies_at
        if machine.differs:
            return replied(lambda: Differs(machine.name, f"{machine.name} differs"))
        node.be_machine(machine.name)
        reply = task(parcel, *(arrays[digest] for digest in parcel.digests))
        if dies:
            raise MachineLost(machine.name)
        return reply

    def actors(self, setup):
        actors = [StandInActor(opener, setup) for opener in self.openers]
        self.opened_actors += actors
        return actors

    def interrupt(self):
        pass

    def close(self):
        pass

    def _alive(self, avoided):
        return [
            machine
            for machine in self.machines
            if len(machine.tasks) < machine.dies_at and machine.name not in avoided
        ]


class StandInActor(Actor):
    """An actor in this process; `opener.dies_at` is the call at which its machine dies."""

    def __init__(self, opener, setup):
        self._opener, self._calls, self.has_ended = opener, 0, False
        self._gpu = GpuActor(type(setup)(setup.run_deadline_s, setup.version, opener.opened))

    def call(self, method, parcel, arrays):
        self._calls += method in ("execute", "measure")
        if self._calls >= self._opener.dies_at:
            raise MachineLost(self._opener.name)
        return self._gpu.answer(method, parcel, *(arrays[digest] for digest in parcel.digests))

    def end(self):
        self.has_ended = True
        self._gpu._target.close()


@dataclass(frozen=True)
class Opener:
    name: str
    opened: object
    dies_at: int = 10**9
