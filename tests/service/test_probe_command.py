"""`greenfast probe`: a rejected candidate comes with the command that finds its wrong stage."""

from __future__ import annotations

import shlex

import pytest
from planted_stages import PLANTED, changed
from service_home import one_sentence


@pytest.mark.slow
def test_the_command_that_a_wrong_trial_names_finds_the_stage(home, tmp_path):
    fault = PLANTED["the sum is not rescaled"]
    changed(tmp_path, fault.old, fault.new)
    templates = {"GREENFAST_TEMPLATE_PATH": str(tmp_path / "templates")}
    wrong = home.run(
        "trial",
        "attention",
        "--template",
        "scalar",
        "--preset",
        "vec",
        "--set",
        "tile_n=16",
        "--no-baseline",
        "--json",
        **templates,
    )
    assert (wrong.code, wrong.json["stage"]) == (1, "correctness")
    greenfast, *words = shlex.split(wrong.json["probe"])
    assert greenfast == "greenfast" and {"tile_n=16", "--case"} <= set(words)
    ended = home.run(*words, "--json", **templates)
    report = ended.json
    assert (
        ended.code == 1 and report["first_wrong"] == "state" and report["target"] == "emulator:h200"
    )
    stages = {stage["probe"]: stage for stage in report["stages"]}
    assert stages["qk"]["outcome"] == stages["softmax"]["outcome"] == "right"
    assert (
        stages["state"]["cases"][0]["worst_index"] and "l" in stages["state"]["cases"][0]["where"]
    )


def test_a_kernel_without_probes_and_unknown_cases_are_refused(home):
    ended = home.run("probe", "axpy", "--template", "right")
    assert ended.code == 2 and "has no probes" in one_sentence(ended)
    ended = home.run("probe", "attention", "--template", "scalar", "--case", "tile_exakt")
    assert ended.code == 2 and "tile_exact" in one_sentence(ended)
