// One run of a job: its buffers, its launches in order, its report.
#pragma once
#include "job.h"
#include "worker_pool.h"

namespace gf_emulator {

// `module` is the kernel library's dlopen handle.
void execute(WorkerPool& pool, void* module, const RunSpec& run);

}  // namespace gf_emulator
