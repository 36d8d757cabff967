// A page that nothing can read or write, apart from short moments. It lies at a random address, far from
// everything else.
#pragma once
#include <cstddef>
#include <cstdint>

namespace gf_emulator {

class Vault {
public:
    static constexpr std::size_t bytes = 4096;

    Vault();
    Vault(const Vault&) = delete;

    void open();  // readable and writable
    void close();
    char* content() const { return page_; }

    // The upper half of the addresses around it, which nothing else has; 0: the kernel chose its address.
    std::uint32_t upper_half() const { return upper_half_; }

private:
    char* page_ = nullptr;
    std::uint32_t upper_half_ = 0;
};

}  // namespace gf_emulator
