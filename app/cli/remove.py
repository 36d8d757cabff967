"""`greenfast rm`: removing searches and trials for good."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import print_json
from greenfast.app.cli.services import opened_services
from greenfast.app.views.terminal import say
from greenfast.app.views.trial_names import named
from greenfast.search.errors import UsageError

if TYPE_CHECKING:
    from greenfast.db.removal import Removal

NAMES = {
    "tunings": ("tuning", "tunings"),
    "searches": ("search", "searches"),
    "trials": ("trial", "trials"),
    "sources": ("source", "sources"),
    "confirmations": ("confirmation", "confirmations"),
    "peers": ("timed peer", "timed peers"),
    "kernel_files": ("kept kernel file", "kept kernel files"),
}


def rm(
    names: Annotated[
        list[str],
        typer.Argument(metavar="SEARCH[/TRIAL]...", help="Searches, or trials of ended searches."),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be removed.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Delete searches or trials, with the sources and evidence that only they have.

    A champion's trial, its confirmation, and the trials that it was compared with are kept. A
    running search is refused. The searches of a tuning are removed together, with the tuning.
    """
    with opened_services() as services:
        store = services.store
        subjects = [(name.search_id, name.number) for name in (named(store, n) for n in names)]
        removal = store.rehearse_removal(subjects)
        if not dry_run and (removal.trials or removal.searches):
            if not yes:
                ask(removal)
            removal = store.remove(subjects)
    if as_json:
        print_json({**asdict(removal), "removed": not dry_run})
    for line in sentences(removal, "would be removed" if dry_run else "removed"):
        say(line)
    return 0


def ask(removal: Removal) -> None:
    """Ask the person at the terminal; UsageError `needs_yes` without one."""
    for line in sentences(removal, "will be removed"):
        say(line)
    if not sys.stdin.isatty():
        raise UsageError(
            "nothing was removed: there is no terminal to ask for confirmation",
            code="needs_yes",
            mend="add --yes to remove without asking",
        )
    typer.confirm("Remove them for good?", abort=True, err=True)


def sentences(removal: Removal, ending: str) -> list[str]:
    """`1 search, 40 trials and 38 sources removed`, and what stays."""
    counts = [
        f"{number:,} {names[number != 1]}"
        for field, names in NAMES.items()
        if (number := getattr(removal, field))
    ]
    lines = [f"{_listed(counts) or 'nothing'} {ending}"]
    if len(removal.kept) == 1:
        lines.append(f"{removal.kept[0]} stays: a champion refers to it")
    elif removal.kept:
        lines.append(f"{_listed(removal.kept)} stay: champions refer to them")
    return lines


def _listed(words: list[str] | tuple[str, ...]) -> str:
    *first, last = words or ("",)
    return f"{', '.join(first)} and {last}" if first else last
