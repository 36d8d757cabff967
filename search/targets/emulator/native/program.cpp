// gf-emulate JOB_FILE REPORT_FD WORKERS MEMORY_BYTES CPU_S
//
// Runs one job's kernels and reports each run on REPORT_FD. The parent reads that pipe only. This process may die
// at any point, so the report of a run is complete before the next run starts.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <dlfcn.h>
#include <new>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "job.h"
#include "memory_map.h"
#include "run.h"
#include "sandbox.h"
#include "signals.h"

using namespace gf_emulator;

namespace {

void limit(int resource, rlim_t value) {
    const rlimit both{value, value};
    setrlimit(resource, &both);
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

}  // namespace

extern "C" __attribute__((visibility("default"))) int gf_emulator_main(int count, char** words) {
    if (count != 6) return exit_code_ours;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Job job;
    if (!read_job(words[1], job)) return exit_code_ours;
    report().open(std::atoi(words[2]), job.nonce);
    std::set_new_handler([] { give_up("memory"); });
    const std::uint64_t memory_bytes = std::strtoull(words[4], nullptr, 10);
    limit(RLIMIT_CORE, 0);
    const std::uint64_t reserved_bytes = reserved(job);
    limit(RLIMIT_AS, memory_bytes + reserved_bytes);
    if (reserved_bytes) limit(RLIMIT_DATA, memory_bytes);  // what can be written stays as small as without
    limit(RLIMIT_FSIZE, memory_bytes);
    limit(RLIMIT_CPU, std::strtoull(words[5], nullptr, 10));
    limit(RLIMIT_NOFILE, 64);
    confine_files({folder_of(words[1])}, {folder_of(words[0]), folder_of(job.module_path), "/usr/lib", "/usr/lib64",
                                          "/lib", "/lib64", "/etc/ld.so.cache"});
    WorkerPool pool(unsigned(std::atoi(words[3])));
    limit(RLIMIT_NPROC, 0);
    catch_crashes();
    refuse_calls();
    void* module = dlopen(job.module_path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!module) give_up(dlerror());
    for (const RunSpec& run : job.runs) execute(pool, module, run);
    _exit(0);
}
