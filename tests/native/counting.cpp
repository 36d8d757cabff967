// What a counted run counts: wavefronts of shared memory, sectors of global memory, and events.
#include "device.h"

extern "C" {
void __tsan_read4(void* address);
void __tsan_read8(void* address);
void __tsan_read16(void* address);
void __tsan_write4(void* address);
}

using namespace gf_emulator;

namespace {

char* shared() { return static_cast<char*>(gf_emulator_dynamic_shared()); }

// One access of each lane of a warp to shared memory, at `place(lane)` bytes from its start.
SiteTotals shared_access(unsigned bytes, const std::function<unsigned(unsigned)>& place, unsigned lanes = 32) {
    Shape shape{1, lanes, 1, 1 << 16};
    shape.count = true;
    return run(shape, [&] {
        char* address = shared() + place(thread());
        bytes == 4 ? __tsan_read4(address) : bytes == 8 ? __tsan_read8(address) : __tsan_read16(address);
    }).counted[Access::shared_read];
}

SiteTotals global_access(const std::function<unsigned(unsigned)>& place) {
    std::vector<BufferSpec> buffers(1);
    buffers[0].name = "x";
    buffers[0].bytes = 1 << 16;
    char* first = nullptr;
    Shape shape;
    shape.count = true;
    return run(shape, [&] { __tsan_read4(first + place(thread())); }, buffers, [&](const GlobalMemory& memory) {
        first = memory.address(0);
    }).counted[Access::global_read];
}

}  // namespace

CASE(neighbouring_words_are_one_wavefront) {
    const SiteTotals totals = shared_access(4, [](unsigned lane) { return 4 * lane; });
    SAME(totals.instructions, 1u);
    SAME(totals.bytes, 128u);
    SAME(totals.wavefronts, 1u);
    SAME(totals.wavefronts_ideal, 1u);
}

CASE(words_of_one_bank_are_a_wavefront_each) {
    for (unsigned stride : {2u, 4u, 8u, 16u, 32u, 33u, 31u, 3u}) {
        unsigned ways = 1;
        for (unsigned common = stride; common % 2 == 0 && ways < 32; common /= 2) ways *= 2;
        SAME(shared_access(4, [=](unsigned lane) { return 4 * stride * lane; }).wavefronts, ways);
    }
}

CASE(a_word_that_all_lanes_read_is_one_wavefront) {
    SAME(shared_access(4, [](unsigned) { return 40u; }).wavefronts, 1u);
    SAME(shared_access(4, [](unsigned lane) { return lane < 16 ? 0u : 128u; }).wavefronts, 2u);     // of one bank
}

CASE(wide_accesses_go_in_phases_of_128_bytes) {
    SAME(shared_access(16, [](unsigned lane) { return 16 * lane; }).wavefronts, 4u);
    SAME(shared_access(8, [](unsigned lane) { return 8 * lane; }).wavefronts, 2u);
    const SiteTotals rows = shared_access(16, [](unsigned lane) { return 128 * lane; });
    SAME(rows.wavefronts, 32u);
    SAME(rows.wavefronts_ideal, 4u);
    // Rows of 128 bytes, each row's 16-byte chunks exchanged by its number: no phase meets a bank twice.
    SAME(shared_access(16, [](unsigned lane) { return 128 * lane + 16 * (lane % 8); }).wavefronts, 4u);
}

CASE(sectors_are_32_bytes_of_global_memory) {
    const SiteTotals neighbours = global_access([](unsigned lane) { return 4 * lane; });
    SAME(neighbours.sectors, 4u);
    SAME(neighbours.sectors_ideal, 4u);
    SAME(global_access([](unsigned lane) { return 32 * lane; }).sectors, 32u);
    SAME(global_access([](unsigned lane) { return 4 * lane + 4; }).sectors, 5u);
    SAME(global_access([](unsigned) { return 12u; }).sectors, 1u);
}

CASE(lanes_that_are_not_there_are_not_counted) {
    const SiteTotals totals = shared_access(4, [](unsigned lane) { return 128 * lane; }, 5);
    SAME(totals.bytes, 20u);
    SAME(totals.wavefronts, 5u);
}

CASE(the_same_line_in_a_loop_is_an_access_each_turn) {
    Shape shape{2, 64, 1, 4096};
    shape.count = true;
    SiteTotals totals = run(shape, [] {
        for (int turn = 0; turn < 5; turn++) __tsan_write4(shared() + 4 * thread());
    }).counted[Access::shared_write];
    SAME(totals.instructions, 2u * 2 * 5);
    SAME(totals.wavefronts, 2u * 2 * 5);
}

CASE(events_are_counted_by_block_warp_and_byte) {
    static char source[512];
    Shape shape{3, 64, 1, 4096};
    shape.count = true;
    const Told told = run(shape, [] {
        barrier();
        barrier();
        gf_emulator_async_copy(shared() + 8 * thread(), source + 8 * thread(), 8, 8);
        gf_emulator_async_copy_commit();
        gf_emulator_async_copy_wait(0);
        gf_emulator_special_function();
        gf_emulator_printf();
    });
    SAME(told.events.barriers, 6u);
    SAME(told.events.async_copy_bytes, 3u * 64 * 8);
    SAME(told.events.special_functions, 3u * 64);
    SAME(told.events.printfs, 3u * 64);
}
