"""Searches to look at: real candidates and sources of attention, with made-up verdicts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from example_verdicts import ExampleVerdicts

from greenfast.db.rows import SearchRow
from greenfast.db.store import Store
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.expressions import Value
from greenfast.search.loop.comparison import Comparison, Confirmation, Peer, ProcessTimes
from greenfast.search.loop.plan import SearchPlan, SearchRequest, make_plan
from greenfast.search.loop.sink import Ended
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
    preset_candidate,
)
from greenfast.search.space.space import Space
from greenfast.search.strategies.base import Proposal
from greenfast.search.verdict import (
    Faulted,
    Reason,
    Rejected,
    Stage,
    TimeKind,
    Timing,
    Trial,
    Verdict,
    performance_of,
)

HOSTILE_NAME = '<script>document.title="owned"</script> & "quoted" <b>bold</b>'
HOSTILE_LOG = (
    "attention/wmma.cu.j2(57): error: identifier "
    "\"<img src=x onerror=document.title='owned'>\" is undefined\n"
    "  \x1b[31mstaged\x1b[0m[stage] = \u202edesrever\u202c;\n      ^\n\n"
    "1 error detected in the compilation.\n"
)
MIXED_TOOLCHAIN = (
    "the loaded NVRTC is 13.0.88, but 13.5.37 is installed. Unset LD_LIBRARY_PATH or use a fresh "
    "environment."
)
WRONG_TRIAL, COMPILE_TRIAL, FAULTED_TRIAL, RACE_TRIAL, IMPLAUSIBLE_TRIAL = 7, 11, 17, 23, 29


@dataclass
class ExampleSearch:
    """A search that this process works on, as a worker would."""

    store: Store
    plan: SearchPlan
    row: SearchRow
    catalogue: Catalogue
    next_number: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.plan.seed)
        self.verdicts = ExampleVerdicts(self.plan, self.catalogue, self.random)
        claim = self.store.claim("example", 3600.0, self.row.id)
        assert claim is not None
        self.claim = claim
        self.store.describe(
            self.claim, {"device": "h200", "toolchain": "NVRTC 13.5", "host_compiler": "g++ 12.2"}
        )
        self.candidates = self._candidates()

    def _candidates(self) -> list[Candidate]:
        """The baseline, the other presets, then points of all spaces, with every origin."""
        kernel, compiled = self.verdicts.kernel, self.verdicts.compiled
        presets = [
            preset_candidate(template, preset.name, compiled)
            for template in kernel.templates
            for preset in template.presets
            if template.name in self.plan.templates
        ]
        presets.sort(
            key=lambda preset: f"{preset.template}:{preset.origin.preset}" != self.plan.baseline
        )
        spaces = {
            name: Space(kernel.template(name), compiled, self.verdicts.device)
            for name in self.plan.templates
        }
        candidates = list(presets)
        seen = {(preset.template, preset.parameters) for preset in presets}
        while len(candidates) < 2 * self.plan.trials:
            name = self.random.choice(
                [name for name in spaces for _ in range(3 if name == "wmma" else 1)]
            )
            template = kernel.template(name)
            values = {
                parameter.name: self.random.choice(parameter.values)
                for parameter in template.parameters
            }
            parameters = complete_parameters(template, values, compiled)
            if (name, parameters) in seen or spaces[name].why_not(parameters) is not None:
                continue
            seen.add((name, parameters))
            origin = self._origin(candidates, dict(parameters))
            candidates.append(Candidate(kernel.name, name, parameters, origin))
        return candidates

    def _origin(self, earlier: list[Candidate], values: dict[str, Value]) -> Origin:
        kind = self.random.choice(
            (OriginKind.SAMPLED, OriginKind.MUTATED, OriginKind.CROSSED, OriginKind.REPAIRED)
        )
        newest = [candidate.digest for candidate in earlier[-2:]]
        if kind is OriginKind.REPAIRED:
            sizes = [(name, value) for name, value in values.items() if type(value) is int]
            return Origin(kind, wanted=tuple((name, 2 * value) for name, value in sizes[:2]))
        parents = {OriginKind.MUTATED: newest[-1:], OriginKind.CROSSED: newest}.get(kind, [])
        return Origin(kind, tuple(parents))

    def begin_next(self) -> tuple[int, Candidate]:
        number, self.next_number = self.next_number, self.next_number + 1
        self.store.begin(self.claim, number, Proposal(self.candidates[number], {"asked": number}))
        return number, self.candidates[number]

    def record_next(self, verdict: Verdict | None = None) -> int:
        """One more trial: the given verdict, or one that its figures suggest."""
        number, candidate = self.begin_next()
        self.record(number, candidate, verdict)
        return number

    def record(self, number: int, candidate: Candidate, verdict: Verdict | None = None) -> None:
        source = self.verdicts.source(candidate)
        verdict = verdict or self.verdicts.suggested(self.next_number, candidate)
        if number == 0:
            performance = performance_of(verdict)
            assert performance is not None
            self.verdicts.baseline_us = performance.timings[0].time_median_us
        trial = Trial(number, candidate, verdict, source.digest, self.random.uniform(1.2, 4.8))
        self.store.record(self.claim, trial, source)
        self.store.renew(self.claim, 3600.0, 2.1 * (number + 1))


def start(store: Store, catalogue: Catalogue, **request: Any) -> ExampleSearch:
    plan = make_plan(
        SearchRequest("attention", seed=20250, **{"templates": ("scalar", "wmma"), **request}),
        catalogue,
    )
    return ExampleSearch(store, plan, store.submit(plan), catalogue)


def finished_search(store: Store, catalogue: Catalogue, trials: int = 64) -> ExampleSearch:
    """A completed search with every verdict in it."""
    search = start(
        store,
        catalogue,
        name="attention mission, first sweep",
        workloads=("mission",),
        trials=trials,
    )
    special: dict[int, Callable[[Candidate], Verdict]] = {
        WRONG_TRIAL: search.verdicts.wrong,
        RACE_TRIAL: search.verdicts.racy,
        IMPLAUSIBLE_TRIAL: search.verdicts.implausible,
        COMPILE_TRIAL: lambda candidate: Rejected(
            Stage.COMPILE,
            Reason.COMPILE_ERROR,
            'attention/wmma.cu.j2:57: identifier "staged" is undefined',
            log=HOSTILE_LOG,
        ),
        FAULTED_TRIAL: lambda candidate: Faulted(
            Stage.COMPILE, "child_lost", "the compiler's child was lost"
        ),
    }
    for number in range(trials):
        begun, candidate = search.begin_next()
        search.record(begun, candidate, special[number](candidate) if number in special else None)
    store.finish(search.claim, Ended.COMPLETED, "the budget is spent")
    return search


def running_search(store: Store, catalogue: Catalogue, name: str = HOSTILE_NAME) -> ExampleSearch:
    """A search in its middle, two trials in flight."""
    search = start(
        store, catalogue, name=name, workloads=("mission_causal",), trials=40, strategy="nsga2"
    )
    for _ in range(12):
        search.record_next()
    return search


def failed_search(store: Store, catalogue: Catalogue) -> ExampleSearch:
    """A search that ended after faults in a row."""
    search = start(store, catalogue, name="a mixed toolchain", workloads=("mission",), trials=40)
    search.record_next()
    for _ in range(5):
        search.record_next(Faulted(Stage.COMPILE, "toolchain_mixed", MIXED_TOOLCHAIN))
    why = f"5 faults in a row. The last one (toolchain_mixed): {MIXED_TOOLCHAIN}"
    store.finish(search.claim, Ended.FAILED, why)
    return search


def queued_search(store: Store, catalogue: Catalogue) -> SearchRow:
    """A search that no worker has taken."""
    request = SearchRequest("attention", name="waits for a worker", workloads=("mission",), seed=1)
    return store.submit(make_plan(request, catalogue))


def accepted_search(store: Store, catalogue: Catalogue, confirmed: bool = True) -> ExampleSearch:
    """A small search whose times were measured: what a GPU would leave behind."""
    search = start(
        store, catalogue, name="measured times", workloads=("small",), trials=3, templates=("wmma",)
    )
    for _ in range(3):
        number, candidate = search.begin_next()
        search.record(number, candidate, search.verdicts.measured(number, candidate))
    if confirmed:
        confirm(search)
    store.finish(search.claim, Ended.COMPLETED, "the budget is spent")
    return search


def confirm(search: ExampleSearch) -> None:
    """Record the confirmation and the peers that a GPU would leave behind."""
    search.store.record_confirmation(
        search.claim,
        Confirmation(
            2,
            True,
            "trial 2 is confirmed in 2 fresh processes <i>of 3</i> on new inputs: 0.6012 of the "
            "baseline's time; it ties with trial 1, the runner-up: 0.9961 of its time",
            (
                again(search, "baseline", 0, "faster", 0.6012),
                again(search, "runner-up", 1, "ambiguous", 0.9961),
            ),
        ),
    )
    search.store.record_peer(
        search.claim,
        Peer(
            "torch-flash",
            "2.11.0",
            "small",
            "timed",
            "timed in turns",
            15.4,
            again(search, "torch-flash", None, "faster", 0.781),
        ),
    )
    search.store.record_peer(
        search.claim,
        Peer(
            "torch-cudnn",
            "2.11.0",
            "small",
            "timed",
            "timed in turns",
            11.6,
            again(search, "torch-cudnn", None, "slower", 1.034),
        ),
    )
    search.store.record_peer(
        search.claim,
        Peer(
            "flash-attention-4",
            "",
            "small",
            "unavailable",
            "flash_attn.cute cannot be imported: No module named 'flash_attn'",
        ),
    )


def again(
    search: ExampleSearch, against: str, number: int | None, decision: str, ratio: float
) -> Comparison:
    """Three processes of 40 blocks around `ratio`."""

    def samples(median: float) -> tuple[float, ...]:
        return tuple(round(median * search.random.gauss(1.0, 0.004), 3) for _ in range(80))

    processes = tuple(
        ProcessTimes(
            seed,
            (
                Timing(
                    "small",
                    12.0,
                    TimeKind.MEASURED,
                    "",
                    samples=samples(12.0 * shift),
                    baseline_samples=samples(12.0 / ratio),
                ),
            ),
        )
        for seed, shift in ((711, 0.997), (712, 1.0), (713, 1.004))
    )
    return Comparison(against, number, decision, ratio, ratio * 0.991, ratio * 1.009, processes)
