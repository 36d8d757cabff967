// The report of this process: JSON lines on one private pipe.
//
// Lines that say how far the work has come carry the job's secret, which lies in a vault while candidate code runs.
// Faults and findings are written while it runs. They carry a tag, which candidate code could find out: a forged
// one harms the candidate only.
#pragma once
#include <cstdarg>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gf_emulator/vector_types.h"
#include "vault.h"

namespace gf_emulator {

constexpr int exit_code_crash = 80;  // the candidate touched memory that is not its own
constexpr int exit_code_ours = 81;   // this program could not do its work
constexpr int exit_code_twice = 82;  // the candidate left no state in which its fault could be reported

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
    void open(int descriptor) { descriptor_ = descriptor; }
    // From the job's first line, which is the secret and the tag. False when they are not there.
    bool read_secret(int job);
    void module_base(const void* base) { module_base_ = static_cast<const char*>(base); }
    void run(int index) { run_ = index; }

    // These three while no candidate code runs.
    void load();
    void begin();
    void end(const std::string& members);

    void fault(const Fault& fault);
    void finding(const Finding& finding);
    // A finding that what a thread does next may explain, and that a compare-and-swap behind the reads at `reader` does.
    // The parent takes notice of both only where the run does not end by itself.
    void waiting_finding(const Finding& finding, const void* reader);
    void explained(const void* reader);
    void ours(const char* why);

    unsigned vault_half() const { return vault_ ? vault_->upper_half() : 0; }

    // Offset of `site` in the kernel's library, from which the parent finds its source line; -1 without one.
    long offset(const void* site) const;

    // The text of a JSON string, quotes included.
    static std::string quoted(const std::string& text);

private:
    std::string event(const char* name, const std::string& members) const;
    std::string members(const Finding& finding) const;
    void line(const char* name, const std::string& members);
    void secret_line(const char* name, const std::string& members);
    void put(const char* text, std::size_t bytes);

    int descriptor_ = -1;
    int run_ = -1;
    std::string tag_;
    std::unique_ptr<Vault> vault_;  // of the secret
    const char* module_base_ = nullptr;
};

Report& report();

std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

}  // namespace gf_emulator
