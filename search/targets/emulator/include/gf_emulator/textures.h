// Texture and surface objects. A handle is the address of a header, with the texels behind it
// (search/diagnose/plain_textures.py). Filters are those of the CUDA C++ Programming Guide, "Texture Fetching", with
// fractions of 8 bits.
#pragma once
#include "cuda_fp16.h"
#include "cuda_runtime.h"

using cudaTextureObject_t = unsigned long long;
using cudaSurfaceObject_t = unsigned long long;
struct cudaExtent {
    std::size_t width, height, depth;
};
enum cudaTextureReadMode { cudaReadModeElementType, cudaReadModeNormalizedFloat };
enum cudaSurfaceBoundaryMode { cudaBoundaryModeZero, cudaBoundaryModeClamp, cudaBoundaryModeTrap };
enum cudaSurfaceFormatMode { cudaFormatModeForced, cudaFormatModeAuto };

namespace gf_emulator {

struct TextureHeader {
    int magic, width, height, depth;
    int kind;  // 0 float32, then uint8, int8, uint16, int16, uint32, int32, float16
    int channels, mode, linear, normalized, normalized_read;
    int unused[6];
};
static_assert(sizeof(TextureHeader) == 64, "as plain_textures.py packs it");

class Texture {
public:
    explicit __forceinline__ Texture(unsigned long long handle)
        : header_(*reinterpret_cast<const TextureHeader*>(handle)),
          texels_(reinterpret_cast<char*>(handle) + sizeof(TextureHeader)) {
        if (header_.magic != 0x54584554) gf_emulator_trap("a handle that is no texture or surface of the launch");
    }
    const TextureHeader& header() const { return header_; }
    __forceinline__ char* at(int x, int y, int z) const {
        return texels_ + ((static_cast<long long>(z) * header_.height + y) * header_.width + x) * texel_bytes();
    }
    __forceinline__ int texel_bytes() const {
        const int kind = header_.kind;
        return header_.channels * (kind == 0 || kind == 5 || kind == 6 ? 4 : kind == 1 || kind == 2 ? 1 : 2);
    }
    // Of a channel, as a float where the texture reads so.
    __forceinline__ float real(int x, int y, int z, int channel) const {
        const char* texel = at(x, y, z);
        const bool scaled = header_.normalized_read;
        switch (header_.kind) {
            case 0: return reinterpret_cast<const float*>(texel)[channel];
            case 1: return reinterpret_cast<const unsigned char*>(texel)[channel] / (scaled ? 255.0f : 1.0f);
            case 2: return reinterpret_cast<const signed char*>(texel)[channel] / (scaled ? 127.0f : 1.0f);
            case 3: return reinterpret_cast<const unsigned short*>(texel)[channel] / (scaled ? 65535.0f : 1.0f);
            case 4: return reinterpret_cast<const short*>(texel)[channel] / (scaled ? 32767.0f : 1.0f);
            case 7: return float(reinterpret_cast<const __half*>(texel)[channel]);
            default: return 0.0f;
        }
    }
    // An index inside, or -1: the border.
    __forceinline__ int inside(int i, int size) const {
        if (i >= 0 && i < size) return i;
        if (header_.mode == 1 || !header_.normalized) return header_.mode == 3 ? -1 : i < 0 ? 0 : size - 1;
        if (header_.mode == 3) return -1;
        const int turn = ((i % size) + size) % size;
        if (header_.mode == 0) return turn;
        const int rounds = i >= 0 ? i / size : -((-i + size - 1) / size);
        return rounds & 1 ? size - 1 - turn : turn;
    }

private:
    const TextureHeader& header_;
    char* texels_;
};

template <class T>
struct TexelParts {
    using Part = T;
    static constexpr int count = 1;
};
#define GF_EMULATOR_TEXEL(name, part)                                                            \
    template <> struct TexelParts<name##1> { using Part = part; static constexpr int count = 1; }; \
    template <> struct TexelParts<name##2> { using Part = part; static constexpr int count = 2; }; \
    template <> struct TexelParts<name##4> { using Part = part; static constexpr int count = 4; };
GF_EMULATOR_TEXEL(char, signed char)
GF_EMULATOR_TEXEL(uchar, unsigned char)
GF_EMULATOR_TEXEL(short, short)
GF_EMULATOR_TEXEL(ushort, unsigned short)
GF_EMULATOR_TEXEL(int, int)
GF_EMULATOR_TEXEL(uint, unsigned)
GF_EMULATOR_TEXEL(float, float)
#undef GF_EMULATOR_TEXEL

struct Neighbours {
    int first, second;
    float weight;  // of the second
};
__forceinline__ Neighbours neighbours(const Texture& texture, float place, int size) {
    const TextureHeader& header = texture.header();
    if (header.normalized) {
        if (header.mode == 0) place -= __builtin_floorf(place);
        place *= float(size);
    }
    if (!header.linear) {
        const int at = texture.inside(int(__builtin_floorf(place)), size);
        return {at, at, 0.0f};
    }
    place -= 0.5f;
    const float whole = __builtin_floorf(place);
    const float weight = __builtin_floorf((place - whole) * 256.0f + 0.5f) / 256.0f;
    return {texture.inside(int(whole), size), texture.inside(int(whole) + 1, size), weight};
}

template <class T>
__forceinline__ T fetched(const Texture& texture, int x, int y, int z) {
    using Parts = TexelParts<T>;
    T value{};
    if (x < 0 || y < 0 || z < 0) return value;
    auto* part = reinterpret_cast<typename Parts::Part*>(&value);
    if constexpr (std::is_same_v<typename Parts::Part, float>) {
        for (int i = 0; i < Parts::count && i < texture.header().channels; i++) part[i] = texture.real(x, y, z, i);
    } else {
        const auto* from = reinterpret_cast<const typename Parts::Part*>(texture.at(x, y, z));
        for (int i = 0; i < Parts::count && i < texture.header().channels; i++) part[i] = from[i];
    }
    return value;
}

template <class T>
__forceinline__ T sampled(unsigned long long handle, float x, float y, float z, int dimensions) {
    using Parts = TexelParts<T>;
    const Texture texture(handle);
    const TextureHeader& header = texture.header();
    const Neighbours zero{0, 0, 0.0f};
    const Neighbours of_x = neighbours(texture, x, header.width),
                     of_y = dimensions > 1 ? neighbours(texture, y, header.height) : zero,
                     of_z = dimensions > 2 ? neighbours(texture, z, header.depth) : zero;
    if constexpr (!std::is_same_v<typename Parts::Part, float>) {
        return fetched<T>(texture, of_x.first, of_y.first, of_z.first);
    } else {
        if (!header.linear) return fetched<T>(texture, of_x.first, of_y.first, of_z.first);
        T sum{};
        auto* part = reinterpret_cast<float*>(&sum);
        for (int corner = 0; corner < 1 << dimensions; corner++) {
            const bool right = corner & 1, low = corner & 2, deep = corner & 4;
            const float weight = (right ? of_x.weight : 1.0f - of_x.weight) * (low ? of_y.weight : 1.0f - of_y.weight) *
                                 (deep ? of_z.weight : 1.0f - of_z.weight);
            const T value = fetched<T>(texture, right ? of_x.second : of_x.first, low ? of_y.second : of_y.first,
                                       deep ? of_z.second : of_z.first);
            for (int i = 0; i < Parts::count; i++) part[i] += weight * reinterpret_cast<const float*>(&value)[i];
        }
        return sum;
    }
}

// The texel at `bytes` of a row; null: outside, and the mode lets it be.
template <class T>
__forceinline__ T* surface_place(unsigned long long handle, int bytes, int y, int z, cudaSurfaceBoundaryMode mode) {
    const Texture surface(handle);
    const TextureHeader& header = surface.header();
    if (bytes % int(sizeof(T))) gf_emulator_trap("a surface's x is no multiple of the element's bytes");
    int x = bytes / int(sizeof(T));
    const int width = header.width * surface.texel_bytes() / int(sizeof(T));
    if (x < 0 || x >= width || y < 0 || y >= header.height || z < 0 || z >= header.depth) {
        if (mode == cudaBoundaryModeTrap) gf_emulator_trap("a surface access out of its bounds");
        if (mode == cudaBoundaryModeZero) return nullptr;
        x = x < 0 ? 0 : x >= width ? width - 1 : x;
        y = y < 0 ? 0 : y >= header.height ? header.height - 1 : y;
        z = z < 0 ? 0 : z >= header.depth ? header.depth - 1 : z;
    }
    return reinterpret_cast<T*>(surface.at(0, y, z)) + x;
}
template <class T>
__forceinline__ T surface_read(unsigned long long handle, int bytes, int y, int z, cudaSurfaceBoundaryMode mode) {
    T* const place = surface_place<T>(handle, bytes, y, z, mode);
    return place ? *place : T{};
}
template <class T>
__forceinline__ void surface_write(T value, unsigned long long handle, int bytes, int y, int z,
                                   cudaSurfaceBoundaryMode mode) {
    if (T* const place = surface_place<T>(handle, bytes, y, z, mode)) *place = value;
}

}  // namespace gf_emulator

template <class T>
__forceinline__ T tex1Dfetch(cudaTextureObject_t texture, int x) {
    const gf_emulator::Texture object(texture);
    return gf_emulator::fetched<T>(object, x < object.header().width ? x : -1, 0, 0);
}
template <class T>
__forceinline__ T tex1D(cudaTextureObject_t texture, float x) {
    return gf_emulator::sampled<T>(texture, x, 0.0f, 0.0f, 1);
}
template <class T>
__forceinline__ T tex2D(cudaTextureObject_t texture, float x, float y) {
    return gf_emulator::sampled<T>(texture, x, y, 0.0f, 2);
}
template <class T>
__forceinline__ T tex2DLod(cudaTextureObject_t texture, float x, float y, float) {
    return tex2D<T>(texture, x, y);
}
template <class T>
__forceinline__ T tex3D(cudaTextureObject_t texture, float x, float y, float z) {
    return gf_emulator::sampled<T>(texture, x, y, z, 3);
}
template <class T>
__forceinline__ void tex1Dfetch(T* value, cudaTextureObject_t texture, int x) { *value = tex1Dfetch<T>(texture, x); }
template <class T>
__forceinline__ void tex2D(T* value, cudaTextureObject_t texture, float x, float y) {
    *value = tex2D<T>(texture, x, y);
}

template <class T>
__forceinline__ T surf1Dread(cudaSurfaceObject_t surface, int x, cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {
    return gf_emulator::surface_read<T>(surface, x, 0, 0, mode);
}
template <class T>
__forceinline__ T surf2Dread(cudaSurfaceObject_t surface, int x, int y,
                             cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {
    return gf_emulator::surface_read<T>(surface, x, y, 0, mode);
}
template <class T>
__forceinline__ T surf3Dread(cudaSurfaceObject_t surface, int x, int y, int z,
                             cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {
    return gf_emulator::surface_read<T>(surface, x, y, z, mode);
}
template <class T>
__forceinline__ void surf1Dread(T* value, cudaSurfaceObject_t surface, int x,
                                cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {
    *value = gf_emulator::surface_read<T>(surface, x, 0, 0, mode);
}
template <class T>
__forceinline__ void surf2Dread(T* value, cudaSurfaceObject_t surface, int x, int y,
                                cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {
    *value = gf_emulator::surface_read<T>(surface, x, y, 0, mode);
}
template <class T>
__forceinline__ void surf1Dwrite(T value, cudaSurfaceObject_t surface, int x,
                                 cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {
    gf_emulator::surface_write<T>(value, surface, x, 0, 0, mode);
}
template <class T>
__forceinline__ void surf2Dwrite(T value, cudaSurfaceObject_t surface, int x, int y,
                                 cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {
    gf_emulator::surface_write<T>(value, surface, x, y, 0, mode);
}
template <class T>
__forceinline__ void surf3Dwrite(T value, cudaSurfaceObject_t surface, int x, int y, int z,
                                 cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {
    gf_emulator::surface_write<T>(value, surface, x, y, z, mode);
}
