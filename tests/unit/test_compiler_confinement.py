"""A source is a program for its compilers, too: it reads and writes only its own build."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from emulator_harness import Kernel, prepared

from greenfast.search.confinement import landlock_version
from greenfast.search.cpu_time import Deadline
from greenfast.search.diagnose.brought import _lines_with_includes
from greenfast.search.digest import text_digest
from greenfast.search.errors import Fault
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource
from greenfast.search.targets.emulator import compiler_process
from greenfast.search.targets.emulator.build import (
    EmulatorBuild,
    Module,
    ModuleFailed,
    _no_full_disk,
)
from greenfast.search.targets.emulator.compiler_folders import compiler_folders
from greenfast.search.targets.emulator.compiler_process import (
    COMPILER_FILE_BYTES,
    WORK_BYTES,
    Confinement,
    run_compiler,
)
from greenfast.search.toolchain import CompileFailed, Cubin, Toolchain
from greenfast.search.verdict import Reason

needs_landlock = pytest.mark.skipif(
    not landlock_version(), reason="this kernel has no Landlock: files stay open"
)
SECRET = "canary_4711"
KERNEL = 'extern "C" __global__ void k(float* out) { out[0] = 1.0f; }\n'

# Each reads the file PATH and contains no word that the check of the text knows.
PASTE = "#define P(a, b) a##b\n#define Q(x) #x\n#define R(x) Q(x)\n"
HIDDEN = {
    "has_include": PASTE + '#if P(__has_, include)("PATH")\nint exists = ;\n#endif\n',
    "has_include_next": PASTE + '#if P(__has_, include_next)("PATH")\nint exists = ;\n#endif\n',
    "incbin": PASTE + 'asm(R(.P(inc, bin)) " \\"PATH\\"");\n',
    "assembler_include": PASTE + 'asm(R(.P(inc, lude)) " \\"PATH\\"");\n',
    "quoted_line": '#line 1 "PATH"\nint error = ;\n',  # g++ shows that line of the named file
    "dependency": '#define D(x) _Pragma(#x)\nD(GCC dependency "PATH")\n',
}
# Each is refused with one sentence, before a compiler starts.
PLAIN = {
    "absolute": '#include "PATH"',
    "angled": "#include <PATH>",
    "next": "#include_next <PATH>",
    "parent": '#include "../../../PATH"',
    "below_a_known_folder": "#include <cuda/../../../PATH>",
    "macro": '#define FILE "PATH"\n#include FILE',
    "digraph": '%:include "PATH"',
    "spliced": '#inc\\\nlude "PATH"',
    "after_a_comment": '/* two\nlines */ # /**/ include "PATH"',
    "condition": '#if 0\n#elif __has_include("PATH")\n#endif',
    "macro_of_a_condition": "#define HAS(x) __has_include(x)",
    "embed": 'const char data[] = {\n#embed "PATH"\n};',
    "incbin": 'asm(".incbin \\"PATH\\"");',
    "incbin_in_pieces": 'asm(".inc" "bin \\"PATH\\"");',
    "capitals": 'asm(".INCBIN \\"PATH\\"");',
    "pragma": '#pragma GCC dependency "PATH"',
}


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


@pytest.fixture
def secret(tmp_path) -> Path:
    (tmp_path / "secret").write_text(SECRET)
    return tmp_path / "secret"


def _source(text: str) -> RenderedSource:
    lines = tuple(Line("evil/kernel.cu.j2", number) for number in range(1, text.count("\n") + 1))
    return RenderedSource(text, text_digest(text), lines, text, ("k",), False)


def _built(emulator: EmulatorBuild, text: str, *, is_examined: bool = False):
    """Without the examination of the text, which refuses most attacks before they are compiled."""
    return emulator.build_module(
        text + KERNEL, ("k",), flavour="plain", deadline_s=60, is_examined=is_examined
    )


def _allowing(emulator: EmulatorBuild, *paths: str) -> Confinement:
    """The compiler's confinement, for another program that needs these paths."""
    own = emulator.library_compiler.confinement("plain")
    return replace(own, readable=(*own.readable, *paths))


def _is_missing(log: str) -> bool:
    """Whether the assembler of g++, or clang's, reports that there is no such file."""
    return "Error: file not found: " in log or "error: Could not find incbin file" in log


@needs_landlock
@pytest.mark.parametrize("attack", HIDDEN)
def test_the_host_compiler_neither_reads_a_file_nor_tells_whether_it_exists(
    emulator, secret, attack
):
    existing = _built(emulator, HIDDEN[attack].replace("PATH", str(secret)))
    missing = _built(emulator, HIDDEN[attack].replace("PATH", str(secret.parent / "nosuch")))
    logs = [built.log if isinstance(built, ModuleFailed) else "" for built in (existing, missing)]
    assert type(existing) is type(missing)
    assert logs[0].replace("/secret", "/FILE") == logs[1].replace("/nosuch", "/FILE")
    assert SECRET not in logs[0] and "Permission" not in logs[0]
    if not isinstance(existing, ModuleFailed):
        assert SECRET.encode() not in existing.path.read_bytes()


@needs_landlock
@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/proc/self/environ", "/proc/{parent}/environ", "/proc/{parent}/maps"]
)
def test_the_host_compiler_has_no_file_of_the_system_or_of_another_process(emulator, path):
    path = path.format(parent=os.getpid())
    assert Path(path).exists()
    built = _built(emulator, HIDDEN["incbin"].replace("PATH", path))
    assert isinstance(built, ModuleFailed) and _is_missing(built.log)


@needs_landlock
def test_another_candidates_library_is_out_of_reach(emulator):
    other = Kernel(emulator, KERNEL).module.path
    built = _built(emulator, HIDDEN["incbin"].replace("PATH", str(other)))
    assert isinstance(built, ModuleFailed) and _is_missing(built.log)


@needs_landlock
def test_a_program_under_the_launcher_writes_below_the_work_folder_only(emulator, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "kept").write_text("kept")
    tries = (
        f"true > {tmp_path}/new; true > {tmp_path}/kept; rm {tmp_path}/kept; "
        f"mv {tmp_path}/kept here; "
        f"ln -s {tmp_path}/kept link; kill -0 {os.getpid()} && echo signalled; true > inside"
    )
    shell = _allowing(emulator, "/usr/bin", "/bin")
    failed = run_compiler(["/bin/sh", "-c", tries], work, Deadline.of(5.0), shell)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "work"]
    assert (tmp_path / "kept").read_text() == "kept"
    assert sorted(path.name for path in work.iterdir()) == ["inside", "log"]
    assert failed is None and "signalled" not in (work / "log").read_text()


def test_a_program_under_the_launcher_has_no_network(emulator, tmp_path):
    python = Path(sys.executable).resolve()
    allowed = _allowing(emulator, "/")
    tries = "import socket; socket.socket()"
    failed = run_compiler([str(python), "-S", "-c", tries], tmp_path, Deadline.of(5.0), allowed)
    assert failed is not None and "PermissionError" in failed.log


def test_an_output_beyond_the_quota_ends_the_compile_and_leaves_nothing(emulator):
    before = _kept(emulator)
    for bytes_each, pieces in ((2 * COMPILER_FILE_BYTES, 1), (COMPILER_FILE_BYTES // 2, 4)):
        begin = time.process_time()
        fill = "".join(
            f'asm(".pushsection .data; .fill {bytes_each}, 1, 7; .popsection");\n'
            for _ in range(pieces)
        )
        built = _built(emulator, fill)
        assert isinstance(built, ModuleFailed), bytes_each
        assert built.reason in ("memory", "crash"), built.log
        assert time.process_time() - begin < 5.0
    assert _kept(emulator) == before


def _kept(emulator):
    """The emulator's files, without the work folders of other tests' processes."""
    return sorted(
        path for path in emulator.folder.iterdir() if not path.name.startswith(".module-")
    )


def test_many_small_files_are_one_quota(emulator, tmp_path):
    writes = "i=0; while :; do head -c 8000000 /dev/zero > f$i; i=$((i+1)); done"
    shell = _allowing(emulator, "/usr/bin", "/bin", "/dev")
    failed = run_compiler(["/bin/sh", "-c", writes], tmp_path, Deadline.of(20.0), shell)
    assert failed is not None and failed.reason == "memory"
    assert f"more than {WORK_BYTES >> 20} MiB" in failed.log


def test_a_failure_on_a_full_disk_is_no_verdict_on_the_source(emulator, monkeypatch):
    """Where the disk is full, not even the compiler's message can be written."""
    more_than_any_disk = 2**62
    monkeypatch.setattr(compiler_process, "LEAST_SPACE_BYTES", more_than_any_disk)
    assert isinstance(_built(emulator, "// another text\n"), Module)
    with pytest.raises(Fault, match="is full, so nothing can be compiled") as full:
        _built(emulator, "no C++\n")
    assert full.value.code == "disk_full"
    with pytest.raises(Fault, match="is full"), _no_full_disk(Path("/")):
        Path("/dev/full").write_text("x")


def test_the_launcher_returns_the_status_or_signal_of_its_program(emulator, tmp_path):
    shell = _allowing(emulator, "/usr/bin", "/bin")
    for script, reason in (("exit 3", "compile"), ("kill -SEGV $$", "crash"), ("exit 0", None)):
        failed = run_compiler(["/bin/sh", "-c", script], tmp_path, Deadline.of(5.0), shell)
        assert (failed and failed.reason) == reason


@pytest.mark.parametrize(
    "end",
    [
        "kill -KILL $$",
        "kill -TERM $$",
        "echo 'g++: fatal error: Killed signal terminated program cc1plus'; exit 1",
        "echo 'collect2: fatal error: ld terminated with signal 9 [Killed]'; exit 1",
        "echo 'clang++: error: unable to execute command: Killed'; exit 254",
    ],
)
def test_a_compiler_that_is_killed_from_outside_runs_again(emulator, tmp_path, end):
    shell = _allowing(emulator, "/usr/bin", "/bin")
    once = f"test -e begun && exit 0; true > begun; {end}"
    assert run_compiler(["/bin/sh", "-c", once], tmp_path, Deadline.of(5.0), shell) is None
    failed = run_compiler(["/bin/sh", "-c", end], tmp_path, Deadline.of(5.0), shell)
    assert failed is not None and failed.reason == "crash"
    assert failed.log.startswith("error: the compiler was killed twice")
    quoted = f"echo 'kernel.cu:1:2: error: Killed signal terminated program x'; {once}; exit 1"
    quoted = quoted.replace(end, "exit 1")
    (tmp_path / "begun").unlink()
    failed = run_compiler(["/bin/sh", "-c", quoted], tmp_path, Deadline.of(5.0), shell)
    assert failed is not None and failed.reason == "crash" and "twice" not in failed.log


def test_the_folders_of_a_compiler_that_is_killed_are_not_taken_for_none(tmp_path):
    """They are kept; without its headers, every later text would fail to compile."""
    compiler, real = tmp_path / "compiler", shutil.which("g++") or "clang++"
    kill = f"test -e {tmp_path}/begun$2 || {{ true > {tmp_path}/begun$2; kill -KILL $$; }}"
    compiler.write_text(f'#!/bin/sh\n{kill}\nexec {real} "$@"\n')
    compiler.chmod(0o755)
    assert {*compiler_folders(real)} <= {*compiler_folders(str(compiler)), real}
    compiler.write_text("#!/bin/sh\nkill -KILL $$\n")
    compiler_folders.cache_clear()
    with pytest.raises(Fault, match="was killed before it answered") as lost:
        compiler_folders(str(compiler))
    assert lost.value.code == "child_lost"


def test_a_program_under_the_launcher_keeps_a_lower_limit_of_its_caller(emulator, tmp_path):
    shell = _allowing(emulator, "/usr/bin", "/bin")
    command = shell.command(tmp_path, Deadline.of(5.0))
    script = 'ulimit -v 1000000 -f 1000 -t 3; exec "$@"'
    ended = subprocess.run(
        ["/bin/bash", "-c", script, "sh", *command, "/bin/bash", "-c", "ulimit -v -f -t"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line.split()[-1] for line in ended.stdout.splitlines()] == ["1000000", "1000", "3"]


def test_no_folder_of_users_is_the_compilers(emulator):
    folders = compiler_folders(emulator.compiler.path)
    assert any(path.endswith("cc1plus") for path in folders)
    for forbidden in ("/", "/etc", "/home", "/root", "/proc", "/tmp", "/var", "/usr", "/opt"):
        assert forbidden not in folders


@pytest.mark.parametrize("attack", PLAIN)
def test_an_include_of_another_file_is_refused_with_its_line(toolchain, emulator, secret, attack):
    text = f"int before;\n{PLAIN[attack]}\n".replace("PATH", str(secret))
    failed = toolchain.compile(_source(text + KERNEL), "sm_90")
    assert isinstance(failed, CompileFailed) and failed.reason is Reason.COMPILE_ERROR
    line = {"macro": 3, "condition": 3, "embed": 3, "after_a_comment": 2}.get(attack, 2)
    assert failed.sentence.startswith(f"evil/kernel.cu.j2({line}): error: ")
    assert "; " in failed.sentence and SECRET not in failed.log
    built = _built(emulator, text)
    assert isinstance(built, ModuleFailed) and built.log.startswith(f"kernel.cu({line}): error: ")


def test_honest_includes_are_compiled(toolchain, emulator):
    text = (
        "#include <cuda_fp16.h>\n#include <mma.h>\n#include <cuda_runtime.h>\n"
        "#if defined(__has_include) && __has_include(<cuda_bf16.h>)\n"
        "#include <cuda_bf16.h>\n#endif\n"
        "#ifndef __CUDACC_RTC__\n#include <iostream>\n#endif\n"
        '// #include "/etc/passwd"\n/* #embed "x" */\n'
    )
    assert isinstance(toolchain.compile(_source(text + KERNEL), "sm_90"), Cubin)
    built = _built(emulator, text.replace("<iostream>", "<cmath>"), is_examined=True)
    assert not isinstance(built, ModuleFailed)


def test_a_users_file_includes_files_beside_it_and_no_others(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (tmp_path / "secret.h").write_text(f"// {SECRET}\n")
    (folder / "helper.h").write_text("int helper;\n")
    absolute = f'#include "{tmp_path}/secret.h"\n'
    (folder / "a.cu").write_text(f'#include "helper.h"\n#include "../secret.h"\n{absolute}')
    lines = [text for text, _ in _lines_with_includes(folder / "a.cu", {})]
    assert lines == ["int helper;", '#include "../secret.h"', absolute.strip()]


@needs_landlock
def test_nvrtc_neither_reads_a_file_nor_tells_whether_it_exists(toolchain, secret, monkeypatch):
    monkeypatch.setattr("greenfast.search.toolchain.nvrtc.refused_include", lambda *_: "")
    parent = f"/proc/{os.getpid()}/environ"
    for shape in ('#include "PATH"\n', '#if __has_include("PATH")\nint exists = ;\n#endif\n'):
        outcomes = set()
        for path in (str(secret), "/etc/passwd", "/etc", parent, "/proc/self/environ", "/no/such"):
            compiled = toolchain.compile(_source(shape.replace("PATH", path) + KERNEL), "sm_90")
            log = compiled.log if isinstance(compiled, CompileFailed) else "compiled"
            assert SECRET not in log and "root:" not in log and "Permission" not in log
            digest = _source(shape.replace("PATH", path) + KERNEL).digest[:16]
            outcomes.add(log.replace(path, "FILE").replace(digest, "")[:200].split("^")[0].strip())
        assert len(outcomes) == 1, outcomes


def test_nvrtc_does_not_read_the_folder_that_greenfast_runs_in(tmp_path, monkeypatch):
    (tmp_path / "cuda_mine.h").write_text(f"#error {SECRET}\n")  # a name that the check allows
    monkeypatch.chdir(tmp_path)
    toolchain = Toolchain(tmp_path / "cache", 1)
    failed = toolchain.compile(_source('#include "cuda_mine.h"\n' + KERNEL), "sm_90")
    toolchain.close()
    assert isinstance(failed, CompileFailed) and SECRET not in failed.log


@pytest.mark.slow
def test_a_kernel_of_many_megabytes_is_a_verdict(toolchain):
    text = "__device__ char block[17 << 20] = {1};\n" + KERNEL.replace("1.0f", "block[3]")
    failed = toolchain.compile(_source(text), "sm_90")
    assert isinstance(failed, CompileFailed) and failed.reason is Reason.COMPILE_MEMORY
    assert "it may take" in failed.sentence


def test_the_folder_of_the_compilers_passes_is_readable(emulator):
    """The linker's plugin lies there, on some systems apart from the headers' folder."""
    question = [emulator.compiler.path, "-print-prog-name=cc1plus"]
    passes = subprocess.run(question, capture_output=True, text=True, check=True).stdout.strip()
    if emulator.compiler.kind == "g++":
        assert os.path.normpath(Path(passes).parent) in compiler_folders(emulator.compiler.path)
