// The read-only path: `__ldg` and ld.global.nc. Such a load may take its bytes from a cache that no store and no fence
// refreshes, and the compiler may make it earlier, later or again. Its bytes therefore have a value only where nobody
// writes them during the launch (PTX ISA, "ld.global.nc"; CUDA C++ Programming Guide, "Read-Only Data Cache Load
// Function"). A race's order does not help: a write before or behind the load, also the own thread's, is a finding.
#include "checker.h"
#include "worker.h"

namespace gf_emulator {

namespace {

constexpr const char* written_before =
    "async:through the read-only path (__ldg), but {other} has changed them in the same launch: the load may give the old "
    "value";
constexpr const char* read_before =
    "async:but {other} in the same launch goes through the read-only path (__ldg), which is for bytes that nobody writes "
    "during the launch";

constexpr const char* promised_before =
    "async:through a parameter that is const and __restrict__, so the load may go through the read-only path "
    "(ld.global.nc), but {other} has changed them in the same launch: the load may give the old value";
constexpr const char* promised_then =
    "async:but {other} in the same launch goes through a parameter that is const and __restrict__: the compiler may use "
    "the read-only path (ld.global.nc), which is for bytes that nobody writes during the launch";
constexpr const char* promised_written =
    "async:through a parameter that is const and __restrict__, while another parameter points to the same buffer";

}  // namespace

bool GlobalShadow::reads_only(std::size_t buffer, std::size_t word, unsigned bytes, const ReadOnlyLoad& load,
                              Earlier& earlier) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::uint32_t at = opened(buffer).first[word]; at; at = touches_[at].next) {
        const GlobalTouch& touch = touches_[at];
        if (!writes(touch.action()) || !(touch.bytes() & bytes)) continue;
        const unsigned lane = unsigned(__builtin_ctz(touch.lanes));
        earlier = {touch.block, touch.warp() * 32 + lane, touch.site, touch.action(), false, false, false};
        return true;
    }
    if (read_only_.size() < most_read_only_words) {
        const auto [first, is_first] = read_only_.try_emplace({buffer, word}, load);
        if (is_first)
            first->second.bytes = bytes;
        else
            first->second.bytes |= bytes;
        any_read_only_.store(true, std::memory_order_relaxed);
    }
    return false;
}

bool GlobalShadow::writes_read_only(std::size_t buffer, std::size_t word, unsigned bytes, Earlier& earlier,
                                    bool& by_parameter) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto load = read_only_.find({buffer, word});
    if (load == read_only_.end() || !(load->second.bytes & bytes)) return false;
    earlier = {load->second.block, load->second.thread, load->second.site, Action::read, false, false, false};
    by_parameter = load->second.by_parameter;
    return true;
}

// Before the load, whose own hook follows and looks for everything else.
void Checker::reads_only(const void* address, unsigned bytes, const void* site) {
    if (!running_ || !*running_) return;
    const Launch& launch = block_.worker().launch();
    const char* const first = static_cast<const char*>(address);
    if (local_.contains(address, 1) || block_.worker().cluster().owner_of(address, 1))
        block_.worker().fail("device_fault", site,
                             format("%u bytes that lie in no global memory are read through the read-only path (__ldg)", bytes));
    settle();
    const Running running{**running_, Action::read, site};
    const std::size_t buffer = launch.global->contains(address) ? launch.global->buffer_at(address, bytes) : GlobalMemory::none;
    if (buffer != GlobalMemory::none) {
        if (launch.global_shadow->watches(buffer))
            reads_only(buffer, "global:" + launch.global->name(buffer), std::size_t(first - launch.global->address(buffer)),
                       bytes, running, false);
        return;
    }
    const ModuleMemory::Object* object = launch.module->contains(address) ? launch.module->object_at(address) : nullptr;
    if (object && object->kind == ModuleMemory::Kind::device && object->holds(first, bytes))
        reads_only(launch.global_shadow->number_of(*object), "device:" + object->name, std::size_t(first - object->begin), bytes,
                   running, false);
}

void Checker::reads_only(std::size_t number, const std::string& memory, std::size_t offset, unsigned bytes,
                         const Running& running, bool by_parameter) {
    GlobalShadow& shadow = *block_.worker().launch().global_shadow;
    const GlobalShadow::ReadOnlyLoad load{index_, running.fiber.thread, offset_of(running.site), 0, by_parameter};
    const std::size_t end = offset + bytes;
    for (std::size_t begin = offset; begin < end;) {
        const std::size_t word = begin / 4, stop = std::min(end, word * 4 + 4);
        const unsigned mask = ((1u << (stop - begin)) - 1u) << begin % 4;
        GlobalShadow::Earlier earlier;
        if (shadow.reads_only(number, word, mask, load, earlier))
            findings().add({"read_only_path", memory, long(begin), bytes, party(running), party_of(earlier),
                            by_parameter ? promised_before : written_before});
        begin = stop;
    }
}

void Checker::writes_read_only(std::size_t number, const std::string& memory, std::size_t offset, unsigned bytes,
                               std::size_t word, unsigned mask, const Running& running) {
    GlobalShadow::Earlier earlier;
    bool by_parameter = false;
    if (block_.worker().launch().global_shadow->writes_read_only(number, word, mask, earlier, by_parameter))
        findings().add({"read_only_path", memory, long(offset), bytes, party(running), party_of(earlier),
                        by_parameter ? promised_then : read_before});
}

// A parameter that is const and __restrict__, of a buffer that another argument reaches as well, points to a copy that
// was made when the launch began: what the read-only path may give.
void Checker::reads_promised(std::size_t copy, std::size_t offset, unsigned bytes, const Running& running) {
    const Launch& launch = block_.worker().launch();
    const std::size_t buffer = launch.global->copied(copy);
    const std::string memory = "global:" + launch.global->name(buffer);
    if (writes(running.action)) {
        findings().add({"read_only_path", memory, long(offset), bytes, party(running), {}, promised_written});
        return;
    }
    if (launch.global_shadow->may_start_early()) meets_last_launch(buffer, memory, offset, bytes, running);
    for (std::size_t begin = offset, end = offset + bytes; begin < end;) {
        const std::size_t word = begin / 4, stop = std::min(end, word * 4 + 4);
        const unsigned mask = ((1u << (stop - begin)) - 1u) << begin % 4;
        if (!launch.global_shadow->written(buffer, word, mask, false))
            findings().add({"uninitialised", memory, long(begin), unsigned(stop - begin), party(running)});
        begin = stop;
    }
    reads_only(buffer, memory, offset, bytes, running, true);
}

}  // namespace gf_emulator

using namespace gf_emulator;

#pragma GCC visibility push(default)
extern "C" void gf_emulator_reads_only(const void* address, unsigned bytes) {
    if (Checker* checker = Checker::active()) checker->reads_only(address, bytes, __builtin_return_address(0));
}
#pragma GCC visibility pop
