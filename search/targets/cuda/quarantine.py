"""A GPU on which no child starts is set aside for a while, for all processes of a data folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from greenfast.search.errors import Fault

QUARANTINE_S = 300.0


class Quarantine:
    """The quarantine of the GPU `uuid`, kept in `folder` with its reason."""

    def __init__(
        self, folder: Path, uuid: str, target: str, now_s: Callable[[], float] = time.time
    ) -> None:
        self._path, self._target, self._now_s = folder / f"gpu-{uuid}.quarantine", target, now_s

    def check(self) -> None:
        """Fault while it lasts. Afterwards the GPU may be tried again."""
        try:
            note = json.loads(self._path.read_text())
            left_s, why = float(note["until"]) - self._now_s(), str(note["why"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        if 0 < left_s <= QUARANTINE_S:
            raise self._fault(why, left_s)

    def begin(self, why: str) -> Fault:
        """Set the GPU aside from now on. Returns the Fault to raise."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"until": self._now_s() + QUARANTINE_S, "why": why}))
        new.replace(self._path)
        return self._fault(why, QUARANTINE_S)

    def lift(self) -> None:
        self._path.unlink(missing_ok=True)

    def _fault(self, why: str, left_s: float) -> Fault:
        return Fault(
            f"{self._target} is set aside for {left_s:.0f} s: {why}",
            code="gpu_quarantined",
            mend="see `nvidia-smi` for its state; it is tried again after that time",
        )
