#include "report.h"

#include <cstdio>
#include <unistd.h>

#include "findings.h"

namespace gf_emulator {

Report& report() {
    static Report instance;
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

void Report::open(int descriptor, const std::string& nonce) {
    descriptor_ = descriptor;
    nonce_ = nonce;
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

void Report::line(const char* event, const std::string& members) {
    const std::string text =
        format("{\"nonce\":\"%s\",\"event\":\"%s\",\"run\":%d", nonce_.c_str(), event, run_) +
        (members.empty() ? "" : ",") + members + "}\n";
    // Lines up to PIPE_BUF cannot be torn by another writer; longer ones come from one thread while all
    // others rest.
    std::size_t written = 0;
    while (written < text.size()) {
        const ssize_t count = write(descriptor_, text.data() + written, text.size() - written);
        if (count <= 0) _exit(exit_code_ours);
        written += std::size_t(count);
    }
}

void Report::begin() { line("begin", ""); }
void Report::end(const std::string& members) { line("end", members); }
void Report::ours(const char* why) { line("ours", "\"why\":" + quoted(why)); }

void Report::finding(const Finding& finding) {
    const auto party = [this](const Party& one) {
        return format("{\"action\":\"%s\",\"site\":%ld,\"block\":", name_of(one.action), offset(one.site)) +
               triple(one.block) + ",\"thread\":" + triple(one.thread) + "}";
    };
    line("finding", format("\"kind\":\"%s\",\"offset\":%ld,\"bytes\":%u,\"memory\":", finding.kind,
                           finding.offset, finding.bytes) +
                        quoted(finding.memory) + ",\"detail\":" + quoted(finding.detail) + ",\"party\":" +
                        party(finding.party) + ",\"other\":" +
                        (finding.other.site ? party(finding.other) : "null"));
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
