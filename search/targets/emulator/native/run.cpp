#include "run.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <memory>
#include <sys/mman.h>

#include "carried_state.h"
#include "device_heap.h"
#include "findings.h"
#include "global_shadow.h"
#include "memory_map.h"
#include "module_memory.h"

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

// Argument values as cuLaunchKernel takes them: one address each.
struct Arguments {
    // Large and aligned enough for any argument.
    struct alignas(64) Value {
        unsigned char bytes[4096] = {};
        template <class T> void set(const T& value) {
            static_assert(sizeof value <= sizeof bytes);
            std::memcpy(bytes, &value, sizeof value);
        }
        void set(const ArgumentSpec& spec, const GlobalMemory& memory) {
            std::memcpy(bytes, spec.packed.data(), std::min(sizeof bytes, spec.packed.size()));
            for (const ArgumentSpec::Pointer& pointer : spec.pointers) {
                std::uint64_t address;  // the bytes hold how far behind the buffer's begin it is
                std::memcpy(&address, bytes + pointer.offset, sizeof address);
                address += reinterpret_cast<std::uint64_t>(memory.address(pointer.buffer));
                std::memcpy(bytes + pointer.offset, &address, sizeof address);
            }
            for (ArgumentSpec::Map map : spec.maps) {
                map.value.base = reinterpret_cast<unsigned char*>(memory.address(map.buffer));
                std::memcpy(bytes + map.offset, &map.value, sizeof map.value);
            }
        }
    };
    std::vector<Value> values;
    std::vector<void*> addresses;

    Arguments(const std::vector<ArgumentSpec>& specs, const GlobalMemory& memory) {
        for (const ArgumentSpec& spec : specs) {
            const bool in_buffer = spec.is_pointer && spec.buffer >= 0;
            const std::uint64_t base =
                in_buffer ? reinterpret_cast<std::uint64_t>(memory.address(std::size_t(spec.buffer))) : 0;
            EmulatedTensorMap map = spec.tensor_map;
            map.base = reinterpret_cast<unsigned char*>(base);
            values.emplace_back();
            if (!spec.packed.empty())
                values.back().set(spec, memory);
            else if (spec.is_tensor_map)
                values.back().set(map);
            else
                values.back().set(base + spec.value);
        }
        for (Value& value : values) addresses.push_back(value.bytes);
    }
};

struct BlockCount {
    std::uint64_t total = 0, executed = 0;
};

// What the checks of a run know beyond one block; made for checked runs only.
struct Watch {
    GlobalShadow shadow;
    CarriedState carried_state;
    Watch(const RunSpec& run, const ModuleMemory& module) : shadow(run.buffers, module) { module.restore(); }
};

void run_launch(WorkerPool& pool, void* module, const RunSpec& run, const LaunchSpec& spec,
                Arguments& arguments, const GlobalMemory& memory, Watch* watch, BlockCount& blocks) {
    Launch launch;
    launch.entry = find_entry(module, spec.entry);
    launch.module_base = base_of(reinterpret_cast<void*>(launch.entry));
    report().module_base(launch.module_base);
    launch.arguments = arguments.addresses.data();
    launch.grid = spec.grid;
    launch.block = spec.block;
    launch.cluster = spec.cluster;
    launch.dynamic_bytes = spec.dynamic_bytes;
    launch.resident_blocks = spec.resident_blocks;
    launch.order = run.order;
    launch.count = run.count;
    launch.global = &memory;
    memory.make_copies();
    launch.check = run.check;
    launch.undefined = run.undefined;
    launch.module = &module_memory(module);
    if (watch) {
        launch.global_shadow = &watch->shadow;
        launch.carried_state = &watch->carried_state;
        watch->shadow.start_launch();
    }
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
        "\"async_copy_bytes\":%lu,\"bulk_copy_bytes\":%lu,\"wgmma_operand_bytes\":%lu,\"mbarrier_operations\":%lu,\"copy_rounds\":%lu,\"atomics\":%lu,\"mma_f16_f32\":%lu,\"mma_bf16_f32\":%lu,\"mma_f16_f16\":%"
        "lu,\"mma_tf32_f32\":%lu,\"mma_fp8_f32\":%lu,\"wgmma_f16_f32\":%lu,"
        "\"wgmma_bf16_f32\":%lu,\"wgmma_fp8_f32\":%lu},",
        events.barriers, events.warp_collectives, events.special_functions, events.async_copy_bytes,
        events.bulk_copy_bytes, events.operand_bytes, events.mbarrier_operations, events.copy_rounds,
        events.atomics, events.matrix_flop[0], events.matrix_flop[1], events.matrix_flop[2], events.matrix_flop[3],
        events.matrix_flop[4], events.wgmma_flop[0], events.wgmma_flop[1], events.wgmma_flop[2]);
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

// Outputs in the order of the buffers, from a page's start on. Later runs cannot reach them.
void hand_over_outputs(const RunSpec& run, const GlobalMemory& memory, char* first) {
    char* next = first;
    for (std::size_t i = 0; i < run.buffers.size(); i++) {
        if (!run.buffers[i].is_output) continue;
        memory.copy_to(next, i);
        next += run.buffers[i].bytes;
    }
    if (next > first) munmap(first, std::size_t(next - first));
}

}  // namespace

void execute(WorkerPool& pool, void* module, const RunSpec& run, const JobFiles& files) {
    report().run(run.index);
    report().begin();
    const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    Worker::start_run();
    findings().start_run();
    device_heap().start_run();
    for (const auto& worker : pool.workers()) {
        worker->counting().clear();
        worker->start_clock(run.deadline_s);
    }
    const GlobalMemory memory(run.buffers, files.images);
    const ModuleMemory& objects = module_memory(module);
    std::unique_ptr<Watch> watch;
    if (run.check) watch = std::make_unique<Watch>(run, objects);
    Arguments shared_arguments(run.arguments, memory);
    BlockCount blocks;
    for (const LaunchSpec& launch : run.launches)
        if (!Worker::any_fault()) {
            Arguments own(launch.arguments, memory);
            run_launch(pool, module, run, launch, launch.own_arguments ? own : shared_arguments, memory, watch.get(),
                       blocks);
        }
    const bool keeps_state = watch && !Worker::any_fault() && watch->carried_state.report(objects);
    hand_over_outputs(run, memory, files.outputs + run.outputs);
    findings().end_run();
    report().end(format("\"faulted\":%s,\"keeps_state\":%s,\"wall_s\":%.6f,\"cpu_s\":%.6f,",
                        Worker::any_fault() ? "true" : "false", keeps_state ? "true" : "false",
                        seconds(CLOCK_MONOTONIC) - wall, seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) +
                 "\"findings\":[" + findings().counts() + "]," + memory_json(memory) + "," + counters_json(pool, blocks));
}

}  // namespace gf_emulator
