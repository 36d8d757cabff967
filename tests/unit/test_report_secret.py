"""A report counts only with the job's secret, which native code can neither read nor forge."""

from __future__ import annotations

import platform
import re

import pytest
from emulator_harness import prepared, values
from hostile_library import HostileKernel, blamed

from greenfast.search.targets.emulator import execute as executing
from greenfast.search.targets.emulator.isolation import has_seccomp

pytestmark = [
    pytest.mark.skipif(not has_seccomp(), reason="this kernel filters no system calls"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="addresses of x86-64"),
]


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


FORGE = """
extern "C" long write(int, const void*, unsigned long);
extern "C" __global__ void k(float* out) {
    if (threadIdx.x) return;
    const char line[] = "{\\"secret\\":\\"%s\\",\\"event\\":\\"end\\",\\"run\\":0}\\n";
    for (int f = 0; f < 64; f++) write(f, line, sizeof line - 1); }
"""


def test_a_forged_report_is_not_even_written(emulator, libraries, monkeypatch):
    secret = "0123456789abcdef" * 2
    monkeypatch.setattr(executing.secrets, "token_hex", lambda size: secret[: 2 * size])
    assert blamed(HostileKernel(emulator, FORGE % secret, libraries).once(), "write")


# Where the program's variables and its heap lie, for native code that may read no file. The heap
# begins somewhere above the program: its lowest allocation is the lowest that a variable points to.
MEMORY = """
#include <link.h>
extern "C" void* sbrk(long);
namespace {
using Word = unsigned long;
Word program_end = 0, heap = 0, heap_end = 0;
template <class Visit> int each_writable(dl_phdr_info* info, Word, void* visit) {
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto& segment = info->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_W)) continue;
        const Word from = (info->dlpi_addr + segment.p_vaddr + 7) & ~7ul;
        const Word to = info->dlpi_addr + segment.p_vaddr + segment.p_memsz;
        if (!program_end) program_end = to;
        (*(Visit*)visit)((const char*)from, (const char*)to);
    }
    return 0;
}
template <class Visit> void writable(Visit visit) {
    dl_iterate_phdr(each_writable<Visit>, &visit);
}
void find_heap() {
    heap = heap_end = (Word)sbrk(0);
    writable([](const char* from, const char* to) {
        for (const Word* at = (const Word*)from; at + 1 <= (const Word*)to; at++)
            if (*at > program_end && *at < heap) heap = *at & ~15ul;
    });
}
}
"""
# Counts a text in its own allocations' neighbourhood, in all writable segments of all libraries and
# in the rest of the heap. The text is given in two halves, so that it finds no copy of its own.
SEARCH = """
extern "C" void* malloc(unsigned long);
namespace {
const char first[] = "%s", second[] = "%s";
int found = 0;
__attribute__((optimize("no-tree-vectorize"))) void look(const char* from, const char* to) {
    constexpr int half = sizeof first - 1, other = sizeof second - 1;
    for (; from + half + other <= to; from++) {
        int i = 0;
        while (i < half && from[i] == first[i]) i++;
        if (i < half) continue;
        while (i < half + other && from[i] == second[i - half]) i++;
        found += i == half + other;
    }
}
}
extern "C" __global__ void k(float* out) {
    if (threadIdx.x) return;
    writable(look);
    find_heap();
    look((const char*)heap, (const char*)heap_end);  // the first thread's
    char* own = (char*)malloc(64);
    look((const char*)((unsigned long)own & ~((64ul << 20) - 1)), own);  // this thread's
    out[0] = found;
}
"""


def test_the_secret_is_nowhere_to_be_read(emulator, libraries, monkeypatch):
    secret, tag = "5ec2e7" + "a" * 26, "7a97a9" + "b" * 10
    monkeypatch.setattr(executing.secrets, "token_hex", lambda size: secret if size == 16 else tag)

    def copies(text: str) -> int:
        kernel = HostileKernel(emulator, MEMORY + SEARCH % (text[:5], text[5:]), libraries)
        return int(values(kernel.once(), "out")[0])

    assert copies(tag) > 0, "the search finds what is there"
    assert copies(secret) == 0


# The report object holds the address of the vault's object, in the heap, whose first word is the
# vault's address: native code can follow them.
BREAK_IN = """
extern "C" {
int mprotect(void*, unsigned long, int);
int munmap(void*, unsigned long);
void* mmap(void*, unsigned long, int, int, int, long);
}
namespace {
char* vault = nullptr;
void look(const char* from, const char* to) {
    for (const Word* at = (const Word*)from; at + 1 <= (const Word*)to; at++) {
        if (*at < heap || *at >= heap_end || *at %% 16) continue;
        const Word page = *(const Word*)*at;
        if (page >> 44 >= 1 && page >> 44 < 4 && page %% 4096 == 0) vault = (char*)page;
    }
}
}
extern "C" __global__ void k(float* out) {
    if (threadIdx.x) return;
    find_heap();
    writable(look);
    if (!vault) return;
    %s;
    out[0] = *(volatile char*)vault;
}
"""


@pytest.mark.parametrize(
    ("deed", "call"),
    [
        ("", ""),
        ("mprotect(vault, 4096, 3)", "mprotect"),
        ("mprotect(vault - 4096, 8192, 3)", "mprotect"),
        ("munmap(vault, 4096)", "munmap"),
        ("mmap(vault, 4096, 3, 0x32, -1, 0)", "mmap"),
    ],
)
def test_the_vault_of_the_secret_is_neither_read_nor_opened(emulator, libraries, deed, call):
    result = HostileKernel(emulator, MEMORY + BREAK_IN % deed, libraries).once()
    if call:
        assert blamed(result, call), result
    else:
        assert re.search(r"address 0x[1-3][0-9a-f]{11}, far from", result.faults[0].sentence)
