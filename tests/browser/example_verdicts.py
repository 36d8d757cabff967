"""Made-up verdicts of every kind about real candidates and sources of the attention kernel."""

from __future__ import annotations

import random
from dataclasses import dataclass

from greenfast.search.devices.facts import device
from greenfast.search.devices.occupancy import occupancy
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.oracle.cases import Case, derived_cases, workload_case
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.space import resolve
from greenfast.search.verdict import (
    Accepted,
    CheckEvidence,
    CorrectnessEvidence,
    Failed,
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
    Unavailable,
    Verdict,
)

BAND = 2.0
WRONG_SENTENCE = (
    "check tile_plus_one, seed 20251, order reverse: o is wrong; o[1, 0, 32, 17] is 0.0302, "
    "expected -0.114 within 0.0011; 3.1% of the elements are out of bound"
)


@dataclass
class ExampleVerdicts:
    """Verdicts for one search; `random` makes its figures."""

    plan: SearchPlan
    catalogue: Catalogue
    random: random.Random

    def __post_init__(self) -> None:
        self.kernel = self.catalogue.kernel("attention")
        self.compiled = self.kernel.workload(self.plan.workloads[0]).compile_time(self.kernel)
        self.device = device("h200")
        self.baseline_us: float | None = None

    def source(self, candidate: Candidate) -> RenderedSource:
        template = self.kernel.template(candidate.template)
        point = resolve(template, candidate.parameters, self.compiled, self.device)
        source = render(self.kernel, template, point, self.catalogue.include_dirs)
        assert isinstance(source, RenderedSource)
        return source

    def safe(self) -> GateResult:
        return Passed("safety", "no findings in 16 checked runs", SafetyEvidence())

    def implausible(self, candidate: Candidate) -> Verdict:
        """Correct, with a modelled time that no H200 can reach."""
        return Green(
            (
                self.ptxas(candidate),
                self.correct(candidate),
                Unavailable(
                    "performance",
                    f"implausible, so not ranked: the modelled time of {self.plan.workloads[0]}, "
                    "0.41 us, is below the 1.75 us that its compulsory work takes at the peaks of "
                    "NVIDIA H200; this is a fault of the model, not of the candidate",
                    PerformanceEvidence(
                        (self.timing(candidate, 0.41, (("floor_us", 1.75),)),), None, BAND
                    ),
                ),
                self.safe(),
            )
        )

    def measured(self, number: int, candidate: Candidate) -> Verdict:
        """The baseline for number 0, else a candidate that was measured faster."""
        time_us = 20.0 - 4 * number
        timing = Timing("small", time_us, TimeKind.MEASURED, "", (), "40 blocks", mode="hot")
        evidence = PerformanceEvidence((timing,), time_us / 20.0 if number else None, 1.01)
        gates = (
            self.ptxas(candidate),
            self.correct(candidate),
            Passed("performance", "measured", evidence),
            Passed("safety", "no report"),
        )
        return Accepted(gates) if number else Green(gates)

    def suggested(self, number: int, candidate: Candidate) -> Verdict:
        """The verdict that the made-up figures of trial `number` suggest."""
        ptxas = self.ptxas(candidate)
        if isinstance(ptxas, Failed):
            return Rejected(Stage.PTXAS, ptxas.reason, ptxas.sentence, (ptxas, *skipped("ptxas")))
        if number > 6 and self.random.random() < 0.1:
            return self.wrong(candidate)
        return Green(
            (
                ptxas,
                self.correct(candidate),
                self.modelled(candidate),
                self.safe(),
            )
        )

    def racy(self, candidate: Candidate) -> Verdict:
        """Correct by chance: two threads meet at the source's first two lines with an access."""
        first, second = self.line_costs(candidate)[:2]
        finding = SafetyFinding(
            "race",
            f"thread 37 reads 2 bytes of shared memory at +4096 ({first.file}:{first.line}) while "
            f"thread 5's write ({second.file}:{second.line}) is not ordered before it: no barrier "
            "<b>between</b> them",
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
            (self.ptxas(candidate), self.correct(candidate), self.modelled(candidate), failed),
        )

    def line_costs(self, candidate: Candidate) -> tuple[LineCost, ...]:
        """Made-up counters at lines of the source that look like accesses."""
        source = self.source(candidate)
        costs: list[LineCost] = []
        for number, (text, line) in enumerate(
            zip(source.text.splitlines(), source.lines, strict=True), 1
        ):
            if "] = " in text and not line.file.startswith("gf/"):
                kind = ("shared_write", "global_write")[len(costs) % 2]
                counters = (64, 4096, 96, 64, 160, 128)
                costs.append(LineCost(line.file, line.number, number, kind, *counters))
        return tuple(costs)

    def ptxas(self, candidate: Candidate) -> GateResult:
        point = resolve(
            self.kernel.template(candidate.template),
            candidate.parameters,
            self.compiled,
            self.device,
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
            f"{registers} registers, {point.smem_dynamic_bytes} bytes of shared memory, no rule "
            f"broken; {fit.blocks_per_sm} blocks an SM (limited by {fit.limited_by})"
        )
        return Passed("ptxas", sentence, evidence)

    def cases(self, candidate: Candidate) -> list[Case]:
        point = resolve(
            self.kernel.template(candidate.template),
            candidate.parameters,
            self.compiled,
            self.device,
        )
        return [
            *derived_cases(self.kernel, self.compiled, point.tiles, self.plan.seed),
            workload_case(self.kernel.workload(self.plan.workloads[0]), self.plan.seed),
        ]

    def correct(self, candidate: Candidate) -> GateResult:
        checks = tuple(
            self.check(case, number) for number, case in enumerate(self.cases(candidate))
        )
        worst = max(check.max_abs_error or 0.0 for check in checks)
        return Passed(
            "correctness",
            f"{len(checks)} outputs within both bounds; largest absolute error {worst:.3g}",
            CorrectnessEvidence(checks),
        )

    def check(self, case: Case, number: int, sentence: str = "") -> CheckEvidence:
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
        """A kernel without the barrier after P: correct on one tile, wrong on the next."""
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
        detail = (("bank_conflict_factor", round(self.random.uniform(1, 4), 2)),)
        timing = self.timing(candidate, time_us, detail)
        evidence = PerformanceEvidence(
            (timing,), time_us / self.baseline_us if self.baseline_us else None, BAND
        )
        sentence = (
            f"modelled, not measured: {timing.workload} {time_us:.2f} us (limited by "
            f"{timing.limited_by}); times within a factor of {BAND:g} cannot be distinguished"
        )
        return Unavailable("performance", sentence, evidence)

    def timing(
        self, candidate: Candidate, time_us: float, detail: tuple[tuple[str, float], ...]
    ) -> Timing:
        """A modelled time with its limits, instruction mix and line costs."""
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
                ((name, time_us * share) for name, share in shares.items()),
                key=lambda limit: -limit[1],
            )
        )
        return Timing(
            self.plan.workloads[0],
            time_us,
            TimeKind.MODELLED,
            busy,
            detail,
            "from 8 of 128 blocks",
            self.line_costs(candidate),
            limits=limits,
            mix=(("int", 55008.0), ("fp32", 21696.0), ("shared", 11008.0), ("mma", 4096.0)),
        )


def skipped(after: str) -> tuple[GateResult, ...]:
    names = ("ptxas", "correctness", "performance", "safety")
    return tuple(
        Skipped(name, f"not reached: {after} failed") for name in names[names.index(after) + 1 :]
    )
