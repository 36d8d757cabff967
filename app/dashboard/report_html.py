"""A report as a page, and as one HTML file that needs nothing beside it."""

from __future__ import annotations

import math
from collections.abc import Callable

from markupsafe import Markup

from greenfast.app.dashboard.pages import STATIC, environment
from greenfast.app.dashboard.words import time_us
from greenfast.app.views.report_markdown import anchor
from greenfast.app.views.report_schemas import ReportOut, SearchReportOut

Link = Callable[[str, int], str]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 240, 72, 12, 10, 38
MOST_POINTS = 1_500
FEWEST_POINTS = 3
FEWEST_TICKS, MOST_TICKS = 3, 6
ROUND_DIGITS: tuple[tuple[float, ...], ...] = (  # the first that gives enough ticks
    (1, 2, 5),
    (1, 1.5, 2, 3, 4, 5, 6, 8),
    tuple(tenth / 10 for tenth in range(10, 100)),
)


def report_file(
    report: ReportOut, *, link: Link | None = None, home: str = "", home_title: str = ""
) -> str:
    """One self-contained file: the sheet and the curves are inside it, and it runs no script."""
    template = environment().get_template("report_file.html")
    return template.render(
        report=report,
        link=link or (lambda search, number: f"#{anchor(search, number)}"),
        curves=curves(report),
        sheet=Markup((STATIC / "dashboard.css").read_text("utf-8")),
        home=home,
        home_title=home_title,
    )


def curves(report: ReportOut) -> dict[str, Markup]:
    """The best-so-far curve of each search that has some times, as SVG."""
    return {
        search.id: curve(search)
        for search in report.searches
        if len(search.points) >= FEWEST_POINTS
    }


def curve(search: SearchReportOut) -> Markup:
    """Each correct trial's time over its number, and the best so far as a line; log scale."""
    points = search.points[-MOST_POINTS:]
    times = [point.time_us for point in points]
    low, high = min(times) / 1.05, max(times) * 1.05
    first, last = points[0].number, max(points[-1].number, points[0].number + 1)

    def x(number: int) -> str:
        share = (number - first) / (last - first)
        return f"{LEFT + share * (WIDTH - LEFT - RIGHT):.1f}"

    def y(time: float) -> str:
        share = (math.log(time) - math.log(low)) / (math.log(high) - math.log(low))
        return f"{HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM):.1f}"

    path = [f"M{x(points[0].number)} {y(points[0].best_us)}"]
    for point in points[1:]:
        path.append(f"H{x(point.number)}V{y(point.best_us)}")
    dots = "".join(
        f'<circle cx="{x(point.number)}" cy="{y(point.time_us)}" r="2.6"><title>trial '
        f"{point.number}: {time_us(point.time_us)}</title></circle>"
        for point in points
    )
    ticks = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(time)}" y2="{y(time)}"/>'
        f'<text x="{LEFT - 8}" y="{float(y(time)) + 4:.1f}" text-anchor="end">'
        f"{time_us(time)}</text>"
        for time in _ticks(low, high)
    )
    ends = "".join(
        f'<text x="{x(number)}" y="{HEIGHT - 22}" text-anchor="{place}">{number}</text>'
        for number, place in ((first, "start"), (points[-1].number, "end"))
    )
    middle = (LEFT + WIDTH - RIGHT) / 2
    ends += f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">trial</text>'
    label = f"Times of {len(points)} correct trials; the best takes {time_us(min(times))}."
    return Markup(
        f'<svg class="report-curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{label}">{ticks}{ends}{dots}<path d="{"".join(path)}"/></svg>'
    )


def _ticks(low: float, high: float) -> list[float]:
    """At most six round times between the ends: 1, 2, 5, or with more digits in a narrow range."""
    for digits in ROUND_DIGITS:
        ticks = [
            digit * 10.0**power
            for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for digit in digits
            if low <= digit * 10.0**power <= high
        ]
        if len(ticks) >= FEWEST_TICKS:
            return ticks[:: math.ceil(len(ticks) / MOST_TICKS)]
    return [low, high]
