"""A sampler of the threads of this process: where a search spends its time."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import Counter, defaultdict
from functools import lru_cache
from pathlib import Path
from types import FrameType

from bench.results import ROOT, Row

PERIOD_S = 0.02
CPU_EVERY = 16  # samples between two looks at the processor times
LISTED_PLACES = 40
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_COUNTER = re.compile(r"[-_]\d+$")  # of a thread of a pool


class ThreadSampler(threading.Thread):
    """Counts at regular times the innermost function of this project that each thread is in.

    It also adds up the processor time of threads by name, without the last moments of a thread
    that has ended.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True, name="sampler")
        self.places: Counter[str] = Counter()
        self.samples, self.done = 0, threading.Event()
        self._before = _cpu_s()
        self._cpu_s: dict[int, tuple[str, float]] = {}  # by thread: its name, seconds since then
        self._began = time.perf_counter()

    def run(self) -> None:
        while not self.done.wait(PERIOD_S):
            if self.samples % CPU_EVERY == 0:
                self._look()
            self.samples += 1
            names = {thread.ident: _name(thread) for thread in threading.enumerate()}
            for number, frame in sys._current_frames().items():
                if number != self.ident:
                    self.places[f"{names.get(number, '?')}: {_place(frame)}"] += 1

    def result(self) -> Row:
        """Stop sampling. `places`: the mean number of threads at each place, the most frequent
        ones first; `cpu_share`: the share of one processor by name of thread."""
        self.done.set()
        self._look()
        seconds: dict[str, float] = defaultdict(float)
        for name, each in self._cpu_s.values():
            seconds[name] += each
        taken_s = time.perf_counter() - self._began
        return {
            "places": {
                place: round(count / max(1, self.samples), 3)
                for place, count in self.places.most_common(LISTED_PLACES)
            },
            "cpu_share": {
                name: round(each / taken_s, 3)
                for name, each in sorted(seconds.items(), key=lambda item: -item[1])
            },
        }

    def _look(self) -> None:
        names = {thread.native_id: _name(thread) for thread in threading.enumerate()}
        for number, seconds in _cpu_s().items():
            name = names.get(number) or self._cpu_s.get(number, ("not of Python", 0.0))[0]
            self._cpu_s[number] = name, seconds - self._before.get(number, 0.0)


def _name(thread: threading.Thread) -> str:
    return _COUNTER.sub("", thread.name)


def _cpu_s() -> dict[int, float]:
    """Processor seconds of each thread of this process (proc(5), /proc/PID/task/TID/stat)."""
    seconds = {}
    for entry in Path("/proc/self/task").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        seconds[int(entry.name)] = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return seconds


def _place(frame: FrameType | None) -> str:
    while frame is not None:
        code = frame.f_code
        if _is_own(code.co_filename):
            return f"{Path(code.co_filename).stem}.{code.co_name}:{frame.f_lineno}"
        frame = frame.f_back
    return "idle"


@lru_cache(maxsize=4096)
def _is_own(filename: str) -> bool:
    path = str(Path(filename).resolve())
    return path.startswith(str(ROOT)) and ".venv" not in path
