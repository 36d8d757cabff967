"""The main job, end to end: start the service, submit a search, follow it, download the winner.

With a GPU (and CuPy, which setup installs there) times are measured on it; elsewhere the
emulator models them. In a terminal the dashboard stays up until Ctrl-C; otherwise everything is
stopped cleanly at the end.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from demo_service import await_ready, serve_command, start
from rich.console import Console
from rich.table import Table

from greenfast.app.settings import Settings
from greenfast.client import Client
from greenfast.search.errors import GreenfastError
from greenfast.search.targets.cuda import gpu_count

OUTPUT = Path("demo-output")
SEARCH = {
    "kernel": "attention",
    "strategy": "tpe",
    "seed": 1,
}
GPU, EMULATOR = "cuda:0", "emulator:h200"
# Long sequences on a GPU, where a Hopper's own instructions win; the emulator takes a short one.
ON = {
    GPU: {
        "name": "demo: attention over 2,048 tokens",
        "workloads": ["long_causal_bf16"],
        "budget": {"trials": 120},
    },
    EMULATOR: {
        "name": "demo: attention on the mission workload",
        "workloads": ["mission"],
        "budget": {"trials": 48},
        "templates": ["scalar", "wmma"],
    },
}
READY_S = 180.0  # a first start from a slow disk; a service that ends is reported at once
PRINT_EVERY_S = 5.0


def main() -> int:
    console = Console(highlight=False, soft_wrap=True)
    stay = sys.stdin.isatty() and sys.stdout.isatty()
    port = free_port(Settings.from_environment().port)
    url = f"http://127.0.0.1:{port}"
    OUTPUT.mkdir(exist_ok=True)
    log = OUTPUT / "service.log"
    service = start(serve_command(port), log)
    try:
        with Client(url, os.environ.get("GREENFAST_TOKEN", "")) as client:
            await_ready(service, log, lambda: client.wait_until_ready(0.0), READY_S, console.print)
            target = best_target()
            console.print(f"on {target}: times are {'measured' if target == GPU else 'modelled'}")
            submitted = client.submit(**SEARCH, **ON[target], target=target)
            console.print(f"dashboard  {url}/searches/{submitted['id']}")
            detail = follow(client, submitted["id"], console, live=stay)
            if detail["status"] != "completed":
                console.print(f"the search ended as {detail['status']}: {detail.get('why')}")
                return 1
            download(client, detail, console)
            summarise(client, detail, console)
            if stay:
                console.print(f"\nThe dashboard is at {url} until Ctrl-C.")
                service.wait()
        return 0
    except KeyboardInterrupt:
        console.print("stopping")
        return 0 if stay else 130
    except GreenfastError as error:
        console.print(f"demo: {error} (the service's log: {log})", markup=False)
        return 1
    finally:
        stop(service)


def best_target() -> str:
    """The first GPU where one is visible and CuPy can be imported, else the emulator."""
    return GPU if gpu_count() and importlib.util.find_spec("cupy") else EMULATOR


def free_port(preferred: int) -> int:
    """`preferred` if nothing listens there, else any free port."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return probe.getsockname()[1]
            except OSError:
                continue
    raise SystemExit("demo: no free port on 127.0.0.1")


def stop(service: subprocess.Popen) -> None:
    """Ask the service to end; it ends its workers."""
    if service.poll() is None:
        service.send_signal(signal.SIGTERM)
        try:
            service.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(service.pid, signal.SIGKILL)
            service.wait()


def follow(client: Client, search_id: str, console: Console, *, live: bool) -> dict[str, Any]:
    """Wait for the end; one line that changes in a terminal, a line every few seconds elsewhere."""
    if live:
        with console.status("starting", spinner="dots") as status:
            return client.wait(search_id, lambda detail: status.update(progress_line(detail)))
    printed = [-PRINT_EVERY_S]

    def show(detail: dict[str, Any]) -> None:
        if time.monotonic() - printed[0] >= PRINT_EVERY_S or detail["status"] == "completed":
            printed[0] = time.monotonic()
            console.print(progress_line(detail), markup=False)

    return client.wait(search_id, show)


def progress_line(detail: dict[str, Any]) -> str:
    """One line: trials, the gate funnel, best so far, rate, time left."""
    progress = detail["progress"]
    passed = {step["stage"]: step["passed"] for step in detail["funnel"]}
    funnel = " > ".join(
        f"{stage} {passed[stage]}" for stage in ("render", "compile", "ptxas", "correctness")
    )
    best = detail.get("best")
    shown = (
        f"{best['time_median_us']:.2f} us {kind_of(best)} (#{best['number']})"
        if best
        else "none yet"
    )
    rate = f"{progress['rate_per_minute']:.0f}/min" if progress["rate_per_minute"] else "-"
    left = f"{progress['seconds_left']:.0f} s left" if progress["seconds_left"] is not None else ""
    done = f"{detail['trials_done']:3d}/{detail['trials_budget']} trials"
    return f"{done}  {rate}  {left}  best {shown}  {funnel}"


def kind_of(trial: dict[str, Any]) -> str:
    """`measured, hot`."""
    return ", ".join(filter(None, (trial["time_kind"], trial["time_mode"])))


def download(client: Client, detail: dict[str, Any], console: Console) -> None:
    """The winner's source and bundle through REST."""
    best = client.best(detail["id"])
    source = OUTPUT / "winner.cu"
    source.write_text(client.source(best["source_digest"]))
    bundle = OUTPUT / "bundle.zip"
    client.download_bundle(detail["id"], bundle)
    with zipfile.ZipFile(bundle) as opened:
        files = len(opened.namelist())
    console.print(
        f"downloaded {source} ({best['source_digest'][:12]}) and {bundle} ({files} files)"
    )


def summarise(client: Client, detail: dict[str, Any], console: Console) -> None:
    """Baseline, winner, and what was rejected where and why."""
    trials = client.trials(detail["id"])
    best = client.best(detail["id"])
    baseline, winner = (
        trials[0],
        next(trial for trial in trials if trial["number"] == best["number"]),
    )
    table = Table(box=None, pad_edge=False)
    for name in ("", "trial", "template", "time", "registers", "shared memory", "verdict"):
        table.add_column(name)
    for label, trial in (("baseline", baseline), ("winner", winner)):
        time_us = trial["time_median_us"]
        shown = f"{time_us:.2f} us {kind_of(trial)}" if time_us else "-"
        table.add_row(
            label,
            f"#{trial['number']}",
            trial["template"],
            shown,
            str(trial["registers"]),
            f"{trial['smem_bytes']} B",
            trial["verdict"],
        )
    console.print(table)
    changed = [
        f"{name}={value}"
        for name, value in winner["parameters"].items()
        if winner["template"] != baseline["template"] or baseline["parameters"][name] != value
    ]
    console.print("winner: " + (" ".join(changed) or "the baseline itself"), markup=False)
    console.print(conclusion(detail, best), markup=False)
    for peer in detail.get("peers", ()):
        if peer["outcome"] == "timed":
            console.print(peer["sentence"], markup=False)
    rejected = [trial for trial in trials if trial["verdict"] == "rejected"]
    console.print(f"{len(trials)} trials, {len(rejected)} rejected (valid negatives)")
    for (stage, reason), count in Counter(
        (trial["stage"], trial["reason"]) for trial in rejected
    ).most_common():
        example = next(
            trial for trial in rejected if (trial["stage"], trial["reason"]) == (stage, reason)
        )
        console.print(
            f"  {count:3d} at {stage}: {reason}, for example "
            f"#{example['number']}: {example['sentence']}",
            markup=False,
        )


def conclusion(detail: dict[str, Any], best: dict[str, Any]) -> str:
    """One sentence about the winner that claims no more than its kind of time allows."""
    confirmation = detail.get("confirmation")
    if confirmation:
        return f"measured: {confirmation['sentence']}"
    if best["time_kind"] == "measured":
        faster = (
            "beats the baseline"
            if best["beats_baseline"]
            else "has not been shown to be faster than the baseline"
        )
        return f"the winner {faster}, as measured in turns with it in one process"
    faster = (
        "beats the baseline by more than the model's band"
        if best["beats_baseline"]
        else "is not told apart from the baseline: modelled times this close are not judged"
    )
    ties = (
        f", and {best['not_told_apart']} others are not told apart from it"
        if best["not_told_apart"]
        else ""
    )
    return f"the winner has the lowest modelled time{ties}; it {faster}; a GPU decides"


if __name__ == "__main__":
    sys.exit(main())
