// malloc and new in device code: pieces of the buffer that the job calls "device-heap". Every piece has a gap behind it,
// which nobody writes, and is used once: nothing orders what one thread frees and another gets.
#pragma once
#include <cstddef>
#include <map>
#include <mutex>

namespace gf_emulator {

class GlobalMemory;

class DeviceHeap {
public:
    void start_run();
    // Null where there is no room.
    void* allocate(const GlobalMemory& memory, std::size_t bytes);
    // The bytes that the piece had; 0: it is none.
    std::size_t release(void* piece);
    bool is_in_use();

private:
    std::mutex mutex_;
    std::size_t used_ = 0;
    std::map<char*, std::size_t> pieces_;  // that are in use, with their sizes
};

DeviceHeap& device_heap();

}  // namespace gf_emulator
