// Loads the kernel library after the process has lost the right to open files: its file is opened before, and the
// dynamic linker's request for it is answered with that descriptor, once.
#pragma once
#include <csignal>
#include <string>

#include "memory_map.h"

namespace gf_emulator {

class Loading {
public:
    // Opens the library's file; ends the process when it is not there.
    void open(const std::string& path);
    int descriptor() const { return descriptor_; }
    // The file's contents. Symbols are read from it, which loading does not map.
    const FileMap& file() const { return file_; }

    // dlopen's handle. Ends the process when there is none.
    void* load();
    // Code of the library may run already: its constructors.
    bool in_progress() const { return in_progress_; }

    // For a refused call: true when it is the linker's, and `context` now holds its answer.
    bool answer(const siginfo_t& refused, void* context);

private:
    std::string path_;
    int descriptor_ = -1;
    FileMap file_;
    bool in_progress_ = false;
    bool answered_ = false;
};

Loading& loading();

}  // namespace gf_emulator
