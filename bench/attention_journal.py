"""A sink that keeps a search's trials in a file of lines, from which a later process takes the search up again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from db.convert import candidate_json, candidate_of, plan_json, plan_of, sampler_json, sampler_of, verdict_json, verdict_of
from search.comparison import Confirmation, Peer
from search.evaluate import settled
from search.plan import SearchPlan
from search.run import Control, History
from search.verdict import GateResult, Trial


class JournalSink:
    """The first line is the plan: a journal of a plan that differs in more than its number of trials is begun anew."""

    def __init__(self, path: Path, plan: SearchPlan, is_late: Callable[[], bool] = lambda: False) -> None:
        self.trials: list[Trial] = []
        self.confirmations: list[Confirmation] = []
        self.peers: list[Peer] = []
        self.spent_s, self.last_at = 0.0, time.monotonic()
        self._path, self._plan, self._is_late = path, plan, is_late
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self._read():
            path.write_text(plan_json(plan) + "\n")

    def _read(self) -> bool:
        lines = self._path.read_text().splitlines() if self._path.is_file() else []
        if not lines or replace(plan_of(lines[0]), trials=self._plan.trials) != self._plan:
            return False
        for number, line in enumerate(lines[1:], 1):
            try:
                one = json.loads(line)
            except ValueError:                   # cut short when the machine went away
                self._path.write_text("\n".join(lines[:number]) + "\n")
                break
            self.trials.append(Trial(one["number"], candidate_of(one["candidate"]), verdict_of(one["verdict"]),
                                     one["source_digest"], one["duration_s"], sampler_of(one["sampler"])))
            self.spent_s = one["spent_s"]
        return True

    def history(self) -> History:
        return History(tuple(self.trials), (), self.spent_s)

    def begin(self, number, proposal) -> None: ...

    def record(self, trial: Trial, source) -> None:
        self.trials.append(trial)
        self.last_at = time.monotonic()
        line = {"number": trial.number, "candidate": candidate_json(trial.candidate),
                "verdict": verdict_json(trial.verdict)[0], "source_digest": trial.source_digest,
                "duration_s": trial.duration_s, "sampler": sampler_json(trial.sampler), "spent_s": self.spent_s}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def settle(self, number: int, result: GateResult) -> None:
        """At the end, so in memory only: what follows is stored with the row."""
        self.trials = [replace(one, verdict=settled(one.verdict, result)) if one.number == number else one
                       for one in self.trials]

    def confirm(self, confirmation: Confirmation) -> None:
        self.confirmations.append(confirmation)

    def beside(self, peer: Peer) -> None:
        self.peers.append(peer)

    def control(self, spent_s: float) -> Control:
        """Pause when it is late, but not while the trials are complete: what follows them has its own time."""
        self.spent_s = spent_s
        complete = self._plan.trials is not None and len(self.trials) >= self._plan.trials
        return Control.PAUSE if self._is_late() and not complete else Control.RUN

    def remove(self) -> None:
        """The search is done and stored elsewhere."""
        self._path.unlink(missing_ok=True)
