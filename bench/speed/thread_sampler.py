"""What the threads of this process do, looked at now and then: where a search spends its time."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLE_S = 0.02  # between two looks
MOST = 40  # places that a result names


class Sampler(threading.Thread):
    """Looks what each thread does, now and then: by the innermost function that is ours."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen, self.looks, self.done = Counter(), 0, threading.Event()

    def run(self) -> None:
        while not self.done.wait(SAMPLE_S):
            self.looks += 1
            for number, frame in sys._current_frames().items():
                if number != self.ident:
                    self.seen[self._where(frame)] += 1

    def _where(self, frame) -> str:
        while frame is not None:
            code = frame.f_code
            if str(ROOT) in code.co_filename and ".venv" not in code.co_filename:
                return f"{Path(code.co_filename).stem}.{code.co_name}:{frame.f_lineno}"
            frame = frame.f_back
        return "idle"

    def result(self) -> dict[str, float]:
        self.done.set()
        return {
            name: round(count / max(1, self.looks), 3)
            for name, count in self.seen.most_common(MOST)
        }
