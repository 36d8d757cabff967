"""Programs of somebody else under `greenfast check`: what they reach, write and record."""

from __future__ import annotations

import json
import os
import resource
import time

import pytest
from slow_cases import quick_first

from greenfast.search.diagnose.host_memory import DeviceMemory
from greenfast.search.diagnose.host_names import entry_of
from greenfast.search.diagnose.host_program import STOPPED, recorded
from greenfast.search.diagnose.host_record import CUT_OFF, MOST_LAUNCHES, RECORD, read_record
from greenfast.search.diagnose.host_steps import Write
from greenfast.search.diagnose.launch_file import ENTRY
from greenfast.search.diagnose.plain import PlainOptions
from greenfast.search.errors import UsageError
from greenfast.search.targets.emulator import host_run

# Each attempt prints its name if it succeeds.
REACH = r"""
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <thread>
#include <unistd.h>
__global__ void k(int* x) { *x = 1; }
int main(int, char** words) {
    const char* const theirs = words[1];
    const int parent = std::atoi(words[2]);
    timeval then[2] = {};
    rlimit none = {0, 0};
    const int kept = open("kept", O_CREAT | O_RDWR, 0600);
    std::printf("reached:");
    if (chmod(theirs, 0) == 0) std::printf(" chmod");
    if (utimes(theirs, then) == 0) std::printf(" utimes");
    if (truncate(theirs, 0) == 0) std::printf(" truncate");
    if (setxattr(theirs, "user.x", "1", 1, 0) == 0) std::printf(" setxattr");
    if (prlimit(parent, RLIMIT_CORE, &none, nullptr) == 0) std::printf(" prlimit");
    if (fork() >= 0) std::printf(" fork");
    if (fallocate(kept, FALLOC_FL_KEEP_SIZE, 0, 3ll << 30) == 0) std::printf(" fallocate");
    if (open(".", O_TMPFILE | O_RDWR, 0600) >= 0) std::printf(" nameless");
    if (rename("kept", "log") == 0) std::printf(" rename");
    if (unlink("log") == 0) std::printf(" unlink");
    if (mkdir("folder", 0700) == 0) std::printf(" mkdir");
    if (mkfifo("pipe", 0600) == 0) std::printf(" mkfifo");
    if (fcntl(kept, F_SETOWN, parent) == 0) std::printf(" owner");
    if (msgctl(0, IPC_RMID, nullptr) == 0) std::printf(" queue");
    std::thread([] { std::printf(" (threads, too)\n"); }).join();
}
"""


@pytest.fixture
def run(tmp_path, emulator_target):
    def run(text: str, *words: str):
        (tmp_path / "program.cu").write_text(text)
        work = tmp_path / "work"
        work.mkdir()
        return recorded(tmp_path / "program.cu", PlainOptions(words=words), emulator_target, work)

    return run


def test_a_program_changes_no_file_process_or_limit_of_ours(run, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_text("kept")
    theirs.chmod(0o640)
    before = theirs.stat()
    limit = resource.getrlimit(resource.RLIMIT_CORE)
    with pytest.raises(UsageError) as refused:
        run(REACH, str(theirs), str(os.getpid()))
    assert "ended with exit code 0 and printed: reached: (threads, too)" in str(refused.value)
    after = theirs.stat()
    assert (after.st_mode, after.st_mtime, after.st_size) == (
        before.st_mode,
        before.st_mtime,
        before.st_size,
    )
    assert resource.getrlimit(resource.RLIMIT_CORE) == limit


LAUNCHED = """
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
__global__ void k(int* x) { *x = 1; }
int main() {
    int* x; cudaMalloc(&x, 4); cudaMemset(x, 0, 4); k<<<1, 1>>>(x);
    BODY
}
"""
LINES = """static char lines[1 << 20]; std::memset(lines, '\\n', sizeof lines);
    int to = open("TO", O_CREAT | O_WRONLY | O_APPEND, 0600);
    for (;;) write(to, lines, sizeof lines);"""


MANY = """for (int i = 0;; ++i) {
        char n[9]; std::sprintf(n, "f%d", i); close(creat(n, 0600));
    }"""
SPARSE = 'for (char n[] = "a"; *n < 100; ++*n) ftruncate(creat(n, 0600), 512 << 20); for (;;);'
WRITTEN = """static char page[1 << 20];
    for (char n[] = "a"; *n < 100; ++*n) {
        int to = creat(n, 0600); for (int i = 0; i < 400; ++i) write(to, page, 1 << 20);
    }
    for (;;);"""


@pytest.mark.parametrize(
    "body", quick_first([MANY, SPARSE, WRITTEN], 1), ids=["many", "sparse", "written"]
)
def test_a_program_that_writes_too_much_is_stopped_and_that_is_said(run, tmp_path, body):
    program = run(LAUNCHED.replace("BODY", body))
    assert STOPPED in program.limits
    sizes = [file.stat().st_size for file in (tmp_path / "work").iterdir()]
    assert len(sizes) > host_run.MOST_FILES or sum(sizes) > host_run.MOST_WRITTEN_BYTES
    assert len(sizes) < 5 * host_run.MOST_FILES and sum(sizes) < 3 * host_run.MOST_WRITTEN_BYTES


@pytest.mark.slow
def test_a_log_of_half_a_gigabyte_is_not_read_into_memory(run):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run(LAUNCHED.replace("BODY", LINES.replace("TO", "log")))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 2**10  # KiB


ALLOCATE = {"event": "allocate", "number": 1, "bytes": 4}
POINTER = {"pointer": 1, "offset": 0, "type": "int"}
LAUNCH = {
    "event": "launch",
    "function": "void k(int*)",
    "names": "x",
    "grid": [1, 1, 1],
    "block": [1, 1, 1],
    "cluster": [1, 1, 1],
    "shared_bytes": 0,
    "template_parameters": 0,
    "arguments": [POINTER],
}


def read(folder, *events):
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    (folder / RECORD).write_text("\n".join(lines) + "\n")
    return read_record(folder, "the program", "it ended")


def launch_of(*arguments, **changes):
    return LAUNCH | {"arguments": list(arguments)} | changes


DAMAGED = {
    "nested": "[" * 100_000,
    "without_pointers": launch_of({"bytes": "00" * 8, "type": "int"}),
    "no_name_and_no_place": launch_of(POINTER, {"pointer": 1, "offset": [], "type": "int"}),
    "pointers_of_null": launch_of({"null": True, "pointers": [{"pointer": 99}], "type": "int"}),
    "two_kinds": launch_of({**POINTER, "bytes": "00" * 8, "pointers": []}),
    "many_arguments": launch_of(*[{"null": True, "type": "int"}] * 100_000),
    "spaces": launch_of(POINTER, function="void k<" + " " * 500_000 + "(int*)"),
    "spaces_behind": launch_of(POINTER, function="void k" + " " * 15_000 + "]"),
    "brackets": launch_of(POINTER, function="void k" + "<>" * 9_000 + "!"),
    "long_name": launch_of(POINTER, function="void " + "k" * 1_000_000 + "(int*)"),
}


@pytest.mark.parametrize("event", DAMAGED.values(), ids=DAMAGED)
def test_a_record_that_is_none_is_refused_in_one_sentence(tmp_path, event):
    begun = time.process_time()
    with pytest.raises(UsageError, match="the program has damaged the record of its launches"):
        read(tmp_path, ALLOCATE, LAUNCH, event)
    assert time.process_time() - begun < 5


def test_more_launches_than_are_written_down_are_damage(tmp_path):
    assert read(tmp_path, ALLOCATE, *[LAUNCH] * MOST_LAUNCHES).steps
    with pytest.raises(UsageError, match="damaged the record"):
        read(tmp_path, ALLOCATE, *[LAUNCH] * (MOST_LAUNCHES + 1))


def test_copies_that_would_take_hours_are_damage(tmp_path):
    sizes = {"bytes": 2**29, "number": 2}
    copy = {"event": "copy", "offset": 0, "from": 2, "from_offset": 0, **sizes}
    with pytest.raises(UsageError, match="damaged the record"):
        read(tmp_path, ALLOCATE, {"event": "allocate", **sizes}, *[copy] * 1000, LAUNCH)


def test_memory_that_is_only_copied_to_counts(tmp_path):
    claimed = {"event": "allocate", "number": 2, "bytes": 2**40}
    copy = {"event": "copy", "number": 2, "offset": 0, "from": 1, "from_offset": 0, "bytes": 4}
    with pytest.raises(UsageError, match="more than 1 GiB of memory"):
        read(tmp_path, ALLOCATE, claimed, copy, LAUNCH)


def test_writes_to_one_buffer_read_its_content_once(tmp_path):
    (tmp_path / "content1").write_bytes(bytes(range(64)))
    content = {"event": "content", "number": 1, "file": "content1"}
    writes = [
        {"event": "write", "number": 1, "offset": at, "bytes": 4} for at in (8, 0, 4, 40, 40, 42)
    ]
    program = read(tmp_path, {**ALLOCATE, "bytes": 64}, *writes, content, LAUNCH)
    (write,) = (step for step in program.steps if isinstance(step, Write))
    assert write.parts == ((0, 12), (40, 46))
    memory = DeviceMemory(program.allocations)
    memory._contents[1] = memory._filled(1)
    memory.write(write)
    assert memory._contents[1].nonzero()[0].tolist() == [*range(1, 12), *range(40, 46)]
    with pytest.raises(UsageError, match="damaged the record"):
        read(tmp_path, {**ALLOCATE, "bytes": 64}, *writes, content, content, LAUNCH)


@pytest.mark.parametrize(
    "filler", quick_first(["\n", "a" * 2**20, ",[]" * 2**18], 1), ids=["lines", "word", "list"]
)
def test_a_record_without_end_is_read_to_a_limit(tmp_path, filler):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    head = json.dumps(ALLOCATE) + "\n" + json.dumps(LAUNCH) + "\n["
    with open(tmp_path / RECORD, "w") as record:
        record.write(head + "0" + filler * (70 * 2**20 // len(filler)))
    assert CUT_OFF in read_record(tmp_path, "the program", "it ended").limits
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600 * 2**10  # KiB


def test_a_program_lists_at_most_some_unsupported_names(tmp_path):
    events = [{"event": "unsupported", "what": f"w{number}"} for number in range(1000)]
    assert len(read(tmp_path, ALLOCATE, LAUNCH, *events).limits) == 20


def test_an_entry_of_spaces_is_read_at_once():
    begun = time.process_time()
    assert not ENTRY.match("k<" + " " * 3900)
    assert not ENTRY.match("k" + " " * 3900 + "!")
    assert ENTRY.match("ns::foo<float, 4> (int*, int) ")
    assert entry_of("void k(T*)" + " " * 20_000 + "[with T = float]", 1) == "k<float>"
    assert time.process_time() - begun < 5
