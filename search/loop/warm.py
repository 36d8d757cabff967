"""The start of a search's compilers and judges, before the first candidate needs them.

A process takes half a second to import what it needs. On a machine with many cores, dozens would
start at once when the first candidates come, beside the first compilations.
"""

from __future__ import annotations

from contextlib import suppress

from greenfast.search.errors import Fault
from greenfast.search.gates.judges import judges_in_use, use_judges, workers_for
from greenfast.search.loop.evaluate import EvaluationContext


def warm(context: EvaluationContext, cores: int, trials: int | None) -> None:
    """Start them where candidates are measured and there are cores to spare.

    One compiler for each core, and judges as `workers_for` says, but no more than `trials`
    (None: no limit). Faults are left to the candidates that meet them.
    """
    if not context.target.measures:
        return
    use_judges(workers_for(cores))
    if (judges := judges_in_use()) is not None:
        with suppress(Fault):
            context.toolchain.warm(min(cores, trials or cores))
            judges.pool.warm(min(judges.pool.count, trials or judges.pool.count))
