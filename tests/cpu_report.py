"""`--cpu-report FILE`: the processor time of every test, its child processes included.

Wall time misleads on a machine with other work; processor time does not. A child process counts
when it has ended and was waited for, so a service that a whole module shares shows up in the
teardown of the module's last test.
"""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

PROPERTY = "cpu_s"


def processor_time_s() -> float:
    """User and system time of this process and of its children that were waited for."""
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class CpuMeter:
    """Measures in the process that runs the tests; a report carries the numbers to the controller."""

    def __init__(self) -> None:
        self.before_s = processor_time_s()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        now_s = processor_time_s()
        item.user_properties.append((PROPERTY, (call.when, now_s - self.before_s)))
        self.before_s = now_s
        return (yield)


class CpuReport:
    """Writes a line a test: seconds in all, then set-up, call and teardown; the longest first."""

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
