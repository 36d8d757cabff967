"""`greenfast importance`: which parameters the times of a search depend on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from greenfast.app.cli.options import AsJson, SearchName
from greenfast.app.cli.output import console, print_json, table, text
from greenfast.app.cli.services import opened_services
from greenfast.app.views.terminal import say
from greenfast.app.views.trial_names import search_named
from greenfast.search.text import written

if TYPE_CHECKING:
    from greenfast.app.views.compare_schemas import ImportanceOut, TemplateImportancesOut

BAR = 20  # characters of the largest share


def importance(search: SearchName, as_json: AsJson = False) -> int:
    """Show which parameters the times of a search depend on.

    An additive model explains the variance of log time by the parameters; each parameter's share
    is shown. The model's quality is shown, too: if it predicts nothing, the shares mean nothing.
    Interactions are not modelled, and a strategy does not try all values evenly.
    """
    from greenfast.app.views.importances import METHOD, importances

    with opened_services() as services:
        store = services.store
        report = importances(store, search_named(store, search))
    if as_json:
        print_json(report.model_dump())
        return 0
    if not report.templates:
        say("no trial is recorded yet")
        return 0
    out = console()
    for template in report.templates:
        kind = f", {report.time_kind} times" if report.time_kind else ""
        out.print(table(COLUMNS, _rows(template), title=f"{template.template}{kind}"))
        out.print(text(template.sentence))
        out.print()
    out.print(text(f"Each share: {METHOD}."))
    return 0


COLUMNS = ("parameter", "share", "", "value: median time in us (correct of tried)")


def _rows(template: TemplateImportancesOut) -> Iterator[tuple[object, ...]]:
    for parameter in template.parameters:
        if len(parameter.values) < 2:
            continue
        share = parameter.share
        bar = "" if share is None else "#" * round(share * BAR)
        shown = "-" if share is None else f"{share:.1%}"
        yield parameter.name, shown, Text(bar), _values(parameter)


def _values(parameter: ImportanceOut) -> str:
    return ", ".join(
        f"{written(each.value)}: {'-' if each.median_us is None else f'{each.median_us:.1f}'} "
        f"({each.correct}/{each.trials})"
        for each in parameter.values
    )
