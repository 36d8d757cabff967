"""Children that examine candidates' texts, where there are cores to spare.

Reading the tokens of one text takes some 30 ms of Python. In the process of a search that held
Python's global lock longer than anything else that is done for a candidate.
"""

from __future__ import annotations

from pathlib import Path

from greenfast.search.children import ChildDied, Children, ChildTimeout, Limits
from greenfast.search.errors import Fault
from greenfast.search.targets.emulator.examination import Refusal

DEADLINE_S = 60.0
MEMORY_BYTES = 8 * 2**30
CORES_A_CHILD = 4


def children_for(cores: int) -> int:
    """The number of children for a machine with this many cores: none for a small one."""
    return cores // CORES_A_CHILD if cores >= 2 * CORES_A_CHILD else 0


class Examiners:
    """`count` children, each started when it is first needed. They end with this process."""

    def __init__(self, count: int, cache_folder: Path, include_dirs: tuple[Path, ...]) -> None:
        self.pool = Children(
            count,
            "greenfast.search.targets.emulator.examining_child",
            Limits(memory_bytes=MEMORY_BYTES),
            (str(cache_folder), *map(str, include_dirs)),
        )

    def known(self, text: str, unit: str, arch: str) -> tuple[Refusal | None] | None:
        """The answer of `examination.refusal`; None where this process must look for itself.

        A child that fails, dies or exceeds its deadline tells nothing about the text.
        """
        try:
            reply = self.pool.call({"text": text, "unit": unit, "arch": arch}, DEADLINE_S)
        except (ChildDied, ChildTimeout, Fault, OSError):
            return None
        if "unknown" in reply:
            return None
        sentence = reply["sentence"]
        return (Refusal(sentence, reply["line"]) if sentence is not None else None,)
