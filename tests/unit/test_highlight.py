"""Sources on pages: coloured, escaped, and in time that their authors do not choose."""

from __future__ import annotations

import resource
import subprocess
import sys
from html import escape

from greenfast.app.dashboard.highlight import cuda_lines

# For some of these a lexer that goes back needs years, at a kilobyte each.
SLOW = ("int f//\\\n" + "//\\\n" * 20_000, "R\"x(" * 20_000, 'R"(' + ")" * 90_000, "\n" * 90_000,
        "int f" + "\t" * 90_000, "a::" * 30_000, "/*" * 40_000, "'" * 90_000)  # fmt: skip
TEXT = 'R"x(</b>)" "\\")x"'
SCRIPT = """
import sys
from greenfast.app.dashboard.highlight import cuda_lines
for text in sys.stdin.read().split("\\0"):
    assert cuda_lines(text) is not None
"""


def test_no_source_occupies_the_service():
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input="\0".join(SLOW),
        text=True,
        capture_output=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (60, 60)),
    )
    assert process.returncode == 0, process.stderr[-2000:]


def test_words_are_coloured_and_nothing_is_lost():
    text = '#include <a>\n__global__ int k() { return R"x(</b>)" "\\")x"[0]; } /* <i>\n*/ 0x1.p3f'
    first, second, third = str(cuda_lines(text)).split("\n")
    assert '<span class="cp">#include &lt;a&gt;</span>' in first
    assert '<span class="kr">__global__</span>' in second
    assert f'<span class="s">{escape(TEXT, quote=False)}</span>' in second
    assert '<span class="cm">*/</span>' in third and '<span class="mi">0x1.p3f</span>' in third
