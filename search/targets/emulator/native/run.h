// One run of a job: its buffers, its launches in order, its report.
#pragma once
#include "job.h"
#include "worker_pool.h"

namespace gf_emulator {

// The job's files. Those of finished runs' outputs are no longer mapped.
struct JobFiles {
    const char* images = nullptr;
    char* outputs = nullptr;
};

// `module` is the kernel library's dlopen handle.
void execute(WorkerPool& pool, void* module, const RunSpec& run, const JobFiles& files);

}  // namespace gf_emulator
