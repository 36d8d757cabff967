// Buffers between canaries and guard pages.
#include "global_memory.h"


#include "claims.h"

using namespace gf_emulator;

namespace {

BufferSpec buffer(const char* name, std::size_t bytes, BufferSpec::Fill fill = BufferSpec::Fill::poison) {
    BufferSpec spec;
    spec.name = name;
    spec.bytes = bytes;
    spec.fill = fill;
    return spec;
}

}  // namespace

CASE(buffers_begin_aligned_and_hold_what_they_are_filled_with) {
    const std::vector<BufferSpec> specs = {buffer("q", 1000), buffer("k", 1, BufferSpec::Fill::zero), buffer("none", 0),
                                           buffer("v", 4097, BufferSpec::Fill::zero)};
    const GlobalMemory memory(specs);
    for (std::size_t i = 0; i < specs.size(); i++) {
        SAME(std::uintptr_t(memory.address(i)) % GlobalMemory::alignment, 0u);
        const unsigned char want = specs[i].fill == BufferSpec::Fill::zero ? 0 : 0xff;
        for (std::size_t at = 0; at < specs[i].bytes; at++) SAME(int((unsigned char)memory.address(i)[at]), int(want));
    }
    CLAIM(memory.canary_damage().empty());
}

CASE(an_address_belongs_to_the_buffer_that_holds_all_of_it) {
    const std::vector<BufferSpec> specs = {buffer("q", 100), buffer("k", 100)};
    const GlobalMemory memory(specs);
    SAME(memory.buffer_at(memory.address(1), 100), 1u);
    SAME(memory.buffer_at(memory.address(1) + 96, 4), 1u);
    SAME(memory.buffer_at(memory.address(1) + 97, 4), GlobalMemory::none);
    SAME(memory.buffer_at(memory.address(0) - 1, 1), GlobalMemory::none);
    SAME(memory.nearest(memory.address(0) + 200), 0u);
    SAME(memory.nearest(memory.address(1) - 4), 1u);
    SAME(memory.offset_in(1, memory.address(1) + 12), 12);
}

CASE(addresses_beside_a_buffer_are_told_by_its_name_and_distance) {
    const std::vector<BufferSpec> specs = {buffer("q", 100), buffer("k", 100)};
    const GlobalMemory memory(specs);
    SAME(memory.describe(memory.address(0) + 112), "12 bytes past the end of 'q'");
    SAME(memory.describe(memory.address(1) - 8), "8 bytes before the start of 'k'");
    SAME(memory.describe(memory.address(1) + 8), "inside 'k'");
    SAME(memory.describe(&specs), "");
}

CASE(just_behind_a_buffer_is_a_canary_and_then_a_page_that_faults) {
    const std::vector<BufferSpec> specs = {buffer("q", 1000)};
    const GlobalMemory memory(specs);
    CLAIM(memory.accessible(memory.address(0) + 1023) && !memory.accessible(memory.address(0) + 1024));
    CLAIM(memory.accessible(memory.address(0) - 1));
}

CASE(damage_is_found_on_either_side_with_its_distance) {
    const std::vector<BufferSpec> specs = {buffer("q", 1000), buffer("k", 1000)};
    const GlobalMemory memory(specs);
    memory.address(0)[1003] = memory.address(0)[1010] = 1;
    memory.address(1)[-5] = 1;
    const std::vector<CanaryDamage> damage = memory.canary_damage();
    SAME(damage.size(), 2u);
    CLAIM(damage[0].buffer == "q" && !damage[0].before && damage[0].bytes == 2 && damage[0].first_offset == 3);
    CLAIM(damage[1].buffer == "k" && damage[1].before && damage[1].bytes == 1 && damage[1].first_offset == 5);
}

CASE(an_input_that_was_written_is_named) {
    const std::string images(64, 'x');
    constexpr auto image = BufferSpec::Fill::image;
    std::vector<BufferSpec> specs = {buffer("q", 64, image), buffer("k", 64, image)};
    for (BufferSpec& one : specs) one.is_input = true;
    const GlobalMemory memory(specs, images.data());
    SAME(memory.address(0)[63], 'x');
    CLAIM(memory.changed_inputs().empty());
    memory.address(1)[7] = 'y';
    SAME(memory.changed_inputs().size(), 1u);
    SAME(memory.changed_inputs()[0], "k");
}

CASE(what_is_handed_over_is_the_buffer) {
    const std::vector<BufferSpec> specs = {buffer("o", 10, BufferSpec::Fill::zero)};
    const GlobalMemory memory(specs);
    for (int i = 0; i < 10; i++) memory.address(0)[i] = char('a' + i);
    std::string text(11, '.');
    memory.copy_to(&text[0], 0);
    SAME(text, "abcdefghij.");
}
