// cp.async: nothing is there before the wait, groups land in order, and the rest of a short copy is zero.
#include "device.h"

using namespace gf_emulator;

namespace {

alignas(64) unsigned source[64];
unsigned* shared() { return static_cast<unsigned*>(gf_emulator_dynamic_shared()); }

const Shape shape{1, 1, 1, 256};

void prepare() {
    for (unsigned i = 0; i < 64; i++) source[i] = 1000 + i;
}

}  // namespace

CASE(bytes_land_at_the_wait_and_not_before) {
    prepare();
    run(shape, [] {
        shared()[0] = shared()[3] = 7;
        gf_emulator_async_copy(shared(), source, 16, 16);
        gf_emulator_async_copy_commit();
        SAME(shared()[0], 0xffffffffu);
        gf_emulator_async_copy_wait(1);
        SAME(shared()[3], 0xffffffffu);
        gf_emulator_async_copy_wait(0);
        SAME(shared()[0], 1000u);
        SAME(shared()[3], 1003u);
    });
}

CASE(a_wait_leaves_the_newest_groups_in_flight) {
    prepare();
    run(shape, [] {
        for (unsigned group = 0; group < 4; group++) {
            gf_emulator_async_copy(shared() + 4 * group, source + 4 * group, 16, 16);
            gf_emulator_async_copy_commit();
        }
        for (unsigned left = 4; left-- > 0;) {
            gf_emulator_async_copy_wait(int(left));
            for (unsigned group = 0; group < 4; group++)
                SAME(shared()[4 * group], group < 4 - left ? 1000 + 4 * group : 0xffffffffu);
        }
    });
}

CASE(copies_that_were_not_committed_belong_to_no_group_that_is_waited_for) {
    prepare();
    const Told told = run(shape, [] {
        gf_emulator_async_copy(shared(), source, 4, 4);
        gf_emulator_async_copy_wait(0);
        SAME(shared()[0], 0xffffffffu);
    });
    CLAIM(told.says("async_copy_unwaited") && told.says("\"note\":true"));
}

CASE(what_does_not_exist_of_the_source_becomes_zero) {
    prepare();
    run(shape, [] {
        gf_emulator_async_copy(shared(), source, 16, 8);
        gf_emulator_async_copy(shared() + 4, nullptr, 16, 0);
        gf_emulator_async_copy_commit();
        gf_emulator_async_copy_wait(0);
        SAME(shared()[1], 1001u);
        for (unsigned i = 2; i < 8; i++) SAME(shared()[i], 0u);
    });
}

CASE(the_source_is_read_when_the_copy_lands) {
    prepare();
    run(shape, [] {
        gf_emulator_async_copy(shared(), source, 4, 4);
        gf_emulator_async_copy_commit();
        source[0] = 5;
        gf_emulator_async_copy_wait(0);
        SAME(shared()[0], 5u);
    });
}

CASE(wrong_addresses_and_sizes_are_faults) {
    prepare();
    CLAIM(run(shape, [] { gf_emulator_async_copy(shared() + 1, source, 16, 16); }).says("\"misaligned\""));
    CLAIM(run(shape, [] { gf_emulator_async_copy(shared(), source + 1, 16, 16); }).says("\"misaligned\""));
    CLAIM(run(shape, [] { gf_emulator_async_copy(source + 8, source, 16, 16); }).says("is not in shared memory"));
    CLAIM(run(shape, [] { gf_emulator_async_copy(shared(), source, 8, 12); }).says("8 bytes with 12 valid ones"));
}

CASE(each_threads_groups_are_its_own) {
    prepare();
    run({1, 64, 1, 256}, [] {
        const unsigned me = thread();
        gf_emulator_async_copy(shared() + me, source + me, 4, 4);
        gf_emulator_async_copy_commit();
        barrier();
        if (me % 2) gf_emulator_async_copy_wait(0);
        barrier();
        SAME(shared()[me], me % 2 ? 1000 + me : 0xffffffffu);
        barrier();
        gf_emulator_async_copy_wait(0);
        SAME(shared()[me], 1000 + me);
    });
}
