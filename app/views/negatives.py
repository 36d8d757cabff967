"""Negatives: asked by what was tried, judged by whether they still hold, grouped into themes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from pydantic import Field

from greenfast.app.history import kernel_today
from greenfast.app.views.ablations import each_trial
from greenfast.app.views.base_schemas import Output, ScalarValue
from greenfast.app.views.ledger_scope import searches_of_scope
from greenfast.app.views.schemas import NegativeOut
from greenfast.app.wiring import Services, toolchain_name
from greenfast.db.rows import NegativeRow, TrialRow
from greenfast.search.digest import digest
from greenfast.search.errors import GreenfastError
from greenfast.search.kernels.identity import earlier_form, kernel_identity
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.targets.cuda.nvml import driver_of_today
from greenfast.search.text import written
from greenfast.search.verdict import CORRECT, VerdictName

if TYPE_CHECKING:
    from greenfast.db.store import Store

FEWEST_TRIALS = 3  # of a theme
MOST_THEMES = 8
FEWEST_OF_PAIR = 5
MOST_NEAR = 5
MOST_SEARCHES = 20  # of the scope, whose newest negatives a page looks at
MOST_LOOKED_AT = 500
MOST_TRIALS = 5_000
UNKNOWN_DRIVER = "unknown"  # as a target's identity says it


class ThemeOut(Output):
    """Values that were tried together and never helped."""

    search_id: str
    template: str
    values: dict[str, ScalarValue]
    trials: int = Field(description="that had these values")
    correct: int
    faster: int = Field(description="correct trials faster than the baseline by more than the band")
    best_ratio: float | None = Field(description="the best time / the baseline's; null: no time")
    reasons: dict[str, int] = Field(description="why trials were rejected")
    example: int = Field(description="a trial's number: the best, else the first")
    numbers: list[int] = Field(description="of all these trials")
    sentence: str


class NearOut(Output):
    """A known negative that differs from a candidate in a single parameter."""

    search_id: str
    number: int
    parameter: str
    value: ScalarValue = Field(description="there")
    stage: str
    reason: str
    sentence: str


@dataclass(frozen=True)
class Theme:
    values: tuple[tuple[str, Any], ...]
    trials: tuple[TrialRow, ...]


def themes_of(
    store: Store, search_id: str, recorded: Iterable[TrialRow] | None = None
) -> list[ThemeOut]:
    """The themes of a search: single values first, then pairs of which neither is one alone.

    `recorded`: the search's trials in their order, where the caller has read them.
    """
    search = store.search(search_id)
    every = each_trial(store, search_id) if recorded is None else recorded
    trials = [trial for trial in every if trial.verdict is not None]
    trials = [trial for trial in trials if trial.verdict != VerdictName.FAULTED][-MOST_TRIALS:]
    band = max((trial.time_band or 1.0 for trial in trials), default=1.0)
    kind = search.time_kind or ""
    themes_out: list[ThemeOut] = []
    for template in dict.fromkeys(trial.template for trial in trials):
        of_it = [trial for trial in trials if trial.template == template]
        for theme in _joined(list(_themes(of_it, band))):
            themes_out.append(_theme_out(search_id, template, theme, band, kind))
    return sorted(themes_out, key=lambda theme: -theme.trials)[:MOST_THEMES]


def _joined(themes: Sequence[Theme]) -> list[Theme]:
    """Themes of the same trials as one; themes whose trials a larger one holds are left out."""
    by_trials: dict[frozenset[int], Theme] = {}
    for theme in themes:
        numbers = frozenset(trial.number for trial in theme.trials)
        same = by_trials.get(numbers)
        if same is None:
            by_trials[numbers] = theme
        else:
            values = dict((*same.values, *theme.values))
            by_trials[numbers] = Theme(tuple(values.items()), theme.trials)
    return [
        theme
        for numbers, theme in by_trials.items()
        if not any(numbers < larger for larger in by_trials)
    ]


def _themes(trials: Sequence[TrialRow], band: float) -> Iterator[Theme]:
    varied = _varied(trials)
    single: set[tuple[str, Any]] = set()
    helped = any(_is_faster(trial, band) for trial in trials)

    def is_useful(trial: TrialRow) -> bool:
        """If nothing helped at all, only values that were never correct are worth listing."""
        return _is_faster(trial, band) if helped else _is_correct(trial)

    def is_theme(group: Sequence[TrialRow]) -> bool:
        return FEWEST_TRIALS <= len(group) < len(trials) and not any(map(is_useful, group))

    for pair, group in _groups(trials, varied, 1):
        if is_theme(group):
            single.add(pair[0])
            yield Theme(pair, tuple(group))
    for pair, group in _groups(trials, varied, 2):
        if len(group) >= FEWEST_OF_PAIR and not single & set(pair) and is_theme(group):
            yield Theme(pair, tuple(group))


def _varied(trials: Sequence[TrialRow]) -> set[str]:
    """The parameters with several values among the trials."""
    values: dict[str, set[str]] = defaultdict(set)
    for trial in trials:
        for name, value in trial.parameters.items():
            values[name].add(written(value))
    return {name for name, seen in values.items() if len(seen) > 1}


def _groups(
    trials: Sequence[TrialRow], varied: set[str], size: int
) -> Iterator[tuple[tuple[tuple[str, Any], ...], list[TrialRow]]]:
    groups: dict[tuple[tuple[str, Any], ...], list[TrialRow]] = defaultdict(list)
    for trial in trials:
        pairs = [(name, value) for name, value in trial.parameters.items() if name in varied]
        for combination in combinations(pairs, size):
            groups[combination].append(trial)
    yield from groups.items()


def _is_correct(trial: TrialRow) -> bool:
    slower = trial.stage == "performance" and trial.reason != "implausible"
    return trial.verdict in CORRECT or slower


def _is_faster(trial: TrialRow, band: float) -> bool:
    """Correct, and faster than the baseline by more than what its times tell apart."""
    if trial.is_baseline or trial.verdict not in CORRECT or trial.ratio_to_baseline is None:
        return False
    if trial.time_kind == "measured":
        return trial.verdict == VerdictName.ACCEPTED
    return trial.ratio_to_baseline * band < 1


def _theme_out(search_id: str, template: str, theme: Theme, band: float, kind: str) -> ThemeOut:
    trials = theme.trials
    correct = [trial for trial in trials if _is_correct(trial)]
    timed = [trial for trial in trials if trial.ratio_to_baseline is not None]
    best = min(timed, key=lambda trial: trial.ratio_to_baseline or math.inf, default=None)
    reasons: dict[str, int] = defaultdict(int)
    for trial in trials:
        if trial.reason is not None:
            reasons[trial.reason] += 1
    ordered = dict(sorted(reasons.items(), key=lambda item: -item[1]))
    out = ThemeOut(
        search_id=search_id,
        template=template,
        values=dict(theme.values),
        trials=len(trials),
        correct=len(correct),
        faster=0,
        best_ratio=best.ratio_to_baseline if best is not None else None,
        reasons=ordered,
        example=(best or trials[0]).number,
        numbers=[trial.number for trial in trials],
        sentence="",
    )
    return out.model_copy(update={"sentence": _theme_sentence(out, band, kind)})


def _theme_sentence(theme: ThemeOut, band: float, kind: str) -> str:
    values = " with ".join(f"{name}={written(value)}" for name, value in theme.values.items())
    if not theme.correct:
        why = ", ".join(f"{count} {reason}" for reason, count in theme.reasons.items())
        return f"{values}: {theme.trials} trials, none correct ({why})"
    sentence = f"{values}: {theme.trials} trials, none faster"
    if band > 1:
        sentence += f" by more than the band, a factor of {band:g}"
    if theme.best_ratio is not None:
        times = f" {kind}" if kind and kind != "measured" else ""
        sentence += f" (the best took {theme.best_ratio:.3f} of the baseline's{times} time)"
    return sentence


def near_negatives(
    store: Store, search_id: str, trial: TrialRow, most: int = MOST_NEAR
) -> list[NearOut]:
    """Known negatives of the scope that differ from a trial in one parameter."""
    near: list[NearOut] = []
    for name in searches_of_scope(store, search_id)[:MOST_SEARCHES]:
        page = store.trials(
            name,
            verdict=VerdictName.REJECTED,
            template=trial.template,
            descending=True,
            limit=MOST_LOOKED_AT,
        )
        for row in page.items:
            differing = _differing(row.parameters, trial.parameters)
            if len(differing) == 1:
                near.append(
                    NearOut(
                        search_id=name,
                        number=row.number,
                        parameter=differing[0],
                        value=row.parameters[differing[0]],
                        stage=row.stage or "",
                        reason=row.reason or "",
                        sentence=row.finding,
                    )
                )
            if len(near) >= most:
                return near
    return near


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name in a
        if name not in b or type(a[name]) is not type(b[name]) or a[name] != b[name]
    ]


class Today:
    """Today's kernels and toolchain, asked once for many negatives."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._kernels: dict[tuple[str, str], str] = {}
        self._toolchain: str | None = None
        self._driver: str | None = None
        self._digests: dict[str, str] = {}

    def expired(self, negative: NegativeRow) -> str:
        """Why the advice no longer holds; empty: as far as it is known here, it does.

        The record never expires. The driver counts for what ran on a GPU, and only where one is
        loaded: a machine without a GPU cannot tell.
        """
        changed = self._kernel_change(negative)
        if changed:
            return changed
        today = self._toolchain_today()
        if today and negative.toolchain and today != negative.toolchain:
            return f"it was found with {negative.toolchain}, and today's toolchain is {today}"
        if negative.driver in ("", UNKNOWN_DRIVER):
            return ""
        driver = self._driver_today()
        if driver and driver != negative.driver:
            return f"it was found with driver {negative.driver}, and today's driver is {driver}"
        return ""

    def _kernel_change(self, negative: NegativeRow) -> str:
        key = (negative.kernel, self._digest_of(negative.search_id))
        if key not in self._kernels:
            self._kernels[key] = self._compared(*key)
        return self._kernels[key]

    def _compared(self, name: str, found: str) -> str:
        kernel = kernel_today(self._services.catalogue, name)
        if kernel is None:
            return f"kernel {name} is gone"
        if found == kernel_identity(kernel) or _is_earlier_form(kernel, found):
            return ""
        return f"the files of kernel {name} have changed since"

    def _digest_of(self, search_id: str) -> str:
        if search_id not in self._digests:
            self._digests[search_id] = self._services.store.plan(search_id).kernel_digest
        return self._digests[search_id]

    def _driver_today(self) -> str:
        if self._driver is None:
            self._driver = driver_of_today()
        return self._driver

    def _toolchain_today(self) -> str:
        if self._toolchain is None:
            try:
                self._toolchain = toolchain_name(self._services.toolchain)
            except (GreenfastError, KeyError):
                self._toolchain = ""
        return self._toolchain


# Whether a digest is that of an earlier form, by the kernel's digest and this one: half a second.
_EARLIER: dict[tuple[str, str], bool] = {}


def _is_earlier_form(kernel: KernelSpec, old: str) -> bool:
    pair = (digest(kernel), old)
    if pair not in _EARLIER:
        _EARLIER[pair] = earlier_form(kernel, old) is not None
    return _EARLIER[pair]


def negatives_out(services: Services, rows: Iterable[NegativeRow]) -> list[NegativeOut]:
    """Negatives with today's standing of each."""
    today = Today(services)
    return [
        NegativeOut.model_validate(row).model_copy(update={"expired": today.expired(row)})
        for row in rows
    ]
