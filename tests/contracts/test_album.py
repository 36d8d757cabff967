"""The album: the named gate rejects each broken kernel for the named reason; correct ones pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import store_values as values
from contexts import workload_context
from slow_cases import quick_first

from greenfast.app.cli.trial_run import evaluated_report
from greenfast.app.views.schemas import TrialDetailOut
from greenfast.db.store import Store
from greenfast.search.diagnose.album import Entry, Judged, catalogue_of, entries, judge
from greenfast.search.json_values import json_text
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.evaluate import evaluate
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Green, Rejected, Verdict

ENTRIES = entries()
ALBUM = Path(__file__).parents[1] / "kernels"
IMPATIENCE_S = 1.0
LONG_LEASE_S = 1e6
AHEAD = 2  # entries worked on while one is looked at
FEWEST_BROKEN, FEWEST_RIGHT = 40, 25


@pytest.fixture(scope="module")
def emulator(artifacts, catalogue):
    target = open_target("emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2))
    target.prepare()
    yield target
    target.close()


@pytest.fixture(scope="module")
def judged(request, artifacts, catalogue, emulator, toolchain, tmp_path_factory):
    """Entry -> its judgement; two threads judge the next entries meanwhile.

    Only the next ones: with several test processes, each entry belongs to one of them.
    """
    impatient = open_target(
        "emulator:h200",
        TargetSettings(artifacts, catalogue.include_dirs, 2, run_deadline_s=IMPATIENCE_S),
    )

    def work(entry: Entry):
        catalogue = catalogue_of(entry, tmp_path_factory.mktemp("album"))
        return judge(entry, catalogue, impatient if entry.impatient else emulator, toolchain)

    entries = [
        item.callspec.params["entry"]
        for item in request.session.items
        if item.module is request.module
        and "entry" in getattr(getattr(item, "callspec", None), "params", ())
    ]
    pool = ThreadPoolExecutor(2)
    futures: dict[str, Future[Judged]] = {}

    def result(entry: Entry) -> Judged:
        place = entries.index(entry)
        for following in entries[place : place + 1 + AHEAD]:
            if following.id not in futures:
                futures[following.id] = pool.submit(work, following)
        return futures[entry.id].result()

    yield result
    pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Iterator[Callable[[int, Verdict], str]]:
    """Number and verdict -> the trial as the REST API answers, after it went through a database."""
    store = Store.open(f"sqlite:///{tmp_path_factory.mktemp('album') / 'store.sqlite'}")
    store.submit(values.plan())
    claim = store.claim("worker", LONG_LEASE_S)

    def answer(number: int, verdict: Verdict) -> str:
        values.run_trial(store, claim, number, verdict)
        detail = store.trial(claim.search_id, number)
        return TrialDetailOut.model_validate(detail).model_dump_json()

    yield answer
    store.close()


def strictly_read(text: str) -> Any:
    """RFC 8259: no NaN, no infinities."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_album_covers_every_defect_of_its_kernels(album):
    listed = {(entry.kernel, entry.name) for entry in ENTRIES if entry.kind == "defect"}
    kernels = [album.kernel(name) for name in album.names()]
    defects = {
        (kernel.name, value)
        for kernel in kernels
        for template in kernel.templates
        if template.name == "broken"
        for value in template.parameter("defect").values
    }
    assert listed == defects


def test_the_album_is_large_enough_and_names_each_kernel_once():
    assert len({entry.id for entry in ENTRIES}) == len(ENTRIES)
    assert sum(bool(entry.stage) for entry in ENTRIES) >= FEWEST_BROKEN
    assert sum(not entry.stage for entry in ENTRIES) >= FEWEST_RIGHT


# Quick as well: a sentence of a gate that no other entry brings about.
SENTENCES_OF_THEIR_OWN = {
    "reduce-no_barrier_between_rows",
    "stencil-halo_read_past_the_array",
    "cluster-remote_write_before_the_start",
}


# Templates that greenfast ships do the same: tests/unit judges them correct and safe.
LIKE_SHIPPED = {"cluster", "lastblock", "product", "quantise", "relay", "tile"}
# Kinds that tests of the emulator find in kernels of a few lines.
FOUND_ELSEWHERE = {"divergence"}


def facts_of(entry: Entry) -> set[tuple[str, str]]:
    names = {
        # Twins of a kernel that greenfast ships have tests of their own.
        "kernel": (entry.kernel,)
        if (ALBUM / entry.kernel).is_dir() and entry.kernel not in LIKE_SHIPPED
        else (),
        "stage": (entry.stage,),
        "reason": entry.reasons,
        "finds": tuple(kind for kind in entry.finds if kind not in FOUND_ELSEWHERE),
    }
    return {(kind, name) for kind, values in names.items() for name in values}


def marked_entries() -> Iterator[Any]:
    """All entries; those that add nothing to others are slow.

    An entry adds its kernel, its gate, a reason or a kind of finding. Of those that add as many,
    the album's own kernels, which are small, come before those that greenfast ships.
    """
    quick = set(SENTENCES_OF_THEIR_OWN)
    missing = set().union(*map(facts_of, ENTRIES))
    missing -= set().union(*(facts_of(entry) for entry in ENTRIES if entry.id in quick))
    own_first = sorted(ENTRIES, key=lambda entry: not (ALBUM / entry.kernel).is_dir())
    while missing:
        most = max(own_first, key=lambda entry: len(facts_of(entry) & missing))
        quick.add(most.id)
        missing -= facts_of(most)
    for entry in ENTRIES:
        marks = () if entry.id in quick else (pytest.mark.slow,)
        yield pytest.param(entry, marks=marks, id=entry.id)


def test_the_short_suite_has_every_kernel_gate_and_reason():
    short = [param.values[0] for param in marked_entries() if not param.marks]
    assert set().union(*map(facts_of, short)) == set().union(*map(facts_of, ENTRIES))


@pytest.mark.parametrize("entry", list(marked_entries()))
def test_the_album_says_what_becomes_of_a_kernel(entry, judged, recorded):
    judgement = judged(entry)
    assert not judgement.sentence, judgement.sentence
    verdict = judgement.evaluated.verdict
    if isinstance(verdict, Rejected) and verdict.stage == "correctness":
        failed = [check for check in verdict.gates[1].evidence.checks if not check.passed]
        assert failed and all(judgement.sentence for judgement in failed)
    report = strictly_read(json_text(evaluated_report(judgement.evaluated)))
    answer = strictly_read(recorded(ENTRIES.index(entry), verdict))
    assert report["verdict"] == answer["verdict"]
    for gate, data in answer[
        "gates"
    ].items():  # the same words for the same numbers, also where they are not finite
        assert data.items() <= report["gates"][gate].items()


# A preset of each template, each on another workload; the other pairs run with the slow ones.
QUICK = [("wmma:stage2", "mission_causal"), ("scalar:vec", "mission_gqa"), ("mma:fa2", "mission")]
PRESETS = (
    "wmma:stage2",
    "wmma:flashcore_a64",
    "scalar:minimal",
    "scalar:vec",
    "mma:fa2",
    "mma:tiny",
    "mma:short",
    "mma:resident",
    "mma:split",
)
PAIRS = [(preset, "mission") for preset in PRESETS] + [
    (preset, workload)
    for preset in ("wmma:stage2", "scalar:vec", "mma:split")
    for workload in ("mission_bf16", "mission_causal", "mission_gqa")
]
SHIPPED = quick_first([*QUICK, *(pair for pair in PAIRS if pair not in QUICK)], 1)


@pytest.mark.parametrize(("preset", "workload"), SHIPPED)
def test_shipped_presets_are_green(preset, workload, catalogue: Catalogue, emulator, toolchain):
    context = workload_context(catalogue, "attention", workload, emulator, toolchain)
    template, point = context.kernel.preset(preset)
    done = evaluate(preset_candidate(template, point.name, context.compiled), context)
    assert isinstance(done.verdict, Green), done.verdict
