"""A sampler of the threads of this process: where a search spends its time."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

from bench.results import ROOT

PERIOD_S = 0.02
LISTED_PLACES = 40


class ThreadSampler(threading.Thread):
    """Counts at regular times the innermost function of this project that each thread is in."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.places: Counter[str] = Counter()
        self.samples, self.done = 0, threading.Event()

    def run(self) -> None:
        while not self.done.wait(PERIOD_S):
            self.samples += 1
            for number, frame in sys._current_frames().items():
                if number != self.ident:
                    self.places[_place(frame)] += 1

    def result(self) -> dict[str, float]:
        """Stop sampling; the mean number of threads at each place, the most frequent ones first."""
        self.done.set()
        return {
            place: round(count / max(1, self.samples), 3)
            for place, count in self.places.most_common(LISTED_PLACES)
        }


def _place(frame: FrameType | None) -> str:
    while frame is not None:
        code = frame.f_code
        if str(ROOT) in code.co_filename and ".venv" not in code.co_filename:
            return f"{Path(code.co_filename).stem}.{code.co_name}:{frame.f_lineno}"
        frame = frame.f_back
    return "idle"
