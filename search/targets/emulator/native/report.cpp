#include "report.h"

#include <cerrno>
#include <cstdio>
#include <new>
#include <sys/syscall.h>
#include <unistd.h>

#include "findings.h"
#include "own_calls.h"

namespace gf_emulator {

// Never destroyed: a candidate that calls exit() runs all destructors, and is reported afterwards.
Report& report() {
    alignas(Report) static char place[sizeof(Report)];
    static Report& instance = *new (place) Report;
    return instance;
}

std::string format(const char* pattern, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, pattern);
    vsnprintf(text, sizeof text, pattern, arguments);
    va_end(arguments);
    return text;
}

static std::string triple(uint3 index) { return format("[%u,%u,%u]", index.x, index.y, index.z); }

constexpr std::size_t secret_bytes = 32, tag_bytes = 16;

static bool read_exactly(int descriptor, char* destination, std::size_t bytes) {
    while (bytes) {
        const ssize_t count = read(descriptor, destination, bytes);
        if (count <= 0) return false;
        destination += count;
        bytes -= std::size_t(count);
    }
    return true;
}

bool Report::read_secret(int job) {
    vault_ = std::make_unique<Vault>();
    vault_->open();
    char rest[1 + tag_bytes + 1];  // " TAG\n"
    const bool is_whole = read_exactly(job, vault_->content(), secret_bytes) && read_exactly(job, rest, sizeof rest) &&
                          rest[0] == ' ' && rest[sizeof rest - 1] == '\n';
    vault_->close();
    tag_.assign(rest + 1, is_whole ? tag_bytes : 0);
    return is_whole;
}

long Report::offset(const void* site) const {
    return site ? static_cast<const char*>(site) - module_base_ : -1;
}

std::string Report::quoted(const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        result += static_cast<unsigned char>(c) < 32 ? ' ' : c;
    }
    return result + '"';
}

void Report::put(const char* text, std::size_t bytes) {
    while (bytes) {
        const long count = own_call(SYS_write, descriptor_, long(text), long(bytes));
        if (count == -EINTR) continue;
        if (count <= 0) end_process(exit_code_ours);
        text += count;
        bytes -= std::size_t(count);
    }
}

std::string Report::event(const char* name, const std::string& members) const {
    return format("\"event\":\"%s\",\"run\":%d", name, run_) + (members.empty() ? "" : ",") + members + "}\n";
}

// Lines up to PIPE_BUF cannot be torn by another writer. Longer ones would be, but faults and findings are shorter.
void Report::line(const char* name, const std::string& members) {
    const std::string text = "{\"tag\":\"" + tag_ + "\"," + event(name, members);
    put(text.data(), text.size());
}

// In pieces, since no copy of the secret may stay in memory. All other threads rest.
void Report::secret_line(const char* name, const std::string& members) {
    const std::string before = "{\"secret\":\"", after = "\"," + event(name, members);
    put(before.data(), before.size());
    vault_->open();
    put(vault_->content(), secret_bytes);
    vault_->close();
    put(after.data(), after.size());
}

void Report::load() { secret_line("load", ""); }
void Report::begin() { secret_line("begin", ""); }
void Report::end(const std::string& members) { secret_line("end", members); }
void Report::ours(const char* why) { line("ours", "\"why\":" + quoted(why)); }

void Report::finding(const Finding& finding) { line("finding", members(finding)); }

void Report::waiting_finding(const Finding& finding, const void* reader) {
    line("waiting_finding", members(finding) + format(",\"reader\":%ld", offset(reader)));
}

void Report::explained(const void* reader) { line("explained", format("\"reader\":%ld", offset(reader))); }

std::string Report::members(const Finding& finding) const {
    const auto party = [this](const Party& one) {
        return format("{\"action\":\"%s\",\"site\":%ld,\"block\":", name_of(one.action), offset(one.site)) +
               triple(one.block) + ",\"thread\":" + triple(one.thread) + "}";
    };
    return format("\"kind\":\"%s\",\"offset\":%ld,\"bytes\":%u,\"memory\":", finding.kind, finding.offset,
                  finding.bytes) +
           quoted(finding.memory) + ",\"detail\":" + quoted(finding.detail) + ",\"party\":" + party(finding.party) +
           ",\"other\":" + (finding.other.site ? party(finding.other) : "null");
}

void Report::fault(const Fault& fault) {
    std::string waiting;
    for (const Fault::Waiting& one : fault.waiting)
        waiting += format("%s{\"thread\":%s,\"operation\":\"%s\",\"mask\":%u,\"site\":%ld}",
                          waiting.empty() ? "" : ",", triple(one.thread).c_str(), one.operation.c_str(), one.mask,
                          offset(one.site));
    line("fault", "\"kind\":" + quoted(fault.kind) + ",\"sentence\":" + quoted(fault.sentence) +
                      ",\"block\":" + triple(fault.block) + ",\"thread\":" + triple(fault.thread) +
                      format(",\"site\":%ld,\"note\":%s", offset(fault.site), fault.note ? "true" : "false") +
                      ",\"waiting\":[" + waiting + "]");
}

}  // namespace gf_emulator
