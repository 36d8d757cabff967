"""Every command of `greenfast`, in the order of the help. A command's module is imported on use."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, cast

import typer
from typer.core import TyperGroup

from greenfast.app.cli.interrupts import ended_by_interrupts


@dataclass(frozen=True)
class Command:
    """`function` of `greenfast.app.cli.MODULE`; its docstring is the command's own help."""

    name: str
    module: str
    summary: str  # one line, for the list of all commands
    function: str = ""  # empty: called as the command

    def called(self) -> Any:
        """The function behind the command."""
        module = _imported(f"greenfast.app.cli.{self.module}")
        return getattr(module, self.function or self.name)

    def load(self) -> Any:
        """The command as Typer runs it."""
        settings = {"help_option_names": ["-h", "--help"]}
        single = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=settings)
        single.command(self.name)(self.called())
        return typer.main.get_command(single)


SECTIONS: dict[str, tuple[Command, ...]] = {
    "Start here": (
        Command("doctor", "doctor", "Check what this machine has and what it lacks."),
        Command("search", "search", "Search for the fastest correct candidate of a kernel."),
        Command("tune", "tune", "Tune a kernel for your workloads; saves one bundle."),
        Command("serve", "service", "Start the dashboard and the REST API, with workers."),
        Command("docs", "docs", "List, print and search the documentation."),
    ),
    "Choose what to search": (
        Command("templates", "lists", "List templates with their parameters and presets."),
        Command("workloads", "workloads", "List a kernel's workloads, or check your own."),
        Command("trace", "trace", "Record the shapes that a PyTorch program uses."),
        Command("targets", "lists", "List the targets that candidates can run on."),
    ),
    "Write a kernel": (
        Command("new", "new", "Write a kernel or a template to start from."),
        Command("lint", "lint", "Check a kernel's files without running a candidate."),
        Command(
            "import", "import_kernel", "Convert a CUDA file with #defines into a kernel.", "import_"
        ),
    ),
    "Follow and control searches": (
        Command("searches", "lists", "List searches, newest first."),
        Command("tunings", "tunings", "List tunings, newest first."),
        Command("show", "show", "Show a search, or one trial of it."),
        Command("trials", "trials", "List, select and sort the trials of a search."),
        Command("compare", "compare", "Compare two trials, or the best of two searches."),
        Command("importance", "importance", "Show which parameters the times depend on."),
        Command("pareto", "pareto", "Show the trials that no other beats in every objective."),
        Command("negatives", "negatives", "List ideas that were tried and did not help."),
        Command("recheck", "recheck", "Evaluate old negatives again, with today's files."),
        Command("ablate", "ablate", "Switch each feature of a winner off, one at a time."),
        Command("pause", "control", "Pause a search."),
        Command("resume", "control", "Queue a paused search again, for a worker."),
        Command("cancel", "control", "End a search; its trials are kept."),
        Command("rm", "remove", "Delete searches or trials."),
        Command("worker", "service", "Run queued searches, one after another."),
    ),
    "Use the result": (
        Command("source", "lists", "Print the CUDA source of a candidate."),
        Command("bundle", "lists", "Save the best candidate as a zip file.", "bundle_command"),
        Command("report", "report", "Write a search or a tuning as a lab note."),
        Command("publish", "publish", "Write the ledger as plain HTML pages."),
        Command("ledger", "ledger", "Exchange the ledger as JSON lines."),
        Command("export", "export", "Save the trials of a search as JSON, CSV or Optuna studies."),
        Command("bench", "bench", "Time presets or trials again, side by side."),
        Command("verify", "verify", "Check a bundle again on this machine."),
        Command("confirm", "champions", "Time the winner of a search again, in fresh processes."),
        Command("promote", "champions", "Make a confirmed winner the champion of its scope."),
        Command("champions", "champions", "List champions: the confirmed best of each scope."),
    ),
    "Examine one candidate": (
        Command("trial", "trial", "Take one candidate through all gates."),
        Command("evolve", "evolve", "Let a program write sources; keep the fastest correct one."),
        Command("mcp", "mcp", "Let an agent submit and read sources over MCP."),
        Command("judge", "judge", "Test your own source with all gates of a kernel."),
        Command("check", "check", "Look for races and bad memory accesses, also in your own .cu."),
        Command("explain", "explain", "Explain why a trial is wrong: stage, step and error."),
        Command("probe", "probe", "Find the stage at which a candidate's values go wrong."),
        Command("profile", "profile", "Run a trial under Nsight Compute or compute-sanitizer."),
    ),
    "Set up": (
        Command("config", "config", "Show every setting and where it comes from."),
        Command("cache", "cache", "Show the cache of compiled kernels, or clear it."),
        Command("completion", "completion", "Print the completion script for a shell."),
        Command(
            "toolkit", "toolkit", "Show the CUDA compiler in use, or install one for greenfast."
        ),
    ),
    "Record a GPU": (
        Command("record", "record", "Measure a whole space on a GPU and keep it as a file."),
        Command("recording", "recording", "Show the contents of a recording."),
        Command(
            "import-space",
            "import_space",
            "Make a target from a space that another tuner measured.",
            "import_space",
        ),
    ),
    "Test greenfast itself": (
        Command("album", "album", "Run kernels that are wrong on purpose; each must be caught."),
    ),
}


class LoadedOnUse(Mapping[str, Any]):
    """Commands by name. Listing them imports none, so that `greenfast --help` is fast."""

    def __init__(self) -> None:
        self._known = {
            command.name: command for section in SECTIONS.values() for command in section
        }
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._known[name].load()
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class CommandGroup(TyperGroup):
    """`greenfast` itself: lists its commands by section."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast(MutableMapping[str, Any], LoadedOnUse())

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(command.name, command.summary) for command in commands])


def _imported(name: str) -> Any:
    """The module. Importing leaves no garbage, and looking for some takes a fifth of a command's
    start, so the collector pauses and then ignores what was imported, to the end of the process."""
    gc.disable()
    try:
        with ended_by_interrupts():
            return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()
