#include "run.h"

#include <algorithm>
#include <ctime>
#include <dlfcn.h>
#include <link.h>
#include <memory>

#include "findings.h"
#include "global_shadow.h"
#include "memory_map.h"

namespace gf_emulator {

namespace {

double seconds(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

Entry find_entry(void* module, const std::string& name) {
    void* symbol = dlsym(module, ("gf_entry_" + name).c_str());
    if (!symbol) give_up(("no entry " + name).c_str());
    return reinterpret_cast<Entry>(symbol);
}

const void* base_of(void* code) {
    Dl_info info;
    if (!dladdr(code, &info)) give_up("dladdr");
    return info.dli_fbase;
}

// The end of the kernel library's image in memory.
const void* end_of(const void* base) {
    std::pair<std::uintptr_t, std::uintptr_t> module{std::uintptr_t(base), 0};
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& found = *static_cast<std::pair<std::uintptr_t, std::uintptr_t>*>(data);
            if (info->dlpi_addr != found.first) return 0;
            for (int i = 0; i < info->dlpi_phnum; i++)
                if (info->dlpi_phdr[i].p_type == PT_LOAD)
                    found.second = std::max<std::uintptr_t>(
                        found.second, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
            return 1;
        },
        &module);
    return reinterpret_cast<const void*>(module.second);
}

// Argument values as cuLaunchKernel takes them: one address each.
struct Arguments {
    std::vector<std::uint64_t> values;
    std::vector<void*> addresses;

    Arguments(const std::vector<ArgumentSpec>& specs, const GlobalMemory& memory) {
        for (const ArgumentSpec& spec : specs) {
            const bool in_buffer = spec.is_pointer && spec.buffer >= 0;
            const std::uint64_t base =
                in_buffer ? reinterpret_cast<std::uint64_t>(memory.address(std::size_t(spec.buffer))) : 0;
            values.push_back(base + spec.value);
        }
        for (std::uint64_t& value : values) addresses.push_back(&value);
    }
};

struct BlockCount {
    std::uint64_t total = 0, executed = 0;
};

void run_launch(WorkerPool& pool, void* module, const RunSpec& run, const LaunchSpec& spec,
                Arguments& arguments, const GlobalMemory& memory, GlobalShadow* shadow, BlockCount& blocks) {
    Launch launch;
    launch.entry = find_entry(module, spec.entry);
    launch.module_base = base_of(reinterpret_cast<void*>(launch.entry));
    report().module_base(launch.module_base);
    launch.arguments = arguments.addresses.data();
    launch.grid = spec.grid;
    launch.block = spec.block;
    launch.cluster = spec.cluster;
    launch.dynamic_bytes = spec.dynamic_bytes;
    launch.order = run.order;
    launch.count = run.count;
    launch.global = &memory;
    launch.check = run.check;
    launch.module_end = end_of(launch.module_base);
    launch.global_shadow = shadow;
    if (shadow) shadow->start_launch();
    launch.blocks_total = std::uint64_t(spec.grid.x) * spec.grid.y * spec.grid.z;
    launch.sample = spec.sample;
    launch.blocks_executed =
        spec.sample.empty() ? launch.blocks_total : spec.sample.size() * launch.cluster_blocks();
    blocks.total += launch.blocks_total;
    blocks.executed += launch.blocks_executed;
    pool.run(launch);
}

std::string counters_json(const WorkerPool& pool, const BlockCount& blocks) {
    EventTotals events;
    Counting::Sites sites;
    std::size_t static_bytes = 0;
    for (const auto& worker : pool.workers()) {
        events.add(worker->counting().events);
        for (const auto& [key, totals] : worker->counting().sites()) sites[key].add(totals);
        static_bytes = worker->shared().static_bytes();
    }
    std::string text =
        format("\"blocks_total\":%lu,\"blocks_executed\":%lu,\"smem_static_bytes\":%zu,\"printfs\":%lu,",
               blocks.total, blocks.executed, static_bytes, events.printfs);
    text += format(
        "\"events\":{\"barriers\":%lu,\"warp_collectives\":%lu,\"special_function_ops\":%lu,"
        "\"async_copy_bytes\":%lu,\"atomics\":%lu,\"mma_f16_f32\":%lu,\"mma_bf16_f32\":%lu,\"mma_f16_f16\":%"
        "lu,\"mma_tf32_f32\":%lu,\"mma_fp8_f32\":%lu},",
        events.barriers, events.warp_collectives, events.special_functions, events.async_copy_bytes,
        events.atomics, events.matrix_flop[0], events.matrix_flop[1], events.matrix_flop[2], events.matrix_flop[3],
        events.matrix_flop[4]);
    text += "\"sites\":[";
    bool first = true;
    for (const auto& [key, totals] : sites) {
        text += format("%s[%ld,%d,%lu,%lu,%lu,%lu,%lu,%lu]", first ? "" : ",", report().offset(key.first),
                       int(key.second), totals.instructions, totals.bytes, totals.wavefronts,
                       totals.wavefronts_ideal, totals.sectors, totals.sectors_ideal);
        first = false;
    }
    return text + "]";
}

std::string memory_json(const GlobalMemory& memory) {
    std::string changed, damage;
    for (const std::string& name : memory.changed_inputs())
        changed += (changed.empty() ? "" : ",") + Report::quoted(name);
    for (const CanaryDamage& one : memory.canary_damage())
        damage += (damage.empty() ? "[" : ",[") + Report::quoted(one.buffer) +
                  format(",%s,%zu,%zu]", one.before ? "true" : "false", one.bytes, one.first_offset);
    return "\"input_changed\":[" + changed + "],\"canary\":[" + damage + "]";
}

}  // namespace

void execute(WorkerPool& pool, void* module, const RunSpec& run) {
    report().run(run.index);
    report().begin();
    const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    Worker::start_run();
    findings().start_run();
    for (const auto& worker : pool.workers()) {
        worker->counting().clear();
        worker->start_clock(run.deadline_s);
    }
    const GlobalMemory memory(run.buffers);
    std::unique_ptr<GlobalShadow> shadow;
    if (run.check) shadow = std::make_unique<GlobalShadow>(run.buffers);
    Arguments shared_arguments(run.arguments, memory);
    BlockCount blocks;
    for (const LaunchSpec& launch : run.launches)
        if (!Worker::any_fault()) {
            Arguments own(launch.arguments, memory);
            run_launch(pool, module, run, launch, launch.own_arguments ? own : shared_arguments, memory, shadow.get(),
                       blocks);
        }
    for (std::size_t i = 0; i < run.buffers.size(); i++)
        if (run.buffers[i].is_output) memory.write_file(i, run.output_prefix + run.buffers[i].name);
    report().end(format("\"faulted\":%s,\"wall_s\":%.6f,\"cpu_s\":%.6f,",
                        Worker::any_fault() ? "true" : "false", seconds(CLOCK_MONOTONIC) - wall,
                        seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) +
                 "\"findings\":[" + findings().counts() + "]," + memory_json(memory) + "," + counters_json(pool, blocks));
}

}  // namespace gf_emulator
