#include "division.h"

#include <cstdint>
#include <cstring>
#include <ucontext.h>

namespace gf_emulator {

#if defined(__x86_64__)

namespace {

// A div or idiv instruction (Intel 64 manual, volume 2: F6 and F7 with /6 and /7).
struct Division {
    unsigned bytes = 4;  // of the divisor
    bool is_signed = false;
    unsigned length = 0;  // of the instruction; 0: it is another one
    const unsigned char* modrm = nullptr;
    unsigned rex = 0;
};

// The general registers by their numbers in instructions.
constexpr int numbered[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                            REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

unsigned operand_length(const unsigned char* modrm) {
    const unsigned mode = *modrm >> 6, memory = *modrm & 7;
    if (mode == 3) return 1;
    const bool has_index = memory == 4;
    const bool far_base = mode == 0 && (memory == 5 || (has_index && (modrm[1] & 7) == 5));
    return 1 + has_index + (mode == 1 ? 1 : mode == 2 || far_base ? 4 : 0);
}

Division decoded(const unsigned char* code) {
    Division division;
    const unsigned char* at = code;
    if (*at == 0x66) division.bytes = 2, at++;
    if ((*at & 0xf0) == 0x40) {
        if (*at & 8) division.bytes = 8;
        division.rex = *at++;
    }
    if (*at != 0xf6 && *at != 0xf7) return division;
    if (*at++ == 0xf6) division.bytes = 1;
    const unsigned which = *at >> 3 & 7;
    if (which != 6 && which != 7) return division;
    division.is_signed = which == 7;
    division.modrm = at;
    division.length = unsigned(at - code) + operand_length(at);
    return division;
}

std::uint64_t divisor(const Division& division, const greg_t* registers) {
    const unsigned char* modrm = division.modrm;
    const unsigned mode = *modrm >> 6, memory = *modrm & 7, high = (division.rex & 1) << 3;
    if (mode == 3) return std::uint64_t(registers[numbered[memory | high]]);
    const unsigned char* behind = modrm + 1;
    std::uint64_t address = 0;
    if (memory == 4) {
        const unsigned scale = *behind >> 6, index = (*behind >> 3 & 7) | (division.rex & 2) << 2, base = *behind & 7;
        behind++;
        if (index != 4) address += std::uint64_t(registers[numbered[index]]) << scale;
        if (mode != 0 || base != 5) address += std::uint64_t(registers[numbered[base | high]]);
    } else if (mode == 0 && memory == 5) {
        address = std::uint64_t(registers[REG_RIP]) + division.length;
    } else {
        address = std::uint64_t(registers[numbered[memory | high]]);
    }
    const unsigned offset_bytes = division.length - unsigned(behind - reinterpret_cast<const unsigned char*>(registers[REG_RIP]));
    std::int32_t wide = 0;
    if (offset_bytes == 1) wide = static_cast<signed char>(*behind);
    if (offset_bytes == 4) std::memcpy(&wide, behind, sizeof wide);
    std::uint64_t value = 0;
    std::memcpy(&value, reinterpret_cast<const void*>(address + std::int64_t(wide)), division.bytes);
    return value;
}

// The halves of the dividend, and where quotient and remainder go.
void complete(greg_t& low, greg_t& high, unsigned bytes, bool by_zero) {
    const std::uint64_t mask = bytes == 8 ? ~0ull : (1ull << bytes * 8) - 1;
    // A write of 4 bytes clears the register's upper half; narrower ones leave the rest.
    const std::uint64_t kept = bytes < 4 ? ~mask : 0;
    const auto set = [&](greg_t& to, std::uint64_t value) {
        to = greg_t((std::uint64_t(to) & kept) | (value & mask));
    };
    set(high, by_zero ? std::uint64_t(low) : 0);
    if (by_zero) set(low, ~0ull);  // else the quotient is the dividend, whose low half it is
}

}  // namespace

bool complete_division(void* context) {
    greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    const Division division = decoded(reinterpret_cast<const unsigned char*>(registers[REG_RIP]));
    if (!division.length || division.bytes == 1) return false;
    const std::uint64_t mask = division.bytes == 8 ? ~0ull : (1ull << division.bytes * 8) - 1;
    const bool by_zero = (divisor(division, registers) & mask) == 0;
    if (!by_zero && !division.is_signed) return false;  // a compiler divides no such numbers
    complete(registers[REG_RAX], registers[REG_RDX], division.bytes, by_zero);
    registers[REG_RIP] += division.length;
    return true;
}

#else

bool complete_division(void*) { return false; }

#endif

}  // namespace gf_emulator
