"""The second number of variables that are not set, in g++'s assembly."""

from __future__ import annotations

import pytest

from greenfast.search.targets.emulator.unset_variables import places, with_other_number

WORD, OTHER = -16843010, 0x7B7B7B7B  # 0xfefefefe as a signed number


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("\tmovl\t$-16843010, %eax\n", f"\tmovl\t${OTHER}, %eax\n"),
        ("\t.long\t-16843010\n", f"\t.long\t{OTHER}\n"),
        ("\t.long\t4278124286\n", f"\t.long\t{OTHER}\n"),
        ("\tmovabsq\t$-72340172838076674, %rax\n", "\tmovabsq\t$8897841259083430779, %rax\n"),
        # A member that is not set, and beside it one of -3.0e38 that is.
        ("\tmovabsq\t$-72340172831608346, %rbp\n", "\tmovabsq\t$8897841261296333286, %rbp\n"),
        ("\tmovl\t$-16843011, %eax\n", None),
        ("\tmovl\t-16843010(%rax), %eax\n", None),  # a distance
        ("\tjmp\t.L16843010\n", None),
    ],
)
def test_the_number_is_changed_wherever_it_is_a_whole_word(line, changed):
    assert with_other_number([line]) == (None if changed is None else [changed])


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
    assert places(assembly) == (("row.cu", 3), ("row.cu", 7))
    assert places(assembly[:5] + assembly[8:]) == ()
