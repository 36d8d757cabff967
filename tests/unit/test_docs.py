"""Docs fail here when they lie: commands, options, names, links, figures and container files."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer
import yaml

from greenfast.app.cli.main import make_app
from greenfast.search.diagnose.brought import FILLS, SCALARS, read_launch
from greenfast.search.gates import GATES
from greenfast.search.loop.run import Ended
from greenfast.search.recordings.lattice import lattice_of
from greenfast.search.strategies import STRATEGIES
from greenfast.search.verdict import (
    FINDING_REASONS,
    Accepted,
    Faulted,
    Green,
    Reason,
    Rejected,
    Stage,
    verdict_name,
)

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = typer.main.get_command(make_app()).commands


def _greenfast_lines() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for block in re.findall(r"^```[a-z]*\n(.*?)^```", page.read_text(), re.S | re.M):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("greenfast "):
                    found.append((page.name, line.partition("  #")[0]))
    return found


def test_there_are_commands_to_check():
    assert len(_greenfast_lines()) >= 5


@pytest.mark.parametrize(("page", "line"), _greenfast_lines())
def test_a_command_in_the_docs_exists_with_its_options(page, line):
    _, name, *words = shlex.split(line)
    assert name in COMMANDS, f"{page}: greenfast {name}"
    options = {
        option
        for parameter in COMMANDS[name].params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    for word in words:
        if word.startswith("-"):
            assert word.partition("=")[0] in options, f"{page}: greenfast {name} has no {word}"


def test_the_presets_parameters_and_workloads_of_the_readme_exist(catalogue):
    kernel = catalogue.kernel("attention")
    for _, line in _greenfast_lines():
        words = shlex.split(line)
        if words[1] == "check" and words[2] != "attention":
            continue
        pairs = list(itertools.pairwise(words))
        for option, value in pairs:
            if option == "--workload":
                kernel.workload(value)
            if option == "--strategy":
                assert value in STRATEGIES
            if option == "--set":
                template = kernel.template(dict(pairs)["--template"])
                lattice_of(template, [value])  # one value, or for `record` several
            if option == "--preset":
                kernel.template(dict(pairs)["--template"]).preset(value)


@pytest.mark.parametrize("page", PAGES, ids=lambda one: one.name)
def test_links_and_named_files_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert target.startswith("http") or (page.parent / target).exists(), (
            f"{page.name}: {target}"
        )
    for target in re.findall(
        r"`((?:search|db|app|tests|bench|scripts|kernel_templates|docs)/[\w./-]*)`", text
    ):
        if "KERNEL" not in target:
            assert (ROOT / target).exists(), f"{page.name}: {target}"


def test_the_readme_names_every_gate_strategy_and_verdict():
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", text, re.M)
    assert rows == [gate.name for gate in GATES]
    for name in (
        *STRATEGIES,
        *(verdict_name(object.__new__(one)) for one in (Accepted, Green, Rejected, Faulted)),
    ):
        assert f"`{name}`" in text


def test_the_emulator_page_names_every_primitive_and_every_finding():
    text = (ROOT / "docs" / "emulator.md").read_text()
    headers = re.findall(r"^\| `(gf/\w+\.cuh)` \|", text, re.M)
    assert headers == sorted(
        f"gf/{path.name}" for path in (ROOT / "kernel_templates" / "include" / "gf").glob("*.cuh")
    )
    kinds = re.findall(r"^\| `(\w+)` \| [^|]+ \| `(\w+)` \|$", text, re.M)
    assert kinds and dict(kinds) == {kind: FINDING_REASONS[kind].value for kind, _ in kinds}
    left = FINDING_REASONS.keys() - {kind for kind, _ in kinds}
    assert left == {"timeout", "input_changed", "out_of_memory", "device_fault", "wrong_values"}, (
        "not the checks' own"
    )


def test_the_launch_file_of_the_emulator_page_is_one(tmp_path):
    text = (ROOT / "docs" / "emulator.md").read_text()
    (launch,) = re.findall(r"^```toml\n(.*?)^```", text, re.S | re.M)
    (tmp_path / "launch.toml").write_text(launch)
    np.save(tmp_path / "y.npy", np.zeros(4))
    problem, (expected,) = read_launch(tmp_path / "launch.toml", 0)
    assert [tensor.name for tensor in problem.tensors] == ["x", "y"] and expected.output == "y"
    assert all(f" {name} " in text or f"{name}," in text for name in SCALARS)
    assert all(name in text for name in FILLS)


def test_stages_of_gates_and_statuses_have_one_spelling():
    assert {gate.name for gate in GATES} <= {one.value for one in Stage}
    assert len({one.value for one in Reason}) == len(Reason) and "completed" in {
        one.value for one in Ended
    }


def test_figures_in_the_docs_come_from_results():
    rows = json.loads((ROOT / "bench" / "results" / "gpu_check.json").read_text())["rows"]
    agreement = (
        next(row for row in rows if row["what"] == "agreement") if "what" in rows[1] else None
    )
    everything = next(row for row in rows if row.get("template") == "all")
    for page in ("README.md", "docs/architecture.md"):
        text = (ROOT / page).read_text()
        assert f"{agreement['checks_on_gpu']:,}" in text
        assert f"{agreement['candidates']} " in text
        assert f"{everything['spearman']:.2f}" in text
    assert agreement["green_but_wrong_on_gpu"] == 0


def test_what_the_docs_say_of_modelled_times_elsewhere_comes_from_results():
    found = {
        name: json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())["rows"]
        for name in ("model_check", "model_recorded")
    }
    others = [
        row
        for rows in found.values()
        for row in rows
        if row.get("what") == "modelled against measured"
    ]
    ranks, count = (
        sorted(other["spearman"] for other in others),
        sum(other["candidates"] for other in others),
    )
    readme, reasons = (
        " ".join((ROOT / page).read_text().split())
        for page in ("README.md", "docs/architecture.md")
    )
    assert f"{ranks[0]:.2f} to {ranks[-1]:.2f} on {count} of a template" in readme
    recorded = [other for other in others if "workload" in other]
    assert len(recorded) == 3 and min(one["candidates"] for one in recorded) >= 100
    first, second, third = (f"{one['spearman']:.3f}" for one in recorded)
    assert f"it is {first}, {second} and {third}" in reasons
    apart = [one for one in found["model_recorded"] if one.get("modelled_ratio_from", 0) >= 2]
    assert sum(one["pairs"] * one["share"] for one in apart) < 0.01 * sum(
        one["pairs"] for one in apart
    )


def test_what_the_emulator_page_says_of_float_atomics_comes_from_results():
    text = " ".join((ROOT / "docs" / "emulator.md").read_text().split())
    rows = json.loads((ROOT / "bench" / "results" / "model_atomics.json").read_text())["rows"]
    spreads = [row for row in rows if "what" in row]
    assert len(spreads) == 4  # of two templates, each with the charge and without
    for spread in spreads:
        assert (
            f"{spread['ratio_p5']:.2f} to {spread['ratio_p95']:.2f}" in text
            and f"({spread['candidates']} candidates)" in text
        )


def test_what_the_readme_says_of_searches_on_a_gpu_comes_from_results():
    text, results = (ROOT / "README.md").read_text(), ROOT / "bench" / "results" / "h200"
    for name, peer, words in (
        ("mission_bf16", "flash-attention-4", "take {:.2f} of FlashAttention-4's"),
        ("long_bf16", "torch-cudnn", "{:.2f} times cuDNN's on `long`"),
    ):
        (row,) = json.loads((results / "attention_searches" / f"{name}.json").read_text())["rows"]
        assert row["confirmed"] and row["best_peer"] == peer
        assert words.format(row["ratio_to_best_peer"]) in " ".join(text.split())
    tally = json.loads((results / "emulator_against_gpu.json").read_text())["rows"][0]
    judged = tally["drawn"] - tally["spills"]
    assert (
        f"Of {judged} random candidates judged by both, all were right on both" in text
        and tally["right_on_both"] == judged
    )


@pytest.mark.parametrize(
    "path", sorted((ROOT / "bench" / "results").rglob("*.json")), ids=lambda one: one.name
)
def test_a_result_holds_its_environment_and_rows(path):
    result = json.loads(path.read_text())
    assert result["environment"]["date"] and result["rows"]


def test_the_container_files_parse_and_fit_together():
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    service = compose["services"]["greenfast"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    instructions = re.findall(r"^([A-Z]+) ", dockerfile.replace("\\\n", " "), re.M)
    assert instructions[0] == "FROM" and instructions[-1] == "CMD" and "USER" in instructions
    assert "GREENFAST_TOKEN" in service["environment"]
    assert service["ports"] == ["127.0.0.1:8741:8741"] and "EXPOSE 8741" in dockerfile
    assert (
        any(volume.endswith(":/data") for volume in service["volumes"])
        and "GREENFAST_DATA=/data" in dockerfile
    )
    assert compose["services"]["greenfast-gpu"]["profiles"] == ["gpu"]
    for copied in re.findall(r"^COPY ([\w.]+) ", dockerfile, re.M):
        assert (ROOT / copied).exists()


def test_the_figures_of_the_emulator_page_are_those_of_the_results():
    from bench.pages.emulator_page import PAGE, page_with, table

    assert PAGE.read_text() == page_with(table())
