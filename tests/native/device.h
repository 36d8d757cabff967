// A function as a kernel in this process: one worker runs its blocks, and what it reports is kept.
#pragma once
#include <functional>
#include <sys/mman.h>
#include <unistd.h>

#include "findings.h"
#include "global_memory.h"
#include "global_shadow.h"
#include "worker.h"
#include "claims.h"

namespace gf_emulator {

struct Shape {
    unsigned blocks = 1, threads = 32, cluster = 1;
    std::size_t shared_bytes = 0;
    Order order{};
    bool check = false;
    bool count = false;
};

// The report's lines, and what a counted run has counted.
struct Told {
    std::vector<std::string> lines;
    std::map<Access, SiteTotals> counted;
    EventTotals events;

    bool says(const std::string& words) const {
        for (const std::string& line : lines)
            if (line.find(words) != std::string::npos) return true;
        return false;
    }
    std::string all() const {
        std::string text;
        for (const std::string& line : lines) text += line;
        return text;
    }
};

inline Told run(const Shape& shape, const std::function<void()>& kernel, const std::vector<BufferSpec>& buffers = {},
                const std::function<void(const GlobalMemory&)>& before = {}) {
    const int file = memfd_create("report", 0);
    report().open(file);
    Worker worker;
    worker.adopt_thread();
    Worker::start_run();
    findings().start_run();
    const GlobalMemory memory(buffers);
    const ModuleMemory no_objects;
    GlobalShadow shadow(buffers, no_objects);
    if (before) before(memory);
    shadow.start_launch();
    void* arguments[] = {const_cast<std::function<void()>*>(&kernel)};
    Launch launch;
    launch.entry = [](void** given) { (*static_cast<const std::function<void()>*>(given[0]))(); };
    launch.arguments = arguments;
    launch.grid = {shape.blocks, 1, 1};
    launch.block = {shape.threads, 1, 1};
    launch.cluster = {shape.cluster, 1, 1};
    launch.dynamic_bytes = shape.shared_bytes;
    launch.order = shape.order;
    launch.check = shape.check;
    launch.count = shape.count;
    launch.global = &memory;
    launch.module = &no_objects;
    launch.global_shadow = shape.check ? &shadow : nullptr;
    launch.blocks_total = launch.blocks_executed = shape.blocks;
    worker.run_blocks(launch);

    Told told;
    told.events = worker.counting().events;
    for (const auto& [site, totals] : worker.counting().sites()) told.counted[site.second].add(totals);
    std::string line;
    char letter;
    lseek(file, 0, SEEK_SET);
    while (read(file, &letter, 1) == 1) {
        line += letter;
        if (letter == '\n') {
            told.lines.push_back(line);
            line.clear();
        }
    }
    close(file);
    return told;
}

inline unsigned thread() { return gf_emulator_thread_index().x; }
inline unsigned block() { return gf_emulator_block_index().x; }
inline int barrier(int line = 1) { return gf_emulator_block_barrier(BarrierOperation::sync, 0, line); }

// The schedules, by name, that a right kernel must not be able to tell apart.
inline const std::vector<Order>& every_order() {
    static const std::vector<Order> all = {Order(Order::Kind::forward, 0), Order(Order::Kind::reverse, 0),
                                           Order(Order::Kind::seeded, 1), Order(Order::Kind::seeded, 2)};
    return all;
}

}  // namespace gf_emulator
