"""A GPU that cannot be revived is set aside for a while, with the reason, for all processes that use this folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from greenfast.search.errors import Fault

QUARANTINE_S = 300.0


class Quarantine:
    """Of the GPU with that UUID."""

    def __init__(
        self, folder: Path, uuid: str, target: str, now_s: Callable[[], float] = time.time
    ) -> None:
        self._path, self._target, self._now_s = folder / f"gpu-{uuid}.quarantine", target, now_s

    def check(self) -> None:
        """Fault while it lasts; afterwards the GPU may be tried again."""
        try:
            noted = json.loads(self._path.read_text())
            left_s, why = float(noted["until"]) - self._now_s(), str(noted["why"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        if 0 < left_s <= QUARANTINE_S:
            raise self._fault(why, left_s)

    def begin(self, why: str) -> Fault:
        """Set it aside from now on; the Fault to raise."""
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
            mend="see what `nvidia-smi` says of it; it is tried again after that time",
        )
