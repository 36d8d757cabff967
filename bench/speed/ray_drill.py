"""Does a search on a real Ray cluster lose or double trials where machines and processes die?

    python -m bench.speed.ray_drill [--trials 24] [--save]

Two Ray nodes of one core each are started on this machine, and searches of rmsnorm run on them with
the command line. In the first one the second node is killed, then the searching process, and
`--resume` ends the search. In the second one the whole head is killed, a new cluster is started,
and `--resume` ends that search. A third search runs on this machine alone. All have the same seed
and a strategy that learns nothing, so they have to try the same candidates and come to the same
verdicts. Needs the extra `ray`. Everything is below a temporary folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.results import ROOT, Row

STORE_BYTES = 80 * 2**20
SEARCH = ("rmsnorm", "--strategy", "random", "--seed", "3", "--cold")
RESUMES, BETWEEN_S = 20, 5.0  # the lease of a killed process runs out in the meantime
BIN = Path(sys.executable).parent


@dataclass
class Nodes:
    """Ray's nodes on this machine, started by `ray start` below one folder."""

    folder: Path
    environment: Mapping[str, str]
    address: str

    def start_head(self) -> None:
        host, _, port = self.address.partition(":")
        names = ("--head", "--port", port, "--node-ip-address", host)
        self._start(*names, "--include-dashboard", "false")

    def start_second(self) -> None:
        self._start("--address", self.address)

    def _start(self, *words: str) -> None:
        sizes = ("--num-cpus", "1", "--num-gpus", "0", "--object-store-memory", str(STORE_BYTES))
        subprocess.run(
            [BIN / "ray", "start", *words, *sizes],
            env=self.environment,
            check=True,
            capture_output=True,
        )

    def kill_second(self) -> None:
        for pid, command in self._processes():
            if "/raylet/raylet" in command and "--head" not in command:
                os.kill(pid, signal.SIGKILL)

    def kill_all(self) -> None:
        for pid, _ in self._processes():
            os.kill(pid, signal.SIGKILL)
        time.sleep(2.0)

    def _processes(self) -> Iterator[tuple[int, str]]:
        """Ray's own processes that name the folder."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if f"{self.folder}/ray" in command and "site-packages/ray/" in command:
                yield int(path.parent.name), command


@contextmanager
def cluster() -> Iterator[Nodes]:
    folder = Path(tempfile.mkdtemp(prefix="gf-drill-", dir="/tmp"))  # sockets' paths are short
    (folder / "ray").mkdir()
    environment = {
        **os.environ,
        "RAY_TMPDIR": str(folder),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "GREENFAST_DATA": str(folder / "data"),
        "GREENFAST_NODE_CACHE": str(folder / "nodes"),
        "GREENFAST_LEASE_S": "10",
    }
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    host = socket.gethostbyname(socket.gethostname())
    nodes = Nodes(folder, environment, f"{host}:{port}")
    try:
        nodes.start_head()
        nodes.start_second()
        yield nodes
    finally:
        nodes.kill_all()
        shutil.rmtree(folder, ignore_errors=True)


class Command:
    """A greenfast command that is followed line by line."""

    def __init__(self, nodes: Nodes, *words: str) -> None:
        self.process = subprocess.Popen(
            [BIN / "greenfast", *words],
            cwd=ROOT,
            env=nodes.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []

    def until(self, pattern: str) -> str:
        """The first line like this; fails where the command ends before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            print(line, end="", file=sys.stderr)
            if re.search(pattern, line):
                return line
        raise SystemExit(f"the command ended without {pattern!r}")

    def end(self) -> int:
        for line in self.process.stdout or ():
            self.lines.append(line)
        return self.process.wait()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def begun(nodes: Nodes, trials: int, *further: str) -> tuple[Command, str]:
    command = Command(nodes, "search", *SEARCH, "--trials", str(trials), *further)
    found = re.search(r"s_\w+", command.until(r"^search s_"))
    assert found is not None
    return command, found.group()


def resumed(nodes: Nodes, search: str, further: Sequence[str]) -> None:
    for _ in range(RESUMES):
        if Command(nodes, "search", "--resume", search, *further).end() in (0, 1):
            return
        time.sleep(BETWEEN_S)
    raise SystemExit(f"{search} does not go on")


def outcomes(nodes: Nodes, search: str) -> list[tuple[int, str, str, str]]:
    """Number, candidate, verdict and reason of each stored trial."""
    words = ("trials", search, "--columns", "number,verdict,reason", "--limit", "1000")
    done = subprocess.run(
        [BIN / "greenfast", *words, "--json"],
        cwd=ROOT,
        env=nodes.environment,
        check=True,
        capture_output=True,
        text=True,
    )
    answer = json.loads(done.stdout)
    trials = answer["trials"] if isinstance(answer, dict) else answer
    return [
        (each["number"], each["candidate_digest"], each["verdict"], each["reason"] or "")
        for each in trials
    ]


def compared(what: str, found: Sequence[tuple[int, str, str, str]], alone: Sequence[object]) -> Row:
    numbers = [number for number, *_ in found]
    candidates = [candidate for _, candidate, _, _ in found]
    return {
        "what": what,
        "trials": len(found),
        "numbers_once_and_whole": numbers == list(range(len(found))),
        "candidates_twice": len(candidates) - len(set(map(str, candidates))),
        "faulted": sum(verdict == "faulted" for _, _, verdict, _ in found),
        "as_on_one_machine": list(found) == list(alone),
    }


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("--trials", type=int, default=24)
    options = parser.parse_args()
    with cluster() as nodes:
        ray = ("--executor", "ray", "--address", nodes.address)
        command, alone = begun(nodes, options.trials)
        command.end()
        expected = outcomes(nodes, alone)
        command, first = begun(nodes, options.trials, "--fresh", *ray)
        command.until(rf"^4/{options.trials}")
        nodes.kill_second()
        command.until(rf"^9/{options.trials}")
        command.kill()
        resumed(nodes, first, ray)
        rows = [compared("node, then searching process", outcomes(nodes, first), expected)]
        nodes.start_second()
        command, second = begun(nodes, options.trials, "--fresh", *ray)
        command.until(rf"^4/{options.trials}")
        nodes.kill_all()
        ended = command.end()
        nodes.start_head()
        nodes.start_second()
        resumed(nodes, second, ray)
        row = compared("head", outcomes(nodes, second), expected)
        rows.append({**row, "exit_code_without_head": ended})
    setting = {"what": "setting", "ray": version("ray"), "nodes": 2, "cores_of_a_node": 1}
    publish("ray_drill", [setting, *rows], save=options.save)


if __name__ == "__main__":
    main()
