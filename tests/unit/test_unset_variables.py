"""The second number of variables that are not set, in g++'s assembly."""

from __future__ import annotations

import pytest

from greenfast.search.targets.emulator.build import EmulatorBuild, Module
from greenfast.search.targets.emulator.unset_variables import unset_variables

WORD, OTHER = -16843010, 0x7B7B7B7B  # 0xfefefefe as a signed number
SPREAD = ["\tmovl\t$-2, %eax\n", "\tvmovd\t%eax, %xmm1\n", "\tvpbroadcastb\t%xmm1, %ymm0\n"]


def other(lines, zeroed=("\tret\n",)):
    unset = unset_variables(lines, lambda: zeroed)
    return unset and list(unset.other[:-1])


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("\tmovl\t$-16843010, %eax\n", f"\tmovl\t${OTHER}, %eax\n"),
        ("\t.long\t-16843010\n", f"\t.long\t{OTHER}\n"),
        ("\t.long\t4278124286\n", f"\t.long\t{OTHER}\n"),
        ("\tmovabsq\t$-72340172838076674, %rax\n", "\tmovabsq\t$8897841259083430779, %rax\n"),
        # A member that is not set, and beside it one of -3.0e38 that is.
        ("\tmovabsq\t$-72340172831608346, %rbp\n", "\tmovabsq\t$8897841261296333286, %rbp\n"),
        ("\tmovl\t$0xfefefefe, 20(%rsp)\n", f"\tmovl\t${OTHER}, 20(%rsp)\n"),
        ("\tmovl\t$-16843011, %eax\n", None),
        ("\tmovl\t-16843010(%rax), %eax\n", None),  # a distance
        ("\tjmp\t.L16843010\n", None),
        ("\tmovl\t$-258, %ebx\n", "\tmovl\t$31611, %ebx\n"),
        ("\t.value\t-258\n", "\t.value\t31611\n"),
        ("\taddl\t$-258, %ebx\n", None),
        ("\tmovl\t$-2, %ebx\n", None),
    ],
)
def test_the_number_is_changed_where_it_is_a_whole_one(line, changed):
    assert other([line]) == (None if changed is None else [changed])


def test_vectors_of_its_bytes_are_changed_unless_the_register_has_another_value_by_then():
    changed = other(SPREAD)
    assert changed[:2] == SPREAD[:2] and changed[2].endswith("(%rip), %ymm0\n")
    assert other([*SPREAD[:2], "\tvmovaps\t%ymm3, %ymm1\n", SPREAD[2]]) is None
    assert other([SPREAD[0], "\txorq\t%rax, %rax\n", *SPREAD[1:]]) is None
    assert other([SPREAD[0].replace("-2", "-3"), *SPREAD[1:]]) is None
    assert other(["\t.byte\t-2\n"] * 16) == ["\t.byte\t123\n"] * 16
    assert other(["\t.byte\t-2\n"] * 15) is None


def test_a_number_that_zeros_leave_there_is_the_authors():
    word, half = f"\tmovl\t${WORD}, %eax\n", "\tmovl\t$-258, %ebx\n"
    assert other([word, half], [half]) == [f"\tmovl\t${OTHER}, %eax\n", half]
    assert other([word, half], [word]) is None
    assert other([half], [half]) is None
    assert other([word], []) is None  # no assembly with zeros


def test_the_lines_that_use_it_are_named_also_through_a_constant():
    assembly = [
        '\t.file 1 "row.cu"\n',
        "\t.loc 1 3 11\n",
        "\tmovss\t.LC0(%rip), %xmm0\n",
        "\t.loc 1 7 2\n",
        "\tmovss\t.LC1(%rip), %xmm1\n",
        "\tmovl\t$-16843010, %ebx\n",
        ".LC0:\n",
        f"\t.long\t{WORD}\n",
        ".LC1:\n",
        "\t.long\t1065353216\n",
    ]
    assert unset_variables(assembly, lambda: ["\tret\n"]).places == (("row.cu", 3), ("row.cu", 7))
    assert unset_variables(assembly[:5] + assembly[8:], list) is None


ATOMICS = """
extern "C" __global__ void k(int* i, float* f, double* d, unsigned* w) {
    i[1] = atomicAdd(i, 1) + atomicCAS(i, 1, 2) + atomicExch(i, 4) + atomicAdd_block(i, 2);
    f[1] = atomicAdd(f, 1.0f) + __shfl_xor_sync(~0u, f[3], 1);
    d[1] = atomicAdd(d, 1.0);
    w[0] = __ballot_sync(~0u, i[2]) + __match_any_sync(~0u, i[3]);
}
"""


def test_our_headers_leave_no_number(artifacts, catalogue):
    """Else every library with an atomic would be built twice, and its runs repeated."""
    build = EmulatorBuild(artifacts, include_dirs=catalogue.include_dirs)
    module = build.build_module(ATOMICS, ("k",), flavour="checked", deadline_s=60.0)
    assert isinstance(module, Module), module
    assert module.with_other_number is None
