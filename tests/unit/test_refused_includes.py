"""Includes are refused in a whole text as in its pieces, whatever crosses their borders."""

from __future__ import annotations

import pytest

from greenfast.search.toolchain import includes
from greenfast.search.toolchain.includes import refused_include

MARK = '\n#line 7 "own.cu.j2"\n'
SECRET = '#include "/etc/passwd"'
ASSEMBLY = 'asm(".incbin \\"x\\"");'
HARMLESS = "#include <stdint.h>\n__global__ void k() { }"
REFUSED = {
    "in the first piece": f"{SECRET}{MARK}{HARMLESS}",
    "in the last piece": f"{HARMLESS}{MARK}{SECRET}",
    "behind a comment that ends in its piece": f"int a; /* //{MARK} */ {ASSEMBLY}",
    "behind the end of a comment that looks like one": f"int a; /* {MARK}// */ {ASSEMBLY}",
    "behind a comment in a comment's end": f"// */ /*\nint a; /* {MARK}// */ {ASSEMBLY}",
    "over a splice": f'int a; \\{MARK}{HARMLESS}{MARK}asm(".inc\\\nbin");',
    "after a raw string": f'auto text = R"({MARK})";{MARK}{SECRET}',
    "in literals with a comment between": f'{HARMLESS}{MARK}asm(".inc" /* */ "bin x");',
}
ALLOWED = {
    "nothing": HARMLESS,
    "in a comment over a marker": f"/* {MARK}{SECRET}{MARK} */ int a;",
    "in a line's comment": f"// {SECRET}{MARK}{HARMLESS}",
    "a host's header under a condition that another piece opens": (
        f'#ifdef HOST{MARK}#include "mine.h"{MARK}#endif'
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_crosses_a_marker_is_refused(name):
    sentence = refused_include(REFUSED[name], "kernel.cu")
    assert sentence and sentence == includes._first_refusal(REFUSED[name], "kernel.cu")


@pytest.mark.parametrize("name", ALLOWED)
def test_what_only_looks_like_an_include_is_allowed(name):
    assert refused_include(ALLOWED[name], "kernel.cu") == ""
    assert includes._first_refusal(ALLOWED[name], "kernel.cu") == ""
