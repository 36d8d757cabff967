"""The shipped sets and a driver that runs nothing, for tests of greenfast/runtime."""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import subprocess
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from greenfast.runtime import driver as driver_module
from greenfast.runtime.tuned import FOLDER

STUB = Path(__file__).parent / "runtime_stub" / "libcuda_stub.cpp"
SETS = FOLDER
# Six recorded winners for bf16 and D = 64: small, and the same whatever is shipped.
RECORDED = Path(__file__).parent.parent / "data" / "attention_set_recorded.zip"
ATTENTION_WORDS = 22  # arguments of a launch of its kernels


class Stub:
    """The built library: what was launched on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))
        self.library.stub_entry.restype = ctypes.c_char_p
        self.library.stub_memsets.restype = ctypes.c_uint64

    def reset(self, arguments: int, *, refuse: bool = False) -> None:
        """Forget all launches; `arguments` of each later one are read."""
        self.library.stub_reset(arguments, int(refuse))
        self.library.stub_enter()

    def leave(self) -> None:
        """As a thread that has no context yet."""
        self.library.stub_leave()

    def launches(self) -> list[dict[str, object]]:
        rows = []
        for number in range(self.library.stub_launches()):
            words = (ctypes.c_uint64 * 64)()
            self.library.stub_launch(number, words)
            values = list(words)
            rows.append(
                {
                    "entry": self.library.stub_entry(number).decode(),
                    "grid": tuple(values[:3]),
                    "block": tuple(values[3:6]),
                    "smem": values[6],
                    "stream": values[7],
                    "arguments": values[8:],
                }
            )
        return rows

    @property
    def memsets(self) -> int:
        return int(self.library.stub_memsets())


def built_stub(folder: Path) -> Stub:
    path = folder / f"libcuda_{hashlib.sha256(STUB.read_bytes()).hexdigest()[:12]}.so"
    if not path.is_file():
        command = ["g++", "-std=c++17", "-shared", "-fPIC", "-O1", "-o", str(path), str(STUB)]
        subprocess.run(command, check=True)
    return Stub(path)


def use(stub: Stub, monkeypatch) -> None:
    """Make `stub` the driver of this process until the test ends."""
    monkeypatch.setenv(driver_module.LIBRARY_VARIABLE, str(stub.path))
    forget_driver()


def use_for_attention(stub: Stub, monkeypatch) -> Stub:
    """The same, with launches that have the arguments of attention's kernels."""
    use(stub, monkeypatch)
    stub.reset(ATTENTION_WORDS)
    return stub


def forget_driver() -> None:
    from greenfast.runtime import calls, modules

    driver_module.driver.cache_clear()
    driver_module.device_facts.cache_clear()
    calls.MODULES = modules.MODULES = modules.Modules()


def files_of(name: str) -> dict[str, bytes]:
    """The files of a shipped set, in a new dictionary."""
    return dict(_unpacked(name))


@cache
def _unpacked(name: str) -> dict[str, bytes]:
    with zipfile.ZipFile(SETS / name) as packed:
        return {entry: packed.read(entry) for entry in packed.namelist()}


def sealed(files: Mapping[str, bytes], **changes: object) -> dict[str, bytes]:
    """The files with a manifest that lists them as they are, and `changes` to the manifest."""
    manifest = json.loads(files["manifest.json"]) | changes
    rest = {name: data for name, data in files.items() if name != "manifest.json"}
    manifest["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in rest.items()}
    return {**rest, "manifest.json": json.dumps(manifest).encode()}


def zipped(path: Path, files: Mapping[str, bytes]) -> Path:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:  # stored: deflating a set takes half a second
        for name, data in files.items():
            packed.writestr(name, data)
    path.write_bytes(buffer.getvalue())
    return path
