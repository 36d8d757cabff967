"""Searches to look at: real candidates and sources of the attention kernel, with made-up figures of every kind."""

from __future__ import annotations

import random
from dataclasses import dataclass

from greenfast.db.rows import SearchRow
from greenfast.db.store import Store
from greenfast.search.devices.facts import device
from greenfast.search.devices.occupancy import occupancy
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.comparison import Comparison, Confirmation, Peer, ProcessTimes
from greenfast.search.loop.plan import SearchPlan, SearchRequest, make_plan
from greenfast.search.loop.run import Ended
from greenfast.search.oracle.cases import derived_cases, workload_case
from greenfast.search.render import render
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
    preset_candidate,
)
from greenfast.search.space.space import Space, resolve
from greenfast.search.strategies import Proposal
from greenfast.search.verdict import (
    Accepted,
    CheckEvidence,
    CorrectnessEvidence,
    Failed,
    Faulted,
    GateResult,
    Green,
    LineCost,
    Passed,
    PerformanceEvidence,
    PtxasEvidence,
    Reason,
    Rejected,
    SafetyEvidence,
    SafetyFinding,
    SafetyRun,
    Skipped,
    Stage,
    TimeKind,
    Timing,
    Trial,
    Unavailable,
    Verdict,
)

BAND = 2.0
HOSTILE_NAME = '<script>document.title="owned"</script> & "quoted" <b>bold</b>'
HOSTILE_LOG = (
    "attention/wmma.cu.j2(57): error: identifier \"<img src=x onerror=document.title='owned'>\" is undefined\n"
    "  \x1b[31mstaged\x1b[0m[stage] = \u202edesrever\u202c;\n      ^\n\n1 error detected in the compilation.\n"
)
WRONG_SENTENCE = (
    "check tile_plus_one, seed 20251, order reverse: o is wrong; o[1, 0, 32, 17] is 0.0302, "
    "expected -0.114 within 0.0011; 3.1% of the elements are out of bound"
)
WRONG_TRIAL, COMPILE_TRIAL, FAULTED_TRIAL, RACE_TRIAL = 7, 11, 17, 23


@dataclass
class ExampleSearch:
    """A search that this process works on, as a worker would."""

    store: Store
    plan: SearchPlan
    row: SearchRow
    catalogue: Catalogue
    next_number: int = 0

    def __post_init__(self) -> None:
        self.kernel = self.catalogue.kernel("attention")
        self.compiled = self.kernel.workload(self.plan.workloads[0]).compile_time(self.kernel)
        self.device = device("h200")
        self.random = random.Random(self.plan.seed)
        self.claim = self.store.claim("example", 3600.0, self.row.id)
        self.store.describe(
            self.claim, {"device": "h200", "toolchain": "NVRTC 13.5", "host_compiler": "g++ 12.2"}
        )
        self.candidates = self._candidates()
        self.baseline_us: float | None = None

    def _candidates(self) -> list[Candidate]:
        """The baseline, the other presets, then points of both spaces, some with parents."""
        presets = [
            preset_candidate(template, preset.name, self.compiled)
            for template in self.kernel.templates
            for preset in template.presets
            if template.name in self.plan.templates
        ]
        presets.sort(key=lambda one: f"{one.template}:{one.origin.preset}" != self.plan.baseline)
        spaces = {
            name: Space(self.kernel.template(name), self.compiled, self.device)
            for name in self.plan.templates
        }
        found, seen = list(presets), {(one.template, one.parameters) for one in presets}
        while len(found) < 2 * self.plan.trials:
            template = self.random.choice(
                [name for name in spaces for _ in range(3 if name == "wmma" else 1)]
            )
            values = {
                parameter.name: self.random.choice(parameter.values)
                for parameter in self.kernel.template(template).parameters
            }
            parameters = complete_parameters(self.kernel.template(template), values, self.compiled)
            if (template, parameters) not in seen and spaces[template].why_not(parameters) is None:
                seen.add((template, parameters))
                kind = self.random.choice((OriginKind.SAMPLED, OriginKind.MUTATED))
                parents = (found[-1].digest,) if kind is OriginKind.MUTATED else ()
                found.append(
                    Candidate(self.kernel.name, template, parameters, Origin(kind, parents))
                )
        return found

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
        template = self.kernel.template(candidate.template)
        source = render(
            self.kernel,
            template,
            candidate,
            resolve(template, candidate.parameters, self.compiled),
            self.catalogue.include_dirs,
        )
        made = verdict or self.verdict(candidate)
        if number == 0:
            self.baseline_us = made.gates[2].evidence.timings[0].time_median_us
        trial = Trial(number, candidate, made, source.digest, self.random.uniform(1.2, 4.8))
        self.store.record(self.claim, trial, source)
        self.store.renew(self.claim, 3600.0, 2.1 * (number + 1))

    def verdict(self, candidate: Candidate) -> Verdict:
        ptxas = self.ptxas(candidate)
        if isinstance(ptxas, Failed):
            return Rejected(Stage.PTXAS, ptxas.reason, ptxas.sentence, (ptxas, *skipped("ptxas")))
        if self.next_number > 6 and self.random.random() < 0.1:
            return self.wrong(candidate)
        return Green(
            (
                ptxas,
                self.right(candidate),
                self.modelled(candidate),
                Passed("safety", "nothing found in 16 checked runs", SafetyEvidence()),
            )
        )

    def racy(self, candidate: Candidate) -> Verdict:
        """Right by luck: two threads meet in the source's first two lines with an access."""
        first, second = self.line_costs(candidate)[:2]
        finding = SafetyFinding(
            "race",
            f"thread 37 reads 2 bytes of shared memory at +4096 ({first.file}:{first.line}) while thread 5's "
            f"write ({second.file}:{second.line}) is not ordered before it: no barrier <b>between</b> them",
            (first.file, first.line),
            (second.file, second.line),
            first.source_line,
            second.source_line,
            (0, 0, 0),
            (37, 0, 0),
            (5, 0, 0),
            "shared",
            4096,
            12,
        )
        failed = Failed(
            "safety",
            finding.sentence,
            Reason.RACE,
            SafetyEvidence(
                (), (finding,), (SafetyRun("tile_exact", "B=1", "forward", 1),), ("races",)
            ),
        )
        return Rejected(
            Stage.SAFETY,
            Reason.RACE,
            finding.sentence,
            (self.ptxas(candidate), self.right(candidate), self.modelled(candidate), failed),
        )

    def line_costs(self, candidate: Candidate) -> tuple[LineCost, ...]:
        """Made-up counters at lines of the source that look like accesses."""
        template = self.kernel.template(candidate.template)
        source = render(
            self.kernel,
            template,
            candidate,
            resolve(template, candidate.parameters, self.compiled),
            self.catalogue.include_dirs,
        )
        found = []
        for number, (text, line) in enumerate(
            zip(source.text.splitlines(), source.lines, strict=True), 1
        ):
            if "] = " in text and not line.file.startswith("gf/"):
                kind = ("shared_write", "global_write")[len(found) % 2]
                found.append(
                    LineCost(line.file, line.number, number, kind, 64, 4096, 96, 64, 160, 128)
                )
        return tuple(found)

    def ptxas(self, candidate: Candidate) -> GateResult:
        point = resolve(
            self.kernel.template(candidate.template), candidate.parameters, self.compiled
        )
        registers = min(
            255, 24 + int(32 * self.random.random()) + 4096 * 2 // max(32, point.threads_per_block)
        )
        spills = 384 if registers > 230 else 0
        fit = occupancy(self.device, registers, point.threads_per_block, point.smem_dynamic_bytes)
        evidence = PtxasEvidence(
            registers,
            spills,
            0,
            0,
            point.smem_dynamic_bytes,
            point.threads_per_block,
            fit.blocks_per_sm,
            fit.share,
            fit.limited_by,
        )
        if spills:
            sentence = f"{spills} bytes of registers spill to local memory; 0 are allowed"
            return Failed("ptxas", sentence, Reason.SPILLS, evidence)
        sentence = (
            f"{registers} registers, {point.smem_dynamic_bytes} bytes of shared memory, no rule broken; "
            f"{fit.blocks_per_sm} blocks an SM (limited by {fit.limited_by})"
        )
        return Passed("ptxas", sentence, evidence)

    def cases(self, candidate: Candidate):
        point = resolve(
            self.kernel.template(candidate.template), candidate.parameters, self.compiled
        )
        return [
            *derived_cases(self.kernel, self.compiled, point.tiles, self.plan.seed),
            workload_case(self.kernel.workload(self.plan.workloads[0]), self.plan.seed),
        ]

    def right(self, candidate: Candidate) -> GateResult:
        checks = tuple(
            self.check(case, number) for number, case in enumerate(self.cases(candidate))
        )
        worst = max(one.max_abs_error for one in checks)
        return Passed(
            "correctness",
            f"{len(checks)} outputs within both bounds; largest absolute error {worst:.3g}",
            CorrectnessEvidence(checks),
        )

    def check(self, case, number: int, sentence: str = "") -> CheckEvidence:
        size = self.random.uniform(2e-4, 9e-4) if not sentence else self.random.uniform(0.05, 0.4)
        sizes = dict(case.dims)
        return CheckEvidence(
            case.name,
            " ".join(f"{name}={value}" for name, value in case.dims),
            case.inputs,
            case.layout,
            case.seed,
            ("forward", "reverse", "seeded:1")[number % 3],
            "o",
            not sentence,
            size,
            size / 7,
            0.031 if sentence else 0.0,
            0.71 if sentence else self.random.uniform(-0.1, 0.1),
            size / 2,
            7.4e-4,
            (0, 0, min(int(sizes["S_q"]) - 1, 32), 17),
            "0.0302",
            "-0.114" if sentence else "0.0301",
            f"{number:064x}",
            sentence,
        )

    def wrong(self, candidate: Candidate) -> Rejected:
        """A kernel without the barrier after P: right on one tile, wrong on the next."""
        cases = self.cases(candidate)[:14]
        checks = tuple(
            self.check(case, number, WRONG_SENTENCE if number in (9, 10, 12) else "")
            for number, case in enumerate(cases)
        )
        sentence = f"{WRONG_SENTENCE} (3 of 14 runs failed)"
        failed = Failed("correctness", sentence, Reason.WRONG_VALUES, CorrectnessEvidence(checks))
        return Rejected(
            Stage.CORRECTNESS,
            Reason.WRONG_VALUES,
            sentence,
            (self.ptxas(candidate), failed, *skipped("correctness")),
        )

    def modelled(self, candidate: Candidate) -> GateResult:
        values = candidate.values()
        time_us = 9.5 * self.random.uniform(0.7, 1.5) * (24 / values["tile_m"] + 0.6)
        time_us *= (
            2.6
            if candidate.template == "scalar"
            else 0.45
            if values["o_in"] == "fragments"
            else 1.0
        )
        shares = {
            "shared memory": 0.62,
            "latency": 0.61,
            "tensor cores": 0.24,
            "instruction issue": 0.22,
            "DRAM": 0.05,
        }
        busy = self.random.choice(("shared memory", "latency"))
        shares[busy] = 0.8
        limits = tuple(
            sorted(
                ((name, time_us * share) for name, share in shares.items()), key=lambda one: -one[1]
            )
        )
        detail = (("bank_conflict_factor", round(self.random.uniform(1, 4), 2)),)
        workload = self.plan.workloads[0]
        timing = Timing(
            workload,
            time_us,
            TimeKind.MODELLED,
            busy,
            detail,
            "from 8 of 128 blocks",
            self.line_costs(candidate),
            limits=limits,
            mix=(("int", 55008.0), ("fp32", 21696.0), ("shared", 11008.0), ("mma", 4096.0)),
        )
        evidence = PerformanceEvidence(
            (timing,), time_us / self.baseline_us if self.baseline_us else None, BAND
        )
        sentence = (
            f"modelled, not measured: {workload} {time_us:.2f} us (limited by {busy}); times within a "
            f"factor of {BAND:g} are not told apart"
        )
        return Unavailable("performance", sentence, evidence)


def skipped(after: str) -> tuple[GateResult, ...]:
    names = ("ptxas", "correctness", "performance", "safety")
    return tuple(
        Skipped(name, f"not reached: {after} failed") for name in names[names.index(after) + 1 :]
    )


def start(store: Store, catalogue: Catalogue, **request) -> ExampleSearch:
    plan = make_plan(
        SearchRequest("attention", seed=20250, **{"templates": ("scalar", "wmma"), **request}),
        catalogue,
    )
    return ExampleSearch(store, plan, store.submit(plan), catalogue)


def finished_search(store: Store, catalogue: Catalogue, trials: int = 64) -> ExampleSearch:
    """A completed search with every verdict in it."""
    made = start(
        store,
        catalogue,
        name="attention mission, first sweep",
        workloads=("mission",),
        trials=trials,
    )
    special = {
        WRONG_TRIAL: lambda candidate: made.wrong(candidate),
        RACE_TRIAL: lambda candidate: made.racy(candidate),
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
        begun, candidate = made.begin_next()
        made.record(begun, candidate, special[number](candidate) if number in special else None)
    store.finish(made.claim, Ended.COMPLETED, "the budget is spent")
    return made


def running_search(store: Store, catalogue: Catalogue, name: str = HOSTILE_NAME) -> ExampleSearch:
    """A search in its middle, two trials in flight."""
    made = start(
        store, catalogue, name=name, workloads=("mission_causal",), trials=40, strategy="nsga2"
    )
    for _ in range(12):
        made.record_next()
    return made


def accepted_search(store: Store, catalogue: Catalogue, confirmed: bool = True) -> ExampleSearch:
    """A small search whose times were measured: what a GPU would leave behind."""
    made = start(
        store, catalogue, name="measured times", workloads=("small",), trials=3, templates=("wmma",)
    )
    for number in range(3):
        gates = (
            made.ptxas(made.candidates[number]),
            made.right(made.candidates[number]),
            Passed(
                "performance",
                "measured",
                PerformanceEvidence(
                    (
                        Timing(
                            "small",
                            20.0 - 4 * number,
                            TimeKind.MEASURED,
                            "",
                            (),
                            "40 blocks",
                            mode="hot",
                        ),
                    ),
                    (20.0 - 4 * number) / 20.0 if number else None,
                    1.01,
                ),
            ),
            Passed("safety", "no report"),
        )
        begun, candidate = made.begin_next()
        made.record(begun, candidate, Accepted(gates) if number else Green(gates))
    if confirmed:
        confirm(made)
    store.finish(made.claim, Ended.COMPLETED, "the budget is spent")
    return made


def confirm(made: ExampleSearch) -> None:
    """What fresh processes and peers would leave behind."""
    winner, runner_up = (
        "2 fresh processes <i>of 3</i>",
        "it ties with trial 1, the runner-up: 0.9961 of its time",
    )
    made.store.record_confirmation(
        made.claim,
        Confirmation(
            2,
            True,
            f"trial 2 is confirmed in {winner} on new inputs: 0.6012 of the baseline's time; {runner_up}",
            (
                again(made, "baseline", 0, "faster", 0.6012),
                again(made, "runner-up", 1, "ambiguous", 0.9961),
            ),
        ),
    )
    made.store.record_peer(
        made.claim,
        Peer(
            "torch-flash",
            "2.11.0",
            "small",
            "timed",
            "timed in turns",
            15.4,
            again(made, "torch-flash", None, "faster", 0.781),
        ),
    )
    made.store.record_peer(
        made.claim,
        Peer(
            "torch-cudnn",
            "2.11.0",
            "small",
            "timed",
            "timed in turns",
            11.6,
            again(made, "torch-cudnn", None, "slower", 1.034),
        ),
    )
    made.store.record_peer(
        made.claim,
        Peer(
            "flash-attention-4",
            "",
            "small",
            "unavailable",
            "flash_attn.cute cannot be imported: No module named 'flash_attn'",
        ),
    )


def again(
    made: ExampleSearch, against: str, number: int | None, decision: str, ratio: float
) -> Comparison:
    """Three processes of 40 blocks around `ratio`."""

    def samples(median: float) -> tuple[float, ...]:
        return tuple(round(median * made.random.gauss(1.0, 0.004), 3) for _ in range(80))

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
