"""Processor time of all processes of a search, by what they do.

A child is named by the module that it runs, or by its program. Linux adds the time of a child that
has ended to its parent, so a compiler that lives for less than `PERIOD_S` is counted, too, but
without its name: as `ended children`.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections import Counter
from pathlib import Path

PERIOD_S = 0.2
ENDED = "ended children"
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class ProcessTimes(threading.Thread):
    """Samples the descendants of this process until `result` is called."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._done = threading.Event()
        self.own_s = 0.0  # processor time of the samples, which this process spends
        self._named: dict[int, tuple[str, float]] = {}  # last seen: name and seconds
        self._before = self._seen()
        self._before_ended_s = _ended_s()
        self._before_all_s = sum(waited_s for _, _, waited_s in self._before.values())

    def run(self) -> None:
        while not self._done.wait(PERIOD_S):
            self._look()
            self.own_s = time.thread_time()

    def result(self) -> dict[str, float]:
        """Stop; seconds by name since the beginning, without this process."""
        self._done.set()
        now = self._look()
        waited_s = _ended_s() - self._before_ended_s
        waited_s += sum(waited for _, _, waited in now.values()) - self._before_all_s
        by_name: Counter[str] = Counter()
        for pid, (name, own_s) in self._named.items():
            before = self._before.get(pid)
            by_name[name] += own_s - (before[1] if before else 0.0)
            if pid not in now:
                waited_s -= own_s
        by_name[ENDED] = max(0.0, waited_s)
        return {name: used_s for name, used_s in by_name.most_common() if used_s > 0}

    def _look(self) -> dict[int, tuple[str, float, float]]:
        seen = self._seen()
        self._named.update((pid, (name, own_s)) for pid, (name, own_s, _) in seen.items())
        return seen

    def _seen(self) -> dict[int, tuple[str, float, float]]:
        """Name, own seconds and those of waited children, by process."""
        parents: dict[int, int] = {}
        times: dict[int, tuple[float, float]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(path.parent.name)
            parents[pid] = int(fields[1])
            own, waited = (sum(map(int, fields[at : at + 2])) / _TICKS_A_SECOND for at in (11, 13))
            times[pid] = own, waited
        return {
            pid: (_name(pid), *times[pid])
            for pid in parents
            if _descends(pid, os.getpid(), parents)
        }


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while (pid := parents.get(pid, 0)) > 1:
        if pid == ancestor:
            return True
    return False


def _name(pid: int) -> str:
    """The module of a Python process, else the program."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "unknown"
    if "-m" in words:
        return words[words.index("-m") + 1].rpartition("greenfast.")[2]
    return Path(words[0]).name or "unknown"


def _ended_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
