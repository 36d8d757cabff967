// A libcuda that runs nothing: an H200 whose launches are written down for tests to read.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

struct Config {
    unsigned grid[3], block[3], smem;
    void* stream;
    void* attributes;
    unsigned attribute_count;
};

struct Launch {
    Config config;
    void* function;
    std::vector<uint64_t> arguments;
};

static std::mutex guard;
static std::vector<Launch> launches;
static std::vector<std::string> functions;
static std::map<void*, unsigned> allowed;  // dynamic shared memory that a function has asked for
static std::vector<std::vector<uint64_t>> images_seen;
static uint64_t memset_count = 0, encoded_count = 0;
static int map_argument = -1;  // whose 16 words follow a launch's arguments
static int refuse_images = 0;
static int argument_count = 20;  // words read of each launch
static thread_local void* context = nullptr;
static thread_local int capture_mode = 0;

extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) { *count = 1; return 0; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return ordinal == 0 ? 0 : 101; }
int cuDeviceGetName(char* name, int size, int) {
    const char* given = std::getenv("STUB_GPU_NAME");
    std::snprintf(name, size, "%s", given ? given : "NVIDIA H200");
    return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int)
{
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : attribute == 97 ? 232448 : 0;
    return 0;
}
int cuCtxGetCurrent(void** current) { *current = context; return 0; }
int cuCtxGetDevice(int* device) { *device = 0; return context != nullptr ? 0 : 201; }
int cuDevicePrimaryCtxRetain(void** primary, int) { *primary = reinterpret_cast<void*>(0x77); return 0; }
int cuCtxPushCurrent_v2(void* pushed) { context = pushed; return 0; }
int cuCtxPopCurrent_v2(void** popped) { *popped = context; context = nullptr; return 0; }
int cuThreadExchangeStreamCaptureMode(int* mode)
{
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return 0;
}
int cuModuleLoadData(void** module, const void* image)
{
    if (capture_mode != 2)
        return 900;  // as if this thread captured: cudaErrorStreamCaptureUnsupported
    if (refuse_images || std::memcmp(image, "\177ELF", 4) != 0)
        return 222;
    *module = const_cast<void*>(image);
    return 0;
}
int cuModuleGetFunction(void** function, void*, const char* name)
{
    std::lock_guard<std::mutex> lock(guard);
    functions.push_back(name);
    *function = reinterpret_cast<void*>(functions.size());
    return 0;
}
int cuFuncSetAttribute(void* function, int attribute, int value)
{
    std::lock_guard<std::mutex> lock(guard);
    if (attribute == 8)
        allowed[function] = value;
    return 0;
}
int cuMemsetD8Async(uint64_t, unsigned char, size_t, void*) { ++memset_count; return 0; }
// As 16 words: address, rank, type, swizzle, promotion, fill, then sizes, strides and box of up to three axes.
int cuTensorMapEncodeTiled(uint64_t* map, int type, unsigned rank, void* address, const uint64_t* sizes, const uint64_t* strides,
                           const unsigned* box, const unsigned*, int, int swizzle, int promotion, int fill)
{
    for (unsigned axis = 1; axis < rank; ++axis)
        if (strides[axis - 1] >= uint64_t(1) << 40)
            return 1;
    if (reinterpret_cast<uintptr_t>(map) % 64 != 0)
        return 1;
    ++encoded_count;
    std::memset(map, 0, 128);
    map[0] = reinterpret_cast<uint64_t>(address), map[1] = rank, map[2] = type, map[3] = swizzle, map[4] = promotion, map[5] = fill;
    for (unsigned axis = 0; axis < rank && axis < 3; ++axis) {
        map[6 + axis] = sizes[axis];
        map[9 + axis] = axis > 0 ? strides[axis - 1] : 0;
        map[12 + axis] = box[axis];
    }
    return 0;
}
int cuGetErrorName(int status, const char** name)
{
    *name = status == 222 ? "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" : status == 201 ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR_UNKNOWN";
    return 0;
}
int cuLaunchKernelEx(const Config* config, void* function, void** params, void**)
{
    if (context == nullptr)
        return 201;
    // Each function declares 48 KB of its own, so that what it takes at launch has to be allowed.
    std::unique_lock<std::mutex> of_functions(guard);
    if (config->smem > allowed[function])
        return 1;
    of_functions.unlock();
    Launch launch{*config, function, {}};
    for (int i = 0; i < argument_count; ++i)
        launch.arguments.push_back(*static_cast<const uint64_t*>(params[i]));
    for (int i = 0; map_argument >= 0 && i < 16; ++i)
        launch.arguments.push_back(static_cast<const uint64_t*>(params[map_argument])[i]);
    std::lock_guard<std::mutex> lock(guard);
    launches.push_back(launch);
    return 0;
}

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned smem,
                   void* stream, void** params, void** extra)
{
    const Config config{{gx, gy, gz}, {bx, by, bz}, smem, stream, nullptr, 0};
    return cuLaunchKernelEx(&config, function, params, extra);
}

// What tests ask.
void stub_reset(int arguments, int refuse) { launches.clear(); memset_count = 0; map_argument = -1; argument_count = arguments; refuse_images = refuse; }
void stub_enter() { context = reinterpret_cast<void*>(0x77); }
void stub_leave() { context = nullptr; }
int stub_launches() { return static_cast<int>(launches.size()); }
void stub_show_map(int argument) { map_argument = argument; encoded_count = 0; }
uint64_t stub_encoded() { return encoded_count; }
uint64_t stub_memsets() { return memset_count; }
const char* stub_entry(int i) { return functions[reinterpret_cast<uintptr_t>(launches[i].function) - 1].c_str(); }
void stub_launch(int i, uint64_t* out)
{
    const Launch& launch = launches[i];
    for (int axis = 0; axis < 3; ++axis) {
        out[axis] = launch.config.grid[axis];
        out[3 + axis] = launch.config.block[axis];
    }
    out[6] = launch.config.smem;
    out[7] = reinterpret_cast<uint64_t>(launch.config.stream);
    for (size_t j = 0; j < launch.arguments.size(); ++j)
        out[8 + j] = launch.arguments[j];
}
}
