"""Template mma: each way to combine split keys is correct, and unused features leave no code."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from slow_cases import quick_first

from greenfast.search.devices.facts import device
from greenfast.search.gates import Conditions, GateLimits, Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.problem import lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import assemble, render
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
    preset_candidate,
)
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Outcome, Reason

CATALOGUE = Catalogue.from_environment()
ATTENTION = CATALOGUE.kernel("attention")
MMA = ATTENTION.template("mma")
COMPILED = (("D", 32), ("dtype", "fp16"), ("mask", "causal_bottom_right"))
SMALL = {"tile_m": 16, "warps_m": 1, "tile_n": 32, "warps_n": 2, "q_in": "direct"}
SPLIT = {**SMALL, "split_kv": 2}
WALK = {**SMALL, "warps_n": 1}

UNOPENED = SimpleNamespace(device=device("h200"))  # a target for sources that are not run


@pytest.fixture(scope="module")
def emulator(artifacts):
    target = open_target("emulator:h200", TargetSettings(artifacts, CATALOGUE.include_dirs, 1))
    target.prepare()
    return target


def subject(target, parameters, change=None, compiled=COMPILED, template=MMA):
    """The candidate, its text changed by `change`; no gate here needs a cubin."""
    candidate = Candidate(
        "attention",
        template.name,
        complete_parameters(template, parameters, compiled),
        Origin(OriginKind.SEEDED),
    )
    point = resolve(template, candidate.parameters, compiled, target.device)
    source = render(ATTENTION, template, point, CATALOGUE.include_dirs)
    if change is not None:
        # A candidate's own line markers are refused; `assemble` adds them again.
        body = [line for line in source.unit.splitlines() if not line.startswith("#line")]
        lines = [(line, source.lines[0]) for line in change("\n".join(body)).splitlines()]
        source = assemble(lines, source.entries, CATALOGUE.include_dirs)
    conditions = Conditions(ATTENTION, compiled, (), target, GateLimits(), 0)
    return Subject(conditions, candidate, source, None)


def rendered(parameters, compiled=COMPILED):
    return subject(UNOPENED, parameters, compiled=compiled).source


@pytest.mark.parametrize(
    "parameters",
    quick_first(
        [
            {**SPLIT, "combine": "cluster"},
            {**SPLIT, "combine": "last_cta"},
            pytest.param({**SPLIT, "combine": "second_kernel"}, marks=pytest.mark.slow),
            {**SPLIT, "combine": "atomic", "split_kv": 8},
            {**WALK, "scheduler": "persistent", "pipeline_depth": 5},
            {
                **SMALL,
                "tile_n": 64,
                "softmax": "single_pass",
                "pipeline_depth": 1,
                "cache_hint": "evict_last",
            },
            pytest.param(
                {**WALK, "unroll": 2, "exp_polynomial": 2, "pipeline_depth": 3},
                marks=pytest.mark.slow,
            ),
            {**WALK, "spread_copies": True, "pipeline_depth": 3},
        ],
        1,
    ),
    ids=str,
)
def test_it_is_right_and_safe(emulator, parameters):
    assert dict(complete_parameters(MMA, parameters, COMPILED)).items() >= parameters.items(), (
        "the point is another"
    )
    prepared = subject(emulator, parameters)
    for gate in (CorrectnessGate(), SafetyGate()):
        result = gate.judge(prepared)
        assert result.outcome is Outcome.PASSED, result.sentence


def without(old, new=""):
    def change(text):
        assert text.count(old) == 1, (text.count(old), old)
        return text.replace(old, new)

    return change


WRITERS = (
    "    __threadfence();                             "
    "// a block that takes a later ticket sees this part\n"
)
READERS = (
    "    __threadfence();                             "
    "// the block with the last ticket sees all parts\n"
)
BEFORE_TICKET = WRITERS + "    __syncthreads();\n"
LAST, ATOMIC = {**SPLIT, "combine": "last_cta"}, {**SPLIT, "combine": "atomic"}
PLANTED = {
    "no writer's fence": (LAST, without(WRITERS), Reason.RACE),
    "no reader's fence": (LAST, without(READERS), Reason.RACE),
    "no barrier before the ticket": (LAST, without(BEFORE_TICKET, WRITERS), Reason.RACE),
    "no barrier behind persistent rows": (
        {**WALK, "q_in": "registers", "scheduler": "persistent"},
        without(
            "    __syncthreads();                             // before the next rows "
            "overwrite these tiles\n"
        ),
        Reason.RACE,
    ),
    "maxima read before all have them": (
        ATOMIC,
        without(
            "    gf::cluster_sync();\n    if (threadIdx.x < owned_rows)",
            "    if (threadIdx.x < owned_rows)",
        ),
        Reason.DEVICE_FAULT,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", quick_first(PLANTED, 1))
def test_a_missing_order_is_found(emulator, name):
    parameters, change, reason = PLANTED[name]
    result = SafetyGate().judge(subject(emulator, parameters, change))
    assert result.outcome is Outcome.FAILED and result.reason is reason, result.sentence


@pytest.mark.slow
def test_sums_that_start_as_an_old_tile_are_wrong(emulator):
    prepared = subject(emulator, ATOMIC, without("        sums.o[i] = 0.0f;", "        continue;"))
    assert CorrectnessGate().judge(prepared).reason in (Reason.WRONG_VALUES, Reason.NOT_FINITE)


def test_what_is_off_leaves_no_trace():
    texts = {
        preset.name: rendered(dict(preset_candidate(MMA, preset.name, COMPILED).parameters)).text
        for preset in MMA.presets
    }
    for word, presets in {
        "workspace": {"last_block", "two_kernels"},
        "tickets": {"last_block"},
        "cluster": {"split"},
        "attention_mma_combine": {"two_kernels"},
        "is_first": {"single_pass"},
        "attend(": {"persistent"},
        "polynomial": set(),
        "keeping": set(),
        "probe": set(),
        "atomicAdd": {"last_block"},
    }.items():
        assert {name for name, text in texts.items() if word in text} == presets, word


@pytest.mark.parametrize(
    ("combine", "launches", "workspaces"),
    [
        ("cluster", 1, []),
        ("atomic", 1, []),
        ("last_cta", 1, ["workspace", "tickets"]),
        ("second_kernel", 2, ["workspace"]),
    ],
)
def test_only_what_a_way_to_combine_needs_is_launched_and_allocated(combine, launches, workspaces):
    prepared = subject(UNOPENED, {**SPLIT, "combine": combine})
    case = derived_cases(ATTENTION, COMPILED, prepared.point.tiles, 0)[0]
    laid_out = lay_out(ATTENTION, MMA, prepared.point, case, case_data(ATTENTION, case))
    assert len(laid_out.launches) == launches == len(prepared.source.entries)
    assert [workspace.name for workspace in laid_out.workspaces] == workspaces
    assert len(laid_out.arguments) == len(ATTENTION.arguments) + len(workspaces)
    assert (laid_out.launches[0].cluster[0] > 1) == (combine in ("cluster", "atomic"))


def test_a_point_that_needs_too_much_shared_memory_is_excluded_with_the_bytes():
    parameters = complete_parameters(
        MMA, {"tile_n": 256, "pipeline_depth": 5, "warps_n": 2}, (("D", 128), *COMPILED[1:])
    )
    reason = Space(MMA, (("D", 128), *COMPILED[1:]), device("h200")).why_not(parameters)
    assert "671744 bytes of shared memory" in reason


def test_split_without_a_cluster_fits_older_gpus():
    for combine, fits in (
        ("cluster", False),
        ("atomic", False),
        ("last_cta", True),
        ("second_kernel", True),
    ):
        parameters = complete_parameters(MMA, {**SPLIT, "combine": combine}, COMPILED)
        assert (Space(MMA, COMPILED, device("l4")).why_not(parameters) is None) == fits, combine
