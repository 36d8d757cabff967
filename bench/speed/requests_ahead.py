"""How long GPUs wait for requests while the search's process is busy: with and without sending
requests ahead.

    python -m bench.speed.requests_ahead [--save] [--seconds 3] [--rounds 3] [--gpus 2]
                                         [--request-ms 28] [--work-ms 10.5]

Stand-in children sleep for each request as long as a request of an attention search takes on an
H200. Threads of this process ask them, and after each reply they compute in Python as long as a
search does for a request. `unasked_share`: a child had no request, as it saw it. `rate_share`: the
rate, as a share of what the children could answer. Each figure is the median of `--rounds` in which
all settings have their turn. Nothing here was measured on a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from unittest.mock import patch

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.results import ROOT, Row
from greenfast.search.targets.cuda import conversation
from greenfast.search.targets.cuda.conversation import Conversation
from greenfast.search.targets.cuda.lock import GpuLock
from greenfast.search.targets.cuda.measuring_child import MeasuringChild
from greenfast.search.targets.cuda.quarantine import Quarantine
from greenfast.search.targets.cuda.spans import UNASKED

THREADS = 16  # for each GPU
PASSES_WITHOUT_A_CLOCK = 200


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--request-ms", type=float, default=28.0)
    parser.add_argument("--work-ms", type=float, default=10.5, help="of this process, a request")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--switch-ms", type=float, nargs="+", default=[5.0, 1.0])
    options = parser.parse_args()
    settings = [
        (at_once, switch_ms) for switch_ms in options.switch_ms for at_once in options.at_once
    ]
    rounds = [[measured(options, *setting) for setting in settings] for _ in range(options.rounds)]
    rows = [
        {
            "at_once": at_once,
            "switch_ms": switch_ms,
            "gpus": options.gpus,
            "request_ms": options.request_ms,
            "work_ms": options.work_ms,
            **{name: round(statistics.median(row[name] for row in each), 3) for name in each[0]},
        }
        for (at_once, switch_ms), each in zip(settings, zip(*rounds, strict=True), strict=True)
    ]
    print(json.dumps(rows, indent=1), flush=True)
    publish("requests_ahead", rows, save=options.save)


def measured(options: argparse.Namespace, at_once: int, switch_ms: float) -> Row:
    before = sys.getswitchinterval()
    sys.setswitchinterval(switch_ms / 1e3)
    try:
        with ExitStack() as stack:
            stack.enter_context(patch.object(conversation, "AT_ONCE", at_once))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "unit")])
            stack.enter_context(patch.dict(os.environ, {"PYTHONPATH": path, "TMPDIR": str(folder)}))
            gpus = [stack.enter_context(_gpu(folder, number)) for number in range(options.gpus)]
            return {**_asked(gpus, options), "load_average": round(os.getloadavg()[0], 1)}
    finally:
        sys.setswitchinterval(before)


@contextmanager
def _gpu(folder: Path, number: int) -> Iterator[Conversation]:
    uuid = f"standin-{number}"
    child = MeasuringChild("standin_talker", uuid, number, Quarantine(folder, uuid, uuid))
    lock = GpuLock(folder, uuid, uuid, 60.0)
    try:
        child.start()
        yield Conversation(child, lock, nullcontext, lambda kind, seconds: None)
    finally:
        child.end()
        lock.close()


def _asked(gpus: list[Conversation], options: argparse.Namespace) -> Row:
    """What the threads of all GPUs saw for that many seconds."""
    is_over = threading.Event()
    unasked_s: list[float] = []

    def ask(gpu: Conversation) -> None:
        while not is_over.is_set():
            reply = gpu.reply({"do": "work", "seconds": options.request_ms / 1e3})
            unasked_s.append(reply["spans"].get(UNASKED, 0.0))
            _compute(options.work_ms / 1e3)

    threads = [threading.Thread(target=ask, args=(gpu,)) for gpu in gpus for _ in range(THREADS)]
    begin_s, cpu_s = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    time.sleep(options.seconds)
    lasted_s, used_s = time.perf_counter() - begin_s, time.process_time() - cpu_s
    answered, waited_s = len(unasked_s), sum(unasked_s)
    is_over.set()
    for thread in threads:
        thread.join()
    most = len(gpus) * 1e3 * lasted_s / options.request_ms
    return {
        "rate_share": round(answered / most, 3),
        "unasked_share": round(waited_s / lasted_s / len(gpus), 3),
        "own_cpu_share": round(used_s / lasted_s, 2),
    }


def _compute(seconds: float) -> None:
    """Use the processor in Python for so long."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        sum(range(PASSES_WITHOUT_A_CLOCK))


if __name__ == "__main__":
    main()
