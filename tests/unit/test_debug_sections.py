"""Which lines of g++'s assembly the edits of a checked library leave out."""

from __future__ import annotations

import pytest

from greenfast.search.targets.emulator.debug_sections import split_debug

CODE = ["\t.text\n", "k:\n", "\tret\n"]
BEGIN = '\t.section\t.debug_info,"",@progbits\n'
DEBUG = [BEGIN, ".Ldebug_info0:\n", "\t.long\t0x10\n", '\t.section\t.debug_str,"MS",@progbits,1\n']


def test_the_sections_at_the_end_are_left_out_and_their_first_line_is_in_both():
    assert split_debug([*CODE, *DEBUG]) == ([*CODE, BEGIN], DEBUG)


@pytest.mark.parametrize(
    "line", ["\tret\n", "\t.text\n", '\t.section\t.text.k,"ax",@progbits\n', "k2:\n"]
)
def test_lines_that_may_be_code_are_never_left_out(line):
    hidden = [*CODE, *DEBUG, line]
    assert split_debug(hidden) == (hidden, [])


def test_a_section_of_the_same_name_before_the_code_hides_none():
    assert split_debug([*DEBUG, *CODE, *DEBUG]) == ([*DEBUG, *CODE, BEGIN], DEBUG)
