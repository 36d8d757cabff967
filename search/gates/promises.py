"""Promises of equal results.

A parameter marked `numerics = "same"` must not change any bit of an output. Siblings are candidates
of one template that differ only in such parameters. The first correct sibling of a search sets the
expected output, and the others must match it wherever they run on the same dims and inputs. A
resumed search takes the expected output from its stored checks, which hold digests of their inputs
and outputs.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace

from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.oracle.problem import Problem
from greenfast.search.space.candidate import Candidate
from greenfast.search.text import written
from greenfast.search.verdict import (
    Accepted,
    CheckEvidence,
    CorrectnessEvidence,
    Failed,
    Green,
    Passed,
    Reason,
    Rejected,
    Stage,
    Trial,
    gate_result,
    rejection,
)

INPUT_DIGITS = 16


@dataclass(frozen=True)
class _Family:
    """Outputs of correct siblings.

    `left` maps (output, dims, digest of the inputs) to (digest of the output, its trial).
    """

    first: Candidate
    left: dict[Hashable, tuple[str, int, Candidate]] = field(default_factory=dict)
    # From before the search was resumed, without their checks.
    unread: list[Trial] = field(default_factory=list)


class Siblings:
    """One search's correct candidates, where their templates promise equal results.

    Trials must be learned in their order.
    """

    def __init__(
        self,
        kernel: KernelSpec,
        checks_of: Callable[[int], Iterable[CheckEvidence]] = lambda number: (),
    ) -> None:
        self._kernel, self._checks_of = kernel, checks_of
        self._families: dict[Hashable, _Family] = {}
        self._lock = threading.Lock()  # gates read while the search learns

    def first(self, candidate: Candidate) -> Candidate | None:
        """The first correct sibling."""
        with self._lock:
            family = self._families.get(self._key(candidate))
        return family.first if family is not None else None

    def broken_promise(
        self, candidate: Candidate, checks: Iterable[CheckEvidence]
    ) -> CheckEvidence | None:
        """The first of `checks` whose output differs from a sibling's, as a failed check.

        None if all agree.
        """
        with self._lock:
            family = self._families.get(self._key(candidate))
            if family is None:
                return None
            while family.unread:
                _remember(family, family.unread[0], self._checks_of(family.unread[0].number))
                del family.unread[0]
            for check in checks:
                digest, number, other = family.left.get(
                    _place(check), (check.output_digest, 0, candidate)
                )
                if digest != check.output_digest and other.parameters != candidate.parameters:
                    return replace(
                        check,
                        passed=False,
                        sentence=self._sentence(check, candidate, number, other),
                    )
        return None

    def held(self, trial: Trial) -> Trial:
        """The trial, rejected where it breaks a promise to a sibling with a lower number.

        Both were in flight at once, so the gate could not compare them.
        """
        result = gate_result(trial.verdict, Stage.CORRECTNESS)
        if not isinstance(result, Passed) or not isinstance(result.evidence, CorrectnessEvidence):
            return trial
        broken = self.broken_promise(trial.candidate, result.evidence.checks)
        if broken is None:
            return trial
        before = trial.verdict.gates[: trial.verdict.gates.index(result)]
        failed = with_broken_promise(result.evidence, broken)
        return replace(trial, verdict=rejection(before, failed))

    def learn(self, trial: Trial) -> None:
        """Remember the outputs of a correct candidate, however fast it is."""
        key, result = self._key(trial.candidate), gate_result(trial.verdict, Stage.CORRECTNESS)
        slower = isinstance(trial.verdict, Rejected) and trial.verdict.stage is Stage.PERFORMANCE
        if key is None or not (slower or isinstance(trial.verdict, (Accepted, Green))):
            return
        if result is None or not isinstance(result.evidence, CorrectnessEvidence):
            return
        with self._lock:
            family = self._families.setdefault(key, _Family(trial.candidate))
            if result.evidence.checks:
                _remember(family, trial, result.evidence.checks)
            else:
                family.unread.append(trial)

    def _key(self, candidate: Candidate) -> Hashable | None:
        """The values that siblings share; None if the template promises nothing."""
        template = self._kernel.template(candidate.template)
        same = promised(template)
        if not same or (
            template.deterministic_when and not template.deterministic_when(candidate.values())
        ):
            return None
        return candidate.template, tuple(
            parameter for parameter in candidate.parameters if parameter[0] not in same
        )

    def _sentence(
        self, check: CheckEvidence, candidate: Candidate, number: int, other: Candidate
    ) -> str:
        sibling_values = other.values()
        changed = [
            (name, value, sibling_values[name])
            for name, value in candidate.parameters
            if value != sibling_values[name]
        ]
        own = " and ".join(f"{name}={written(value)}" for name, value, _ in changed)
        before = " and ".join(written(value) for _, _, value in changed)
        names = " and ".join(name for name, _, _ in changed)
        return (
            f"{check.workload} ({check.shape}, {check.inputs} inputs, seed {check.seed}): "
            f"{check.output} is not bit for bit what trial {number} left, though {own} in place "
            f"of {before} is all that differs, and template {candidate.template} states that "
            f"{names} {'leaves' if len(changed) == 1 else 'leave'} results the same"
        )


def with_broken_promise(
    evidence: CorrectnessEvidence, broken: CheckEvidence
) -> Failed[CorrectnessEvidence]:
    """The correctness gate's result when outputs are within bounds but one breaks a promise."""
    whole = replace(broken, passed=True, sentence="")
    checks = tuple(broken if check == whole else check for check in evidence.checks)
    return Failed(
        Stage.CORRECTNESS.value,
        broken.sentence,
        Reason.WRONG_VALUES,
        replace(evidence, checks=checks),
    )


def is_broken_promise(rejected: Rejected) -> bool:
    """Whether outputs may only differ from a sibling's, which says nothing about other candidates.

    True also where the single checks are not known.
    """
    result = gate_result(rejected, Stage.CORRECTNESS)
    if rejected.reason is not Reason.WRONG_VALUES or result is None:
        return False
    checks = result.evidence.checks if isinstance(result.evidence, CorrectnessEvidence) else ()
    return all(check.passed or _is_within_bounds(check) for check in checks)


def _is_within_bounds(check: CheckEvidence) -> bool:
    error, allowed = check.frobenius_error, check.frobenius_allowed
    return check.share_out_of_bound == 0 and (error is None or allowed is None or error <= allowed)


def _remember(family: _Family, trial: Trial, checks: Iterable[CheckEvidence]) -> None:
    for check in checks:
        if check.input_digest:
            family.left.setdefault(
                _place(check), (check.output_digest, trial.number, trial.candidate)
            )


def promised(template: TemplateSpec) -> frozenset[str]:
    """The parameters that must not change results; empty if two runs may differ anyway."""
    return frozenset(
        parameter.name
        for parameter in template.parameters
        if parameter.numerics_same and template.deterministic
    )


def input_digest(laid_out: Problem) -> str:
    """A digest of the inputs of a run, including their layout."""
    digests = "".join(tensor.digest for tensor in laid_out.tensors if tensor.role == "input")
    return hashlib.sha256(digests.encode()).hexdigest()[:INPUT_DIGITS]


def _place(check: CheckEvidence) -> Hashable:
    return check.output, check.shape, check.input_digest
