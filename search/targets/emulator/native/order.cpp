#include "order.h"

#include <numeric>

namespace gf_emulator {

std::uint64_t Order::block(std::uint64_t position, std::uint64_t total) const {
    if (kind_ == Kind::forward) return position;
    if (kind_ == Kind::reverse) return total - 1 - position;
    // A stride that shares no factor with `total` visits every block once.
    std::uint64_t stride = (total * 5 / 8 + seed_ % 7) | 1;
    while (std::gcd(stride, total) != 1) stride += 2;
    return (position % total * (stride % total) + seed_) % total;
}

}  // namespace gf_emulator
