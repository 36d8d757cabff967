"""Commands about champions: list them, confirm a winner again, and promote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.options import AsJson, SearchId
from greenfast.app.cli.output import console, microseconds, print_json, table
from greenfast.app.cli.services import opened_services
from greenfast.app.views.terminal import say
from greenfast.app.views.trial_names import search_named
from greenfast.search.errors import UsageError

if TYPE_CHECKING:
    from greenfast.app.views.schemas import ChampionOut
    from greenfast.db.store import Store

COLUMNS = (
    "kernel",
    "workloads",
    "compiled for",
    "device",
    "measured",
    "ratio to baseline",
    "ratio to best peer",
    "search and trial",
    "promoted",
)


def champions(
    kernel: Annotated[
        str | None, typer.Argument(metavar="KERNEL", help="List only this kernel's champions.")
    ] = None,
    replaced: Annotated[
        bool, typer.Option("--replaced", help="Also list champions that were replaced.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=500, help="List at most N.")
    ] = 50,
    as_json: AsJson = False,
) -> int:
    """List champions: the confirmed best candidate of each scope.

    A scope is a kernel with its workloads, compile-time values, device and toolchain. Ratios below
    1 are faster; their intervals are in brackets.
    """
    from greenfast.app.views.confirmations import champion_out

    with opened_services() as services:
        kernel = services.known_kernel(kernel)
        rows = services.store.champions(kernel=kernel, replaced=replaced, limit=limit).items
        listed = [champion_out(row, services.catalogue) for row in rows]
    if as_json:
        print_json([champion.model_dump() for champion in listed])
        return 0
    if not listed:
        say(
            "no champion yet: promote the confirmed winner of a search with "
            "`greenfast promote SEARCH_ID`"
        )
        return 0
    console().print(table(COLUMNS, [_row(champion) for champion in listed]))
    for champion in listed:
        if champion.recheck:
            trial = champion.trial
            say(
                f"trial {trial.number} of search {trial.search_id}: {champion.recheck}; "
                f"`greenfast confirm {trial.search_id}`"
            )
    return 0


def promote(
    search: SearchId,
    trial: Annotated[
        int | None,
        typer.Argument(
            metavar="TRIAL", help="The number of a trial. [default: the confirmed winner]"
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Replace the champion even if this trial was not timed against it.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Make the confirmed winner of a search the champion of its scope.

    Later searches on a GPU take the champion as their baseline.
    """
    from greenfast.app.views.confirmations import champion_out

    with opened_services() as services:
        search = search_named(services.store, search)
        number = confirmed_trial(services.store, search) if trial is None else trial
        row = services.store.promote(search, number, replace=replace)
        champion = champion_out(row, services.catalogue)
    if as_json:
        print_json(champion.model_dump())
        return 0
    scope = champion.scope
    say(
        f"trial {champion.trial.number} of search {champion.trial.search_id} is the champion of "
        f"{scope.kernel} {', '.join(scope.workloads)} on {scope.device} with {scope.toolchain}"
    )
    return 0


def confirm(search: SearchId, as_json: AsJson = False) -> int:
    """Time the winner of a completed search again, in fresh processes and beside its peers.

    Peers are other people's kernels for the same operation, such as PyTorch's.

    Exit codes: 0 confirmed, 1 not confirmed.
    """
    from greenfast.app.cli.search_report import show_search
    from greenfast.app.cli.search_run import exit_code, run_here
    from greenfast.app.service.worker import Left, Stop
    from greenfast.app.views.progress import search_detail
    from greenfast.search.loop.sink import Ended

    with opened_services() as services:
        stop = Stop(services.settings.drain_s, on_force=services.interrupt)
        stop.on_signals()
        search = search_named(services.store, search)
        services.catalogue_of(search)
        before = services.store.confirmation(search)
        services.store.request_confirmation(search)
        report = run_here(services, search, stop)
        after = services.store.confirmation(search)
        detail = search_detail(services.store, search)
    if as_json:
        print_json(detail.model_dump())
    else:
        show_search(detail)
    if report.left is Left.STOPPED or report.ended is Ended.FAILED:
        return exit_code(report, detail)
    return 0 if after is not None and after != before and after.confirmation.confirmed else 1


def confirmed_trial(store: Store, search_id: str) -> int:
    """The trial that the search's confirmation is about; UsageError `not_confirmed` without one."""
    row = store.confirmation(search_id)
    if row is None:
        raise UsageError(
            f"the winner of search {search_id} was not timed again in fresh processes",
            code="not_confirmed",
            mend="only the confirmed winner of a search can become champion",
        )
    return row.confirmation.trial


def _row(champion: ChampionOut) -> tuple[object, ...]:
    from greenfast.app.views.confirmations import interval

    peers = "\n".join(
        f"{interval(peer.comparison)}\n{peer.name} {peer.version}"
        for peer in champion.best_peers
        if peer.comparison is not None
    )
    baseline = next(
        (
            interval(comparison)
            for comparison in champion.confirmation.comparisons
            if comparison.against == "baseline"
        ),
        "-",
    )
    promoted = champion.promoted_at[:10]
    return (
        champion.scope.kernel,
        ", ".join(champion.scope.workloads),
        " ".join(map(str, champion.scope.values.values())),
        f"{champion.scope.device}, {champion.scope.toolchain}",
        microseconds(champion.trial.time_median_us, champion.trial.time_mode),
        baseline,
        peers or "-",
        f"{champion.trial.search_id} {champion.trial.number}",
        f"{promoted} to {champion.replaced_at[:10]}" if champion.replaced_at else promoted,
    )
