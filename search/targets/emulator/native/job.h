// The job: lines that the parent writes (job.py describes them).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "global_memory.h"
#include "gf_emulator/vector_types.h"
#include "order.h"
#include "tensor_map.h"

namespace gf_emulator {

struct ArgumentSpec {
    bool is_pointer = false;
    int buffer = -1;          // of a pointer; -1: null
    std::uint64_t value = 0;  // a pointer's offset, or a scalar's bytes
    bool is_tensor_map = false;
    EmulatedTensorMap tensor_map{};  // its base is that of the buffer
    struct Pointer {
        std::size_t offset;
        std::size_t buffer;
    };
    struct Map {
        std::size_t offset;
        std::size_t buffer;
        EmulatedTensorMap value;
    };
    std::vector<unsigned char> packed;  // a value of any type; empty: it is none
    std::vector<Pointer> pointers;      // in the packed value
    std::vector<Map> maps;              // in the packed value
};

struct LaunchSpec {
    std::string entry;
    uint3 grid{}, block{}, cluster{};
    std::size_t dynamic_bytes = 0;
    bool own_arguments = false;  // else the run's
    std::vector<ArgumentSpec> arguments;
    std::vector<std::uint64_t> sample;  // clusters to run; empty: all
    std::uint64_t resident_blocks = 0;  // that the GPU holds at once
};

struct RunSpec {
    int index = 0;
    Order order;
    bool count = false;
    bool check = false;
    std::uint64_t undefined = ~std::uint64_t(0);
    double deadline_s = 0;  // of processor time, for each thread; 0: none
    std::vector<BufferSpec> buffers;
    std::vector<LaunchSpec> launches;
    std::vector<ArgumentSpec> arguments;
    std::uint64_t outputs = 0;  // where they lie, one after another, in the file of outputs
};

struct Job {
    std::string module_path;
    std::vector<RunSpec> runs;
};

// Reads to the file's end. False when that is no valid job.
bool read_job(int descriptor, Job& job);
// The same of its text.
bool parse_job(const std::string& text, Job& job);

}  // namespace gf_emulator
