"""The greenfast command on a machine with stand-in GPUs: `python standin_command.py GPUS ARGS...`.

GPUS is JSON: what each GPU does, by number. Safety is left out, as the emulator takes its time.
Several GPUs have evaluators, however few cores there are.
STANDIN_WORKERS: so many workers judge outputs, however few cores there are, and the strategy has a
process of its own.
STANDIN_KILLED_AT: SIGKILL ends the process as soon as it has recorded so many trials.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import standin_gpus


def main() -> None:
    gpus = {int(number): gpu for number, gpu in json.loads(sys.argv[1]).items()}
    sys.argv = ["greenfast", *sys.argv[2:]]
    with pytest.MonkeyPatch.context() as patch:
        standin_gpus.install(patch, Path.cwd() / "tmp", gpus)
        from greenfast.app import wiring
        from greenfast.db.device_turns import DeviceTurns
        from greenfast.search.executors import this_machine
        from greenfast.search.loop import evaluators

        # A killed process leaves its lease of a GPU, and the next one waits for its end.
        patch.setitem(DeviceTurns.__init__.__kwdefaults__, "lease_s", 1.0)
        patch.setattr(wiring.Services, "_emulator", lambda *_: None)
        patch.setattr(this_machine, "gpu_count", lambda: len(gpus))
        patch.setattr(evaluators, "LEAST_CORES", 1)
        patch.setattr(evaluators, "LEAST_TRIALS", 1)
        if workers := os.environ.get("STANDIN_WORKERS"):
            from greenfast.search.gates import judges
            from greenfast.search.strategies import apart

            patch.setattr(judges, "workers_for", lambda cores: int(workers))
            patch.setattr(apart, "LEAST_CORES", 1)
        if trials := os.environ.get("STANDIN_KILLED_AT"):
            _kill_after(int(trials), patch)
        from greenfast.app.cli.main import main as command

        command()


def _kill_after(trials: int, patch: pytest.MonkeyPatch) -> None:
    from greenfast.db.sink import StoreSink

    record, recorded = StoreSink.record, []

    def deadly(*arguments: Any) -> None:
        record(*arguments)
        recorded.append(arguments)
        if len(recorded) == trials:
            os.kill(os.getpid(), signal.SIGKILL)

    patch.setattr(StoreSink, "record", deadly)


if __name__ == "__main__":
    main()
