// The report of this process: JSON lines on one private pipe, each with the job's nonce, written atomically.
#pragma once
#include <cstdarg>
#include <cstddef>
#include <string>
#include <vector>

#include "gf_emulator/vector_types.h"

namespace gf_emulator {

constexpr int exit_code_crash = 80;  // the candidate touched memory that is not its own
constexpr int exit_code_ours = 81;   // this program could not do its work

struct Fault {
    std::string kind;
    std::string sentence;
    uint3 block{};
    uint3 thread{};
    const void* site = nullptr;  // a return address in the kernel's library, or null
    bool note = false;           // a remark, no fault
    struct Waiting {
        uint3 thread;
        std::string operation;
        unsigned mask;
        const void* site;
    };
    std::vector<Waiting> waiting{};
};

struct Finding;

class Report {
public:
    void open(int descriptor, const std::string& nonce);
    void module_base(const void* base) { module_base_ = static_cast<const char*>(base); }
    void run(int index) { run_ = index; }

    void begin();
    void fault(const Fault& fault);
    void finding(const Finding& finding);
    void end(const std::string& members);
    void ours(const char* why);

    // Offset of `site` in the kernel's library, from which the parent finds its source line; -1 without one.
    long offset(const void* site) const;

    // The text of a JSON string, quotes included.
    static std::string quoted(const std::string& text);

private:
    void line(const char* event, const std::string& members);

    int descriptor_ = -1;
    int run_ = -1;
    std::string nonce_;
    const char* module_base_ = nullptr;
};

Report& report();

std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

}  // namespace gf_emulator
