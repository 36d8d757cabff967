"""Commands about champions: show them, confirm a winner once more, and promote it."""

from __future__ import annotations

from typing import Annotated

import typer

from greenfast.app.cli.lists import SearchId, opened_services
from greenfast.app.cli.output import console, microseconds, print_json, say, table
from greenfast.app.cli.search import exit_code, run_here, show_search
from greenfast.app.cli.trial import AsJson
from greenfast.app.service.worker import Left, Stop
from greenfast.app.views.confirmations import champion_out, interval
from greenfast.app.views.progress import search_detail
from greenfast.app.views.schemas import ChampionOut
from greenfast.db.store import Store
from greenfast.search.errors import UsageError
from greenfast.search.loop.run import Ended


def add_champion_commands(app: typer.Typer) -> None:
    for command in (champions, promote, confirm):
        app.command(command.__name__)(command)


def champions(
    kernel: Annotated[str | None, typer.Argument(help="Only this kernel's.")] = None,
    replaced: Annotated[
        bool, typer.Option("--replaced", help="Also those that were champions.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500)] = 50,
    as_json: AsJson = False,
) -> int:
    """The confirmed best of each scope: kernel, workloads, compile-time values, device and toolchain."""
    with opened_services() as services:
        found = [
            champion_out(item, services.catalogue)
            for item in services.store.champions(
                kernel=kernel, replaced=replaced, limit=limit
            ).items
        ]
    if as_json:
        print_json([one.model_dump() for one in found])
        return 0
    if not found:
        say(
            "no champion yet: promote the confirmed winner of a search with `greenfast promote SEARCH_ID`"
        )
        return 0
    console().print(
        table(
            (
                "kernel",
                "workloads",
                "for",
                "on",
                "measured",
                "of baseline",
                "of the best peer",
                "trial",
                "promoted",
            ),
            [_line(one) for one in found],
        )
    )
    for one in found:
        if one.recheck:
            say(
                f"trial {one.trial.number} of search {one.trial.search_id}: {one.recheck}; "
                f"`greenfast confirm {one.trial.search_id}`"
            )
    return 0


def promote(
    search: SearchId,
    trial: Annotated[
        int | None, typer.Argument(help="Its confirmed winner, when left out.")
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Also when the scope's champion was not timed against it."),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Make the confirmed winner of a search the champion of its scope."""
    with opened_services() as services:
        number = confirmed_trial(services.store, search) if trial is None else trial
        found = champion_out(
            services.store.promote(search, number, replace=replace), services.catalogue
        )
    if as_json:
        print_json(found.model_dump())
        return 0
    scope = found.scope
    say(
        f"trial {found.trial.number} of search {found.trial.search_id} is the champion of {scope.kernel} "
        f"{', '.join(scope.workloads)} on {scope.device} with {scope.toolchain}"
    )
    return 0


def confirm(search: SearchId, as_json: AsJson = False) -> int:
    """Time the winner of a completed search again, in fresh processes and beside its peers. 0: confirmed; 1: not."""
    with opened_services() as services:
        stop = Stop(services.settings.drain_s, on_force=services.interrupt)
        stop.on_signals()
        services.catalogue_of(search)
        before = services.store.confirmation(search)
        services.store.request_confirmation(search)
        report = run_here(services, search, stop)
        found = services.store.confirmation(search)
        detail = search_detail(services.store, search)
    print_json(detail.model_dump()) if as_json else show_search(detail)
    if report.left is Left.STOPPED or report.ended is Ended.FAILED:
        return exit_code(report, detail)
    return 0 if found is not None and found != before and found.confirmation.confirmed else 1


def confirmed_trial(store: Store, search_id: str) -> int:
    """The trial that the search's confirmation is about; UsageError `not_confirmed` when there is none."""
    found = store.confirmation(search_id)
    if found is None:
        raise UsageError(
            f"the winner of search {search_id} was not timed again in fresh processes",
            code="not_confirmed",
            mend="only the confirmed winner of a search can become champion",
        )
    return found.confirmation.trial


def _line(one: ChampionOut) -> tuple[object, ...]:
    peers = "\n".join(
        f"{interval(peer.comparison)}\n{peer.name} {peer.version}" for peer in one.best_peers
    )
    baseline = next(
        (interval(each) for each in one.confirmation.comparisons if each.against == "baseline"), "-"
    )
    until = (
        f"{one.promoted_at[:10]} to {one.replaced_at[:10]}"
        if one.replaced_at
        else one.promoted_at[:10]
    )
    return (
        one.scope.kernel,
        ", ".join(one.scope.workloads),
        " ".join(map(str, one.scope.values.values())),
        f"{one.scope.device}, {one.scope.toolchain}",
        microseconds(one.trial.time_median_us, one.trial.time_mode),
        baseline,
        peers or "-",
        f"{one.trial.search_id} {one.trial.number}",
        until,
    )
