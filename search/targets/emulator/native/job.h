// The job: what the parent wants executed, read from its file of lines (execute.py writes it and says what
// they mean).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "global_memory.h"
#include "gf_emulator/vector_types.h"
#include "order.h"

namespace gf_emulator {

struct LaunchSpec {
    std::string entry;
    uint3 grid{}, block{};
    std::size_t dynamic_bytes = 0;
};

struct ArgumentSpec {
    bool is_pointer = false;
    int buffer = -1;          // of a pointer; -1: null
    std::uint64_t value = 0;  // a pointer's offset, or a scalar's bytes
};

struct RunSpec {
    int index = 0;
    Order order;
    bool count = false;
    std::uint64_t block_sample = 0;  // 0: all
    std::vector<BufferSpec> buffers;
    std::vector<LaunchSpec> launches;
    std::vector<ArgumentSpec> arguments;
    std::string output_prefix;
};

struct Job {
    std::string nonce;
    std::string module_path;
    std::vector<RunSpec> runs;
};

// False when the file does not read as a job.
bool read_job(const char* path, Job& job);

}  // namespace gf_emulator
