"""The ablation at the end of a search: a part of it, within a limited time."""

from __future__ import annotations

import time
from collections.abc import Callable

from greenfast.app.views.ablations import run_ablation
from greenfast.app.wiring import Services
from greenfast.search.errors import GreenfastError
from greenfast.search.loop.sink import Ended

REPLAY = "replay:"


def ablate_after(
    services: Services,
    search_id: str,
    ended: Ended | None,
    *,
    seconds: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Ablate the winner of a search that has ended, and say how far it came.

    None for `seconds`: the setting's time where times are measured and the winner is confirmed.
    Elsewhere nothing, because modelled times tell most changes not apart; a number asks for it
    anywhere. A fault is said and changes nothing of the search.
    """
    if ended is not Ended.COMPLETED:
        return
    try:
        if seconds is None:
            seconds = services.settings.ablation_s if _is_worth_it(services, search_id) else 0.0
        if seconds > 0 and not services.store.plan(search_id).target.startswith(REPLAY):
            _ablate(services, search_id, seconds, stopped, say)
    except GreenfastError as error:
        say(f"no ablation: {error}")


def _ablate(
    services: Services,
    search_id: str,
    seconds: float,
    stopped: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    best = services.store.best(search_id)
    if best is None:
        return
    until = time.monotonic() + seconds
    ablation = run_ablation(
        services,
        search_id,
        best.number,
        retune=0,
        go_on=lambda: time.monotonic() < until and not stopped(),
    )
    say(ablation.summary if ablation.findings else "no time was left for an ablation")
    rest = "" if ablation.complete else "measures the rest, and "
    say(f"`greenfast ablate {search_id}/{best.number}` {rest}tunes again what matters")


def _is_worth_it(services: Services, search_id: str) -> bool:
    """Whether the winner was confirmed by measured times."""
    row = services.store.confirmation(search_id)
    return row is not None and row.confirmation.confirmed
