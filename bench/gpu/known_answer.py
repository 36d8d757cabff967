"""The known-answer kernel of search/toolchain/known_answer on a GPU, as the toolkit compiles it.

    python -m bench.gpu.known_answer OUT.json

GREENFAST_CUDA names the toolkit, as for greenfast itself. A release whose machine code is wrong
here belongs into known_answer.WRONG_CODE. With one key, which every row sees, each row of `o` is
that key's value, so the expected output needs no reference. A run's row joins those in OUT.json.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

from bench.command_line import require_gpu, script_parser
from bench.environment import basic_environment
from bench.results import Row, read_json, write_json
from greenfast.search.digest import text_digest
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource
from greenfast.search.toolchain import Cubin, Toolchain, known_answer

B, H, S_Q, S_KV, D = 2, 2, 65, 1, 64  # the case that was wrong
TILE_M, THREADS, SMEM_DYNAMIC_BYTES = 64, 128, 96 * 1024
RUNS = 20


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    options = parser.parse_args()
    require_gpu()
    row = judged()
    rows = read_json(options.out)["rows"] if options.out.is_file() else []
    write_json(options.out, {"environment": basic_environment(), "rows": [*rows, row]})
    print(json.dumps(row))
    return 0


def judged() -> Row:
    """The release, the digest of its machine code, and how many of RUNS launches were wrong."""
    with tempfile.TemporaryDirectory() as cache:
        toolchain = Toolchain(Path(cache), 1)
        cubin = toolchain.compile(known_source(), known_answer.ARCH)
        toolchain.close()
    if not isinstance(cubin, Cubin):
        raise SystemExit(cubin.sentence)
    wrong = [wrong_elements(cubin.code, seed) for seed in range(RUNS)]
    return {
        "nvidia-cuda-nvrtc": dict(toolchain.identity)["nvidia-cuda-nvrtc"],
        "code_digest": known_answer.code_digest(cubin.code),
        "known_wrong": bool(known_answer.wrong_answer(cubin.code)),
        "launches": RUNS,
        "wrong_launches": sum(map(bool, wrong)),
        "most_wrong_elements": max(wrong),
        "elements": B * H * S_Q * D,
    }


def known_source() -> RenderedSource:
    text = known_answer.SOURCE.read_text("utf-8")
    name = known_answer.SOURCE.name
    lines = tuple(Line(name, number) for number in range(1, text.count("\n") + 1))
    return RenderedSource(text, text_digest(text), lines, text, (known_answer.ENTRY,), False)


def wrong_elements(code: bytes, seed: int) -> int:
    """The elements of o that are further than fp16's rounding from the key's value."""
    import cupy  # the machine with the GPU has it

    random = np.random.default_rng(seed)
    q, k, v = (
        cupy.asarray(random.standard_normal(shape).astype(np.float16))
        for shape in ((B, S_Q, H, D), (B, S_KV, H, D), (B, S_KV, H, D))
    )
    o = cupy.full((B, S_Q, H, D), cupy.nan, cupy.float16)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        kernel = cupy.RawModule(path=file.name).get_function(known_answer.ENTRY)
    kernel.max_dynamic_shared_size_bytes = SMEM_DYNAMIC_BYTES
    scalars = (np.int32(H), np.int32(H), np.int32(S_Q), np.int32(S_KV), np.float32(D**-0.5))
    grid = (-(-S_Q // TILE_M), H, B)
    # LSE is not asked for; strides of batch, head and row in elements, layout [B, S, H, D].
    strides = tuple(
        np.int64(stride) for rows in (S_Q, S_KV, S_KV, S_Q) for stride in (rows * H * D, D, H * D)
    )
    arguments = (q, k, v, o, np.uint64(0), *scalars, *strides)
    kernel(grid, (THREADS, 1, 1), arguments, shared_mem=SMEM_DYNAMIC_BYTES)
    expected = v.astype(cupy.float32)
    error = cupy.abs(o.astype(cupy.float32) - expected)
    return int((~(error <= 0.005)).sum())


if __name__ == "__main__":
    raise SystemExit(main())
