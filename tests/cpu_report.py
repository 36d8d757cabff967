"""`--cpu-report=FILE`: the processor time of every test, its child processes included.

Wall time misleads on a machine with other work; processor time does not. What a fixture of a
module or session costs is charged to the test that needs it first. The time of a process whose
parent has ended is lost.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

PROPERTY = "cpu_s"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
TIMES = slice(11, 15)  # utime to cstime among the fields of /proc/PID/stat behind the name


def _ticks_below(pid: int) -> int:
    """The time of the running processes below `pid`, and of those that these waited for."""
    ticks = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                stat = Path(f"/proc/{child}/stat").read_text()
                fields = stat.rpartition(")")[2].split()
                ticks += sum(map(int, fields[TIMES])) + _ticks_below(int(child))
    except (FileNotFoundError, ProcessLookupError):
        pass  # It ended meanwhile; its time counts at the next reading.
    return ticks


def processor_time_s() -> float:
    """User and system time of this process and of all processes below it, ended or running."""
    usages = [
        resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    ended_s = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return ended_s + _ticks_below(os.getpid()) / TICKS_PER_S


class CpuMeter:
    """Runs beside the tests; a report's properties carry the numbers to the controller."""

    def __init__(self) -> None:
        self.before_s = processor_time_s()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        now_s = processor_time_s()
        item.user_properties.append((PROPERTY, (call.when, now_s - self.before_s)))
        self.before_s = now_s
        return (yield)


class CpuReport:
    """Writes a line for each test: the sum, then set-up, call and teardown; longest first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tests: dict[str, dict[str, float]] = {}

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            phases = [value for name, value in report.user_properties if name == PROPERTY]
            self.tests[report.nodeid] = dict(phases)

    def pytest_sessionfinish(self):
        rows = sorted(self.tests.items(), key=lambda row: -sum(row[1].values()))
        lines = [f"{sum(sum(phases.values()) for phases in self.tests.values()):9.2f} all"]
        for test, phases in rows:
            times_s = (phases.get(when, 0.0) for when in ("setup", "call", "teardown"))
            columns = " ".join(f"{time_s:7.2f}" for time_s in times_s)
            lines.append(f"{sum(phases.values()):9.2f} {columns} {test}")
        self.path.write_text("\n".join(lines) + "\n")


def add_option(parser) -> None:
    parser.addoption(
        "--cpu-report",
        type=Path,
        metavar="FILE",
        help="write the processor time of each test to FILE",
    )


def register(config) -> None:
    path = config.getoption("--cpu-report")
    if path is None:
        return
    config.pluginmanager.register(CpuMeter())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(CpuReport(path))
