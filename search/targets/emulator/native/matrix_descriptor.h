// Where the operands of wgmma lie in shared memory (PTX ISA, "Matrix Descriptor Format" and "Strides"). Everything lies
// in chunks of 16 bytes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "bulk_copy.h"

namespace gf_emulator {

struct MatrixDescriptor {
    std::size_t start;  // offset in shared memory
    std::size_t leading_bytes, stride_bytes;
    unsigned swizzle_bytes;  // 0, 32, 64 or 128
    unsigned base_offset;

    static MatrixDescriptor of(std::uint64_t bits) {
        constexpr unsigned swizzles[] = {0, 128, 64, 32};
        return {(bits & 0x3fff) << 4, (bits >> 16 & 0x3fff) << 4, (bits >> 32 & 0x3fff) << 4, swizzles[bits >> 62],
                unsigned(bits >> 49 & 7)};
    }

    // From the start to a chunk, before the swizzle. Of a K-major matrix, `line` is a row of A or a column of B, and
    // `chunk` counts along K; of a transposed one, `line` counts along K, and `chunk` along M or N.
    std::size_t offset(bool transposed, unsigned line, unsigned chunk) const {
        const std::size_t in_line = std::size_t(chunk) * 16;
        if (!swizzle_bytes) {
            const std::size_t along_line = transposed ? stride_bytes : leading_bytes;
            const std::size_t across = transposed ? leading_bytes : stride_bytes;
            return line / 8 * across + line % 8 * 16 + chunk * along_line;
        }
        const std::size_t rows = line / 8 * stride_bytes + std::size_t(line % 8) * swizzle_bytes;
        return transposed ? rows + in_line / swizzle_bytes * leading_bytes + in_line % swizzle_bytes : rows + in_line;
    }
    char* at(char* first, bool transposed, unsigned line, unsigned chunk) const {
        return CopiedBox::swizzled(first + offset(transposed, line, chunk), swizzle_bytes);
    }
};

}  // namespace gf_emulator
