"""Judges the launches of one job: python -m bench.correctness.second_checker.child JOB.json

It runs candidate code in its own process without a sandbox, so it is for this repository's own
kernels only. Prints a line of JSON for each finding, then {"done": CLUSTERS}.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import resource
import struct
from pathlib import Path
from typing import Any

MAP_TAG = 0x5345434F4E44
ADDRESS_SPACE_BYTES = 6 << 30


class Job(ctypes.Structure):
    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("cluster", ctypes.c_uint * 3),
        ("dynamic_bytes", ctypes.c_ulong),
        ("static_bytes", ctypes.c_ulong),
        ("statics", ctypes.c_void_p),
        ("seed", ctypes.c_ulong),
        ("clusters", ctypes.c_ulong),
    )


class TlsIndex(ctypes.Structure):
    _fields_ = (("module", ctypes.c_ulong), ("offset", ctypes.c_ulong))


class HeaderInfo(ctypes.Structure):
    """dl_phdr_info of <link.h>."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("header_count", ctypes.c_uint16),
        ("adds", ctypes.c_ulonglong),
        ("subs", ctypes.c_ulonglong),
        ("tls_module", ctypes.c_size_t),
        ("tls_data", ctypes.c_void_p),
    )


def static_segment(path: str) -> tuple[int, int, int]:
    """Address and size of the library's thread-local segment, and where the library lies."""
    libc = ctypes.CDLL(None)
    places: list[tuple[int, int, int]] = []
    callback = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(HeaderInfo), ctypes.c_size_t, ctypes.c_void_p
    )

    def look(info: Any, _size: int, _data: Any) -> int:
        header = info.contents
        if header.name and header.name.decode() == path:
            size = 0
            for number in range(header.header_count):
                raw = ctypes.string_at(header.headers + 56 * number, 56)
                kind, *_, memory_bytes, _alignment = struct.unpack("<IIQQQQQQ", raw)
                size = memory_bytes if kind == 7 else size  # PT_TLS
            places.append((header.tls_module, size, header.address))
        return 0

    libc.dl_iterate_phdr(callback(look), None)
    module, size, base = places[0]
    if not size:
        return 0, 0, base
    libc.__tls_get_addr.restype = ctypes.c_void_p
    return libc.__tls_get_addr(ctypes.byref(TlsIndex(module, 0))), size, base


def argument_bytes(argument: dict[str, Any], buffers: dict[str, Any]) -> bytes:
    if argument["kind"] == "pointer":
        return struct.pack("<Q", ctypes.addressof(buffers[argument["buffer"]]))
    if argument["kind"] == "scalar":
        return bytes.fromhex(argument["bytes"]).ljust(8, b"\0")
    if argument["kind"] == "null":
        return bytes(8)
    box = [*argument["box"], 1, 1, 1, 1][:4]
    base = ctypes.addressof(buffers[argument["buffer"]])
    sizes = (base, MAP_TAG, len(argument["box"]), argument["element_bytes"], *box)
    return struct.pack("<QQII4I", *sizes).ljust(128, b"\0")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.correctness.second_checker.child", description=__doc__
    )
    parser.add_argument("job", type=Path, metavar="JOB.json")
    path: Path = parser.parse_args().job
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    job = json.loads(path.read_text("utf-8"))
    runtime = ctypes.CDLL(job["runtime"], mode=ctypes.RTLD_GLOBAL)
    runtime.second_judge.restype = ctypes.c_char_p
    library = ctypes.CDLL(job["module"])
    statics, static_bytes, base = static_segment(job["module"])
    clusters = 0
    for problem in job["problems"]:
        buffers = {
            name: ctypes.create_string_buffer(max(size, 1) + 4096)
            for name, size in problem["buffers"].items()
        }
        for launch in problem["launches"]:
            values = [argument_bytes(argument, buffers) for argument in launch["arguments"]]
            # Maps lie at multiples of 64.
            room = ctypes.create_string_buffer(128 * len(values) + 64)
            first = -(-ctypes.addressof(room) // 64) * 64
            for place, value in enumerate(values):
                ctypes.memmove(first + 128 * place, value, len(value))
            addresses = (ctypes.c_void_p * max(len(values), 1))(
                *(first + 128 * place for place in range(len(values)))
            )
            entry = ctypes.cast(getattr(library, f"gf_entry_{launch['entry']}"), ctypes.c_void_p)
            total = math.prod(launch["grid"]) // math.prod(launch["cluster"])
            clusters += min(total, job["clusters"])
            text = runtime.second_judge(
                ctypes.byref(
                    Job(
                        entry.value,
                        ctypes.addressof(addresses),
                        (ctypes.c_uint * 3)(*launch["grid"]),
                        (ctypes.c_uint * 3)(*launch["block"]),
                        (ctypes.c_uint * 3)(*launch["cluster"]),
                        launch["dynamic_bytes"],
                        static_bytes,
                        statics,
                        problem["seed"],
                        job["clusters"],
                    )
                )
            )
            for line in text.decode().splitlines():
                finding = json.loads(line)
                for side in ("site", "other"):
                    finding[side] = finding[side] - base if finding[side] else 0
                print(json.dumps({**finding, "problem": problem["name"]}), flush=True)
            if text:
                return
    print(json.dumps({"done": clusters}), flush=True)


if __name__ == "__main__":
    main()
