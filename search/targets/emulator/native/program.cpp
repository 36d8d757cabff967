// gf-emulate JOB IMAGES OUTPUTS REPORT WORKERS MEMORY_BYTES CPU_S
//
// Runs one job's kernels and reports each run. JOB, IMAGES, OUTPUTS and REPORT are descriptors: the job's text, the
// buffers' contents before the runs, room for their contents afterwards, and a pipe. The parent trusts that pipe only.
// This process may die at any point, so the report of a run is complete before the next run starts.
//
// Before any code of the candidate is loaded, the job is read and closed, all memory is mapped, all threads wait, and
// the process has lost its files, its descriptors and nearly all system calls.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <malloc.h>
#include <memory>
#include <new>
#include <sys/prctl.h>

#include "job.h"
#include "loading.h"
#include "memory_map.h"
#include "own_calls.h"
#include "run.h"
#include "sandbox.h"
#include "signals.h"

using namespace gf_emulator;

namespace {

struct Words {
    int job, images, outputs, report;
    unsigned workers;
    unsigned long long memory_bytes, cpu_s;
};

Words words_of(char** words) {
    return {std::atoi(words[1]),           std::atoi(words[2]),
            std::atoi(words[3]),           std::atoi(words[4]),
            unsigned(std::atoi(words[5])), std::strtoull(words[6], nullptr, 10),
            std::strtoull(words[7], nullptr, 10)};
}

// Addresses that the largest run reserves and never touches.
std::uint64_t reserved(const Job& job) {
    std::uint64_t most = 0;
    for (const RunSpec& run : job.runs) {
        std::uint64_t bytes = 0;
        for (const BufferSpec& buffer : run.buffers)
            if (buffer.fill == BufferSpec::Fill::reserved) bytes += buffer.bytes + 2 * GlobalMemory::guard_bytes;
        most = std::max(most, bytes);
    }
    return most;
}

// The threads are made in between, since they lack what has been lost before. False: this kernel filters no calls.
bool give_everything_up(const Words& words, const Job& job, unsigned long long mapped_bytes,
                        std::unique_ptr<WorkerPool>& pool) {
    keep_descriptors(words.report, loading().descriptor());
    // What a run reserves is never touched, so what can be written stays as small as without.
    limit_resources(words.memory_bytes, words.memory_bytes + mapped_bytes + reserved(job), words.cpu_s);
    confine_files({}, {});
    drop_capabilities();
    mallopt(M_ARENA_MAX, int(words.workers) + 1);  // else the allocator asks the system for its cores, later
    mallopt(M_TRIM_THRESHOLD, -1);  // and before it gives memory back, whether the system overcommits
    pool = std::make_unique<WorkerPool>(words.workers);  // with a timer for each thread
    limit_signals();
    catch_crashes();
    catch_refused_calls();
    limit_descriptors(0, 1);
    return refuse_calls(words.report, loading().descriptor(), report().vault_half());
}

// Without a filter the linker opens the library itself, as descriptor 0.
void* load_library(bool calls_are_refused) {
    if (calls_are_refused) return loading().load();
    limit_descriptors(1, 1);
    void* library = loading().load();
    limit_descriptors(0, 0);
    return library;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int gf_emulator_main(int count, char** texts) {
    if (count != 8) return exit_code_ours;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Words words = words_of(texts);
    Job job;
    report().open(words.report);
    if (!report().read_secret(words.job) || !read_job(words.job, job)) return exit_code_ours;
    std::set_new_handler([] { give_up("memory"); });
    const FileMap images = map_file(words.images, false), outputs = map_file(words.outputs, true);
    loading().open(job.module_path);
    std::unique_ptr<WorkerPool> pool;
    const bool calls_are_refused = give_everything_up(words, job, images.bytes + outputs.bytes, pool);
    void* library = load_library(calls_are_refused);
    for (const RunSpec& run : job.runs) execute(*pool, library, run, {images.first, outputs.first});
    end_process(0);
}
