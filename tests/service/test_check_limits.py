"""`greenfast check` on harmful texts: loops without an end, and bytes that terminals obey."""

from __future__ import annotations

import pytest

HARM = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202e"


@pytest.fixture
def check(home):
    def run(text, *options):
        (home.data / "k.cu").write_text(text)
        return home.run("check", "k.cu", "--entry", "k", "--arg", "x[4]:inout", *options)

    return run


def harmless(text):
    return all(character.isprintable() or character in "\n\t" for character in text)


@pytest.mark.slow
def test_a_loop_without_an_end_is_a_timeout_with_its_line(check):
    text = "__global__ void k(float* x) {\n    while (x[0] < 1e9f)\n        x[1] += 1.0f;\n}\n"
    ended = check(text, "--timeout", "0.3", "--json")
    (finding,) = ended.json["findings"]
    assert ended.code == 1 and finding["kind"] == "timeout"
    assert finding["where"][1] in (2, 3) and "0.3 s" in finding["sentence"]
    refused = check(text, "--timeout", "0")
    assert refused.code == 2 and "--timeout" in refused.err


@pytest.mark.parametrize(
    "text",
    [
        f"#error {HARM}\n__global__ void k(float* x) {{ x[0] = 1; }}\n",
        f"__global__ void k(float* x) {{ x[0] = {HARM}; }}\n",
        f'__global__ void k(float* x) {{ static_assert(sizeof(x) == 1, "{HARM}"); }}\n',
        f'__global__ void k(float* x) {{ asm("{HARM}"); }}\n',
    ],
)
def test_what_a_compiler_repeats_of_a_text_reaches_no_terminal_as_it_is(check, text):
    ended = check(text)
    assert ended.code == 2 and ended.err.startswith("greenfast: k.cu:")
    assert harmless(ended.out) and harmless(ended.err)


@pytest.mark.slow
def test_lines_and_assertions_of_a_report_are_harmless_in_terminals_and_files(check, home):
    text = f'__global__ void k(float* x) {{ assert(x == 0 && "{HARM}"); }}  // {HARM}\n'
    for options in ((), ("--json",), ("--format", "sarif")):
        ended = check(text, *options)
        assert ended.code == 1 and ended.out and harmless(ended.out) and harmless(ended.err)
    check(text, "-o", "report.txt")
    report = (home.data / "report.txt").read_text()
    assert "k.cu:1" in report and harmless(report)
