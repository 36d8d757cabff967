"""Variables for which g++ takes a constant on paths that do not set them, in its dump."""

from __future__ import annotations

import subprocess

import pytest

from greenfast.search.targets.emulator.flags import NO_FOLDING_FLAGS
from greenfast.search.targets.emulator.folded_constants import DUMP_FLAG, folded_variables
from greenfast.search.targets.emulator.host_compiler import find_host_compiler

NUMBER = "-16843010"
PATTERN = "-ftrivial-auto-var-init=pattern"
BODIES = {  # the third line declares the variable
    "a branch": "float s;\nif (n > 9) s = 1.0f;\nout[0] = s;",
    "a loop": "int s;\nfor (int i = 0; i < n; ++i) if (out[i] > 3) s = 7;\nout[0] = s;",
    "two branches alike": "float s;\nif (n == 1) s = 3; else if (n == 2) s = 3;\nout[0] = s;",
    "a switch": "int s;\nswitch (n) { case 1: s = 4; break; case 5: s = 4; break; }\nout[0] = s;",
    "a reference": "float s;\nauto set = [](float& v, bool is) { if (is) v = 2; };\n"
    "set(s, n > 1);\nout[0] = s;",
}


def compiled(tmp_path, body, *flags):
    """The dump and the assembly of a function."""
    (tmp_path / "k.cpp").write_text(f"void k(float* out, int n)\n{{\n{body}\n}}\n")
    compiler = find_host_compiler()
    if compiler.kind != "g++" or not compiler.poison_flags:
        pytest.skip(f"{compiler.version} gives variables no number, or has no such dump")
    words = [compiler.path, "-O3", "-fno-tree-sra", PATTERN, f"{DUMP_FLAG}=early.txt", "-S"]
    subprocess.run([*words, *flags, "k.cpp"], cwd=tmp_path, check=True)
    return (tmp_path / "early.txt").read_text(), (tmp_path / "k.s").read_text()


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_they_are_known_by_their_places_and_keep_their_number_without_these_passes(body, tmp_path):
    dump, assembly = compiled(tmp_path, body)
    assert folded_variables(dump.splitlines(keepends=True)) == (("k.cpp", 3),)
    assert NUMBER not in assembly, "this g++ folds nothing here"
    _, kept = compiled(tmp_path, body, *NO_FOLDING_FLAGS)
    assert NUMBER in kept


@pytest.mark.parametrize(
    "body",
    [
        "float s = 0;\nif (n > 9) s = 1.0f;\nout[0] = s;",
        "float s;\nif (n > 9) s = 1.0f; else s = 2.0f;\nout[0] = s;",
        "float s;\nif (n > 9) s = out[1]; else s = 2.0f;\nout[0] = s;",
        "float s;\nfor (int i = 0; i < n; ++i) { s = i; out[i] = s; }",
        "float s[4];\nfor (int i = 0; i < 4; ++i) s[i] = out[i];\nout[0] = s[1] + s[2];",
    ],
)
def test_variables_that_are_set_on_all_paths_are_not_among_them(body, tmp_path):
    dump, _ = compiled(tmp_path, body)
    assert folded_variables(dump.splitlines(keepends=True)) is None


def test_two_constants_and_computed_values_are_not_folded_and_a_name_belongs_to_its_function():
    unset = '  [a.cu:3:9] s_1 = .DEFERRED_INIT (4, 1, [a.cu:3:9] &"s"[0]);\n'
    constant = "  # s_2 = PHI <[a.cu:3:9] s_1(2), [a.cu:4:1] 1.0e+0(3)>\n"
    assert folded_variables([unset, constant]) == (("a.cu", 3),)
    assert folded_variables([unset.replace("[a.cu:3:9] ", ""), constant]) == ()
    assert folded_variables([unset, ";; Function f (f)\n", constant]) is None
    for other in ("s_7", "_7", "n_3(D)", "n_3(D)(4), 5"):
        assert folded_variables([unset, constant.replace("1.0e+0", other)]) is None
    both = "  # s_2 = PHI <s_1(2), 1(3), 2(4)>\n"
    assert folded_variables([unset, both]) is None
    through = ["  # s_2 = PHI <s_3(2), 7(3)>\n", "  # s_3 = PHI <s_1(2), s_2(4)>\n"]
    assert folded_variables([unset, *through]) == (("a.cu", 3),)


def test_a_text_that_joins_values_without_end_is_not_followed_to_its_end():
    chain = [f"  # s_{at} = PHI <s_{at + 1}(2), 7(3)>\n" for at in range(2, 100_000)]
    unset = '  s_100000 = .DEFERRED_INIT (4, 1, &"s"[0]);\n'
    assert folded_variables([unset, *chain]) == ()
