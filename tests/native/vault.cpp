// The page that nothing reads while it is closed; the report's first line.
#include "vault.h"

#include <csetjmp>
#include <csignal>
#include <unistd.h>

#include "claims.h"
#include "report.h"

using namespace gf_emulator;

namespace {

sigjmp_buf before_access;

bool is_readable(const char* address) {
    struct sigaction action{}, old{};
    action.sa_handler = [](int) { siglongjmp(before_access, 1); };
    sigaction(SIGSEGV, &action, &old);
    const bool read = sigsetjmp(before_access, 1) == 0;
    if (read) (void)*static_cast<const volatile char*>(address);
    sigaction(SIGSEGV, &old, nullptr);
    return read;
}

bool opens(const std::string& first_line) {
    int ends[2];
    CLAIM(pipe(ends) == 0 && write(ends[1], first_line.data(), first_line.size()) > 0);
    close(ends[1]);
    Report fresh;
    const bool opened = fresh.read_secret(ends[0]);
    close(ends[0]);
    return opened;
}

}  // namespace

CASE(a_vault_keeps_its_content_and_shows_it_only_while_open) {
    Vault vault, other;
    CLAIM(!is_readable(vault.content()));
    vault.open();
    vault.content()[7] = 'x';
    vault.close();
    CLAIM(!is_readable(vault.content() + 7));
    vault.open();
    SAME(vault.content()[7], 'x');
    CLAIM(vault.content() != other.content() && !is_readable(other.content()));
}

CASE(a_report_needs_its_secret_and_its_tag) {
    const std::string secret(32, 's'), tag(16, 't');
    CLAIM(opens(secret + " " + tag + "\n"));
    for (const std::string& line : {secret + tag + "\n", secret + " " + tag, secret + " " + tag + "x\n"})
        CLAIM(!opens(line));
}
