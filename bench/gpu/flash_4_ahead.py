"""FlashAttention-4's kernels compiled ahead, for a machine that its compiler is too large for.

    python -m bench.gpu.flash_4_ahead FOLDER --runtime CUDA_DIALECT_RUNTIME.a --cudart LIBCUDART.so

Needs flash-attn-4 and no GPU: its own host code picks tiles and compiles for sm_90a and 132
multiprocessors, on tensors without memory, for the sixty shapes and the long rows of hopper_rows in
both types. FOLDER then holds one shared library a kernel, which apache-tvm-ffi alone can load
(bench.gpu.flash_4), and calls.json, which says what kernel a call takes. --runtime is the static
library in nvidia-cutlass-dsl-libs.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench.command_line import script_parser
from bench.gpu.flash_4 import CALLS, VERSION, call_name
from bench.gpu.long_rows import row_shapes
from bench.gpu.runtime_shapes import shapes

ENVIRONMENT = {
    "FLASH_ATTENTION_ARCH": "sm_90",
    "CUTE_DSL_ARCH": "sm_90a",
    "FLASH_ATTENTION_NUM_SMS": "132",
    "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "1",
}
# What a compiled module calls when CUDA reports an error; declared in CuteDSLRuntime.h.
RAISING = """
#include <stdint.h>
#include <stdio.h>
typedef void (*raise_t)(const char *, const char **, int32_t);
void CuteDSLRT_TVMFFISetRaisedCudaError(raise_t raise, int32_t code) {
    char text[64];
    const char *parts[] = {text};
    snprintf(text, sizeof text, "CUDA error %d", (int)code);
    raise("RuntimeError", parts, 1);
}
"""


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runtime", type=Path, required=True)
    parser.add_argument("--cudart", type=Path, required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="flash-4-") as place:
        os.environ.update({**ENVIRONMENT, "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": place})
        objects = compiled()
        libraries = {path: library_name(path) for path in set(objects.values())}
        for path, name in libraries.items():
            link(path, options.folder / name, options.runtime, options.cudart)
    calls = {call: libraries[path] for call, path in objects.items()}
    version = importlib.metadata.version("flash-attn-4")
    text = json.dumps({VERSION: version, CALLS: calls}, indent=1, sort_keys=True)
    (options.folder / "calls.json").write_text(text)
    print(f"{len(calls)} calls, {len(libraries)} kernels")


def compiled() -> dict[str, Path]:
    """By call, the object file that flash-attn-4 compiled for it."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    interface = importlib.import_module("flash_attn.cute.interface")
    cache = interface._flash_attn_fwd.compile_cache
    used: list[Any] = []
    look_up = type(cache).__contains__

    def noted(self: Any, key: Any) -> bool:
        if self is cache:
            used.append(key)
        return bool(look_up(self, key))

    type(cache).__contains__ = noted
    found = {}
    for shape in (*shapes(), *row_shapes()):
        for dtype in (torch.bfloat16, torch.float16):
            with FakeTensorMode():
                q, k, v = (
                    torch.empty(shape.B, heads, rows, shape.D, dtype=dtype, device="cuda")
                    for heads, rows in (
                        (shape.H, shape.S_q),
                        (shape.H_kv, shape.S_kv),
                        (shape.H_kv, shape.S_kv),
                    )
                )
                given = [tensor.transpose(1, 2) for tensor in (q, k, v)]
                interface.flash_attn_func(*given, causal=shape.is_causal)
            name = call_name(given[0].shape, given[1].shape, str(dtype), shape.is_causal)
            found[name] = cache.cache_path / f"{cache._key_to_hash(used[-1])}.o"
    return found


def library_name(path: Path) -> str:
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}.so"


def link(path: Path, library: Path, runtime: Path, cudart: Path) -> None:
    ffi = importlib.import_module("tvm_ffi.libinfo").find_libtvm_ffi()
    source = path.with_suffix(".c")
    source.write_text(RAISING)
    words = ["gcc", "-shared", "-fPIC", "-O1", "-s", "-o", library, source, path, runtime]
    subprocess.run([*map(str, words), str(ffi), str(cudart)], check=True)


if __name__ == "__main__":
    main()
