"""Docs fail here when they lie: commands, options, names, links, figures and container files."""

from __future__ import annotations

import itertools
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest
import typer
import yaml

import greenfast
from bench.results import read_result, result_names
from greenfast.app.cli.main import COMMAND_LINE_ERROR, make_app
from greenfast.app.routes.auth import LARGEST_BODY_BYTES, LARGEST_LOGIN_BYTES
from greenfast.app.routes.bundling import MOST_AT_ONCE
from greenfast.app.routes.events import MOST_STREAMS
from greenfast.app.routes.health import READY_TIMEOUT_S
from greenfast.app.service.admission import MOST_WAITING
from greenfast.app.settings import setting_table
from greenfast.db.workers import ALIVE_S
from greenfast.search.diagnose.brought_buffers import FILLS
from greenfast.search.diagnose.launch_file import SCALARS, read_launch
from greenfast.search.gates import GATES
from greenfast.search.loop.sink import Ended
from greenfast.search.recordings.lattice import lattice_of
from greenfast.search.space.candidate import OriginKind
from greenfast.search.strategies import STRATEGIES
from greenfast.search.verdict import (
    FINDING_REASONS,
    Reason,
    Stage,
    VerdictName,
)

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ROOT / "recordings" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
COMMAND_LINE = typer.main.get_command(make_app())


def _greenfast_lines() -> list[tuple[str, str]]:
    return [line for line in _command_lines() if line[1].startswith("greenfast ")]


def _command_lines() -> list[tuple[str, str]]:
    """(page, line) of every line in a code block, with its comment taken off."""
    lines = []
    for page in PAGES:
        for block in re.findall(r"^```[a-z]*\n(.*?)^```", page.read_text(), re.S | re.M):
            joined = block.replace("\\\n", " ")
            lines += [
                (page.name, line.partition("  #")[0].removeprefix("$ "))
                for line in joined.splitlines()
            ]
    return lines


def test_there_are_commands_to_check():
    assert len(_greenfast_lines()) >= 100
    for wrong in ("nothing", "search --resume", "search --trial 5", "trials last --limit x"):
        with pytest.raises(COMMAND_LINE_ERROR):
            _parse(wrong.split())


@pytest.mark.parametrize(("page", "line"), _greenfast_lines())
def test_the_command_line_takes_a_command_of_the_docs(page, line):
    """Arguments, options and the types of their values; nothing runs."""
    _parse(shlex.split(line)[1:])


def _parse(words: list[str]) -> None:
    """Read a command as the command line does; a ClickException for what it would refuse."""
    command, parent = COMMAND_LINE, None
    while True:
        parent = command.make_context(words[0] if words else "", words, parent=parent)
        rest = [*getattr(parent, "_protected_args", ()), *parent.args]
        if not rest or not hasattr(command, "commands"):
            return
        _, command, words = command.resolve_command(parent, rest)


MENTIONS = sorted(
    {
        (page.name, " ".join(words.split()))
        for page in PAGES
        if page.name != "cli.md"  # made of the commands themselves
        for words in re.findall(r"`greenfast ([^`]+)`", page.read_text())
    }
)


def test_commands_that_the_text_mentions_are_not_refused():
    """A mention may leave required arguments and an option's value out."""
    refused = []
    for page, words in MENTIONS:
        try:
            _parse(["1" if word == "N" else word for word in shlex.split(words)])
        except COMMAND_LINE_ERROR as error:
            sentence = error.format_message()
            if not sentence.startswith("Missing ") and "requires an argument" not in sentence:
                refused.append(f"{page}: greenfast {words}: {sentence}")
    assert len(MENTIONS) > 50 and refused == []


def _bench_lines() -> list[tuple[str, str]]:
    return [line for line in _command_lines() if line[1].startswith("python -m bench.")]


@pytest.mark.parametrize(("page", "line"), _bench_lines())
def test_a_script_in_the_docs_exists_with_its_options(page, line):
    """Scripts need a GPU or minutes, so their options are looked up in their text."""
    _, _, module, *words = shlex.split(line)
    path = ROOT / f"{module.replace('.', '/')}.py"
    assert path.is_file(), f"{page}: {module}"
    for word in words:
        if word.startswith("-"):
            assert f'"{word}"' in _with_helpers(path), f"{page}: {module} has no {word}"


def _with_helpers(path: Path) -> str:
    """A script's text with that of the modules of bench/ that it imports directly."""
    text = path.read_text()
    for module in re.findall(r"^from (bench[\w.]*) import", text, re.M):
        helper = ROOT / f"{module.replace('.', '/')}.py"
        text += helper.read_text() if helper.is_file() else ""
    return text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_and_shell_scripts_in_the_docs_exist(page):
    text, makefile = page.read_text(), (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:^|`)make (\w+)", text, re.M):
        assert f"\n{target}:" in makefile, f"{page.name}: make {target}"
    for script in re.findall(r"[\w/]+\.sh\b", text):
        assert (ROOT / script).exists(), f"{page.name}: {script}"


def test_the_presets_parameters_and_workloads_of_the_readme_exist(catalogue):
    for _, line in _greenfast_lines():
        words = shlex.split(line)
        if words[1] == "check" and words[2] != "attention":
            continue
        if words[2:3] in (["softmax"], ["product"]):  # the tutorial's own, run by its own test
            continue
        name = words[2] if len(words) > 2 and words[2] in catalogue.names() else "attention"
        kernel = catalogue.kernel(name)
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page):
    """Paths without a link are the business of test_architecture.py."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    for target, heading in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", text):
        if target.startswith("http"):
            continue
        linked = page.parent / target if target else page
        assert linked.exists(), f"{page.name}: {target}"
        if heading:
            assert heading in _anchors(linked), f"{page.name}: {target}#{heading}"


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_readme_names_every_gate_strategy_and_verdict():
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", text, re.M)
    assert rows == [gate.name for gate in GATES]
    for name in (*STRATEGIES, *VerdictName):
        assert f"`{name}`" in text


def test_the_service_page_lists_every_setting_with_its_default():
    text = (ROOT / "docs" / "service.md").read_text()
    rows = dict(re.findall(r"^\| `(GREENFAST_\w+)` \| ([^|]+) \| [^|]+ \|$", text, re.M))
    assert list(rows) == [variable for variable, _, _ in setting_table()]
    for variable, default, _ in setting_table():
        words = DEFAULTS_IN_WORDS.get(variable, default)
        assert rows[variable].strip("` ") == words, variable


# What the page says where a default depends on the machine, or is empty.
DEFAULTS_IN_WORDS = {
    "GREENFAST_DATABASE_URL": "SQLite in the data folder",
    "GREENFAST_TOKEN": "none",
    "GREENFAST_SUBMIT_TOKEN": "none",
    "GREENFAST_ACCEPT_WEAK_SANDBOX": "off",
    "GREENFAST_ALLOWED_HOSTS": "none",
    "GREENFAST_WINDOW": "cores, from 2 to 8",
    "GREENFAST_DEBUG": "off",
}


def test_every_variable_of_the_docs_is_read_somewhere():
    code = "".join(
        path.read_text()
        for folder in ("search", "app", "db", "scripts", "tests")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sh") and path.name != Path(__file__).name
    )
    for page in PAGES:
        for variable in re.findall(r"\bGREENFAST_[A-Z][A-Z_]*[A-Z]\b", page.read_text()):
            assert variable in code, f"{page.name}: {variable}"


def test_the_service_page_states_the_limits_of_the_code():
    page = (ROOT / "docs" / "service.md").read_text()
    text = " ".join(page.split())
    assert f"| {MOST_WAITING} requests" in text and f"| {MOST_STREAMS} event streams" in text
    assert f"| {LARGEST_BODY_BYTES:,} bytes" in text
    assert f"{LARGEST_LOGIN_BYTES:,} in a login" in text and f"| {MOST_AT_ONCE} bundles" in text
    assert f"within {READY_TIMEOUT_S:g} s" in text and f"for {ALIVE_S:g} s" in text
    refusals = re.findall(r"^\| `(database_\w+)` \|", page, re.M)
    code = "".join(path.read_text() for path in (ROOT / "db").glob("*.py"))
    assert refusals and all(f'"{refusal}"' in code for refusal in refusals)


def test_the_service_page_names_every_origin_of_a_candidate():
    text = " ".join((ROOT / "docs" / "service.md").read_text().split())
    *most, last = (f"`{kind.value}`" for kind in OriginKind)
    assert f"{', '.join(most)} or {last}, with" in text


def test_the_rendered_kernels_are_todays_renderings():
    from bench.pages.kernels_page import FOLDER, PRESETS, file_of, source_of

    index = (FOLDER / "README.md").read_text()
    assert {path.name for path in FOLDER.glob("*.cu")} == {
        file_of(preset).name for preset in PRESETS
    }
    for preset in PRESETS:
        source, path = source_of(preset), file_of(preset)
        assert path.read_text() == source.text, "run `python -m bench.pages.kernels_page --save`"
        lines = len(source.text.splitlines())
        row = f"| [{path.name}]({path.name}) | `{preset}` | {lines} |"
        assert row in index and f"`{source.digest[:12]}`" in index, preset


def test_the_changelog_begins_with_todays_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## \[([\d.]+)\]", text, re.M)[0] == greenfast.__version__


def test_the_emulator_page_names_every_primitive_and_every_finding():
    text = (ROOT / "docs" / "emulator.md").read_text()
    headers = re.findall(r"^\| `(gf/\w+\.cuh)` \|", text, re.M)
    assert headers == sorted(
        f"gf/{path.name}" for path in (ROOT / "kernel_templates" / "include" / "gf").glob("*.cuh")
    )
    kinds = re.findall(r"^\| `(\w+)` \| [^|]+ \| `(\w+)` \|$", text, re.M)
    assert kinds and dict(kinds) == {kind: FINDING_REASONS[kind].value for kind, _ in kinds}
    left = FINDING_REASONS.keys() - {kind for kind, _ in kinds}
    assert left == {"timeout", "out_of_memory", "wrong_values"}, "not the checks' own"


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
    assert {gate.name for gate in GATES} <= {stage.value for stage in Stage}
    assert len({reason.value for reason in Reason}) == len(Reason) and "completed" in {
        status.value for status in Ended
    }


def test_figures_in_the_docs_come_from_results():
    rows = read_result("gpu_check")["rows"]
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
    results = {name: read_result(name)["rows"] for name in ("model_check", "model_recorded")}
    templates = [
        row
        for rows in results.values()
        for row in rows
        if row.get("what") == "modelled against measured"
    ]
    ranks, count = (
        sorted(row["spearman"] for row in templates),
        sum(row["candidates"] for row in templates),
    )
    readme, reasons = (
        " ".join((ROOT / page).read_text().split())
        for page in ("README.md", "docs/architecture.md")
    )
    assert f"{ranks[0]:.2f} to {ranks[-1]:.2f} on {count} candidates of another template" in readme
    recorded = [row for row in templates if "workload" in row]
    assert len(recorded) == 3 and min(row["candidates"] for row in recorded) >= 100
    first, second, third = (f"{row['spearman']:.3f}" for row in recorded)
    assert f"The correlation is {first}, {second} and {third}" in reasons
    apart = [row for row in results["model_recorded"] if row.get("modelled_ratio_from", 0) >= 2]
    assert sum(row["pairs"] * row["share"] for row in apart) < 0.01 * sum(
        row["pairs"] for row in apart
    )


def test_what_the_emulator_page_says_of_float_atomics_comes_from_results():
    text = " ".join((ROOT / "docs" / "emulator.md").read_text().split())
    rows = read_result("model_atomics")["rows"]
    spreads = [row for row in rows if "what" in row]
    assert len(spreads) == 4  # of two templates, each with the charge and without
    for spread in spreads:
        assert (
            f"{spread['ratio_p5']:.2f} to {spread['ratio_p95']:.2f}" in text
            and f"({spread['candidates']} candidates)" in text
        )


def test_what_the_readme_says_of_searches_on_a_gpu_comes_from_results():
    text = " ".join((ROOT / "README.md").read_text().split())
    (row,) = read_result("h200/attention_searches/mission_bf16")["rows"]
    assert row["confirmed"] and row["best_peer"] == "flash-attention-4"
    assert f"takes {row['ratio_to_best_peer']:.2f}x the time of FlashAttention-4" in text
    rows = read_result("h200/long_rows")["rows"]
    beside_cudnn = {
        row["workload"].removesuffix(",dtype=bf16"): row["ratios"]["torch-cudnn"][0] for row in rows
    }
    causal = ",mask=causal_top_left"
    long_causal, short_causal, short = (
        beside_cudnn[workload]
        for workload in (
            f"B=4,H=16,S_q=4096,D=128{causal}",
            f"B=2,H=8,S_q=2048,D=64{causal}",
            "B=2,H=8,S_q=2048,D=64",
        )
    )
    assert f"{long_causal:.2f}x the time of cuDNN on 4,096 causal keys" in text
    assert f"{short_causal:.2f}x and {short:.2f}x on 2,048" in text
    beside_flash = [
        row["ratios"]["flash-attention-4"][0]
        for row in rows
        if row["workload"].split(",")[2] in ("S_q=4096", "S_q=16384")
        and "S_kv" not in row["workload"]
    ]
    assert len(beside_flash) == 8
    ends = f"{min(beside_flash):.2f}x to {max(beside_flash):.2f}x the time of FlashAttention-4"
    assert f"On 4,096 and 16,384 keys it takes {ends}" in text
    tally = read_result("h200/emulator_against_gpu")["rows"][0]
    judged = tally["drawn"] - tally["spills"]
    assert (
        f"Of {judged} random candidates judged by both, all were correct on both" in text
        and tally["right_on_both"] == judged
    )


@pytest.mark.parametrize("name", result_names())
def test_a_result_holds_its_environment_and_rows(name):
    result = read_result(name)
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
    folders = set()
    for sources in re.findall(r"^COPY ((?:[\w./]+ )+)\S+$", dockerfile, re.M):
        for copied in sources.split():
            assert (ROOT / copied).exists()
            folders.add(copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["setuptools"]["package-dir"].values()) <= folders
    extras = project["project"]["optional-dependencies"]
    assert compose["services"]["greenfast-gpu"]["build"]["args"]["EXTRAS"] in extras


def test_the_figures_of_the_emulator_page_are_those_of_the_results():
    from bench.pages.emulator_page import PAGE, pages

    assert {PAGE: PAGE.read_text()} == pages()
