// Loads, runs and times the kernel from C++, through CUDA's driver API:
//
//   nvcc -std=c++17 -o host host.cu -lcuda && ./host
//
// It loads machine code, kernel.sm_XX.cubin of the current folder. No text of kernel.cu is compiled into this program: a
// text can hold code for the CPU that NVRTC does not see, so that no check has read it. Where the folder has no machine
// code for your GPU, the program prints the command that makes it.
//
// It fills the inputs with fixed pseudo-random numbers in [-1, 1), launches every workload of launch.h, and prints the
// time of one pass and a checksum of each output. It fails only on NaN; run_cupy.py checks the values.
#include "launch.h"

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

static void check(CUresult result, const char* what)
{
    if (result == CUDA_SUCCESS)
        return;
    const char* name = nullptr;
    cuGetErrorName(result, &name);
    std::fprintf(stderr, "%s: %s\n", what, name != nullptr ? name : "an error that the driver has no name for");
    std::exit(1);
}

static std::string contents(const std::string& file_name)
{
    std::ifstream file(file_name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The machine code of this folder that runs on the GPU: for its architecture, or for a lower minor version of it.
// Code for sm_90a runs on sm_90 alone.
static CUmodule load_module(CUdevice device)
{
    int major = 0, minor = 0;
    check(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "device");
    check(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), "device");
    const std::string wanted = compiled_arch;
    const bool exact = !wanted.empty() && wanted.back() == 'a';
    const auto arch = [&](int lower) { return "sm_" + std::to_string(10 * major + lower) + (exact ? "a" : ""); };
    for (int lower = minor; lower >= (exact ? minor : 0); --lower) {
        const std::string name = "kernel." + arch(lower) + ".cubin", image = contents(name);
        CUmodule module = nullptr;
        if (image.empty())
            continue;
        check(cuModuleLoadData(&module, image.c_str()), name.c_str());
        return module;
    }
    const std::string own = arch(minor);
    if (exact && own != wanted)
        std::fprintf(stderr, "the kernel is written for %s alone, and this GPU is sm_%d%d\n", wanted.c_str(), major, minor);
    else
        std::fprintf(stderr, "this folder has no machine code for this GPU; to make it, run\n"
                             "  nvcc -std=c++17 -cubin -arch=%s -o kernel.%s.cubin kernel.cu\n", own.c_str(), own.c_str());
    std::exit(1);
}

static size_t element_bytes(Type type)
{
    switch (type) {
    case Type::uint8: case Type::int8: return 1;
    case Type::fp16: case Type::bf16: case Type::int16: return 2;
    case Type::int64: case Type::float64: return 8;
    default: return 4;
    }
}

// Uniform in [-1, 1): a linear congruential generator (the constants of Numerical Recipes).
static float next_value(uint32_t& state)
{
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
}

static void store(char* at, Type type, float value)
{
    const __half as_half = __float2half(value);
    const __nv_bfloat16 as_bfloat = __float2bfloat16(value);
    const int32_t as_int = static_cast<int32_t>(value * 100);
    const int64_t as_long = as_int;
    const int16_t as_short = static_cast<int16_t>(as_int);
    const int8_t as_small = static_cast<int8_t>(as_int);
    const double as_double = value;
    const uint8_t as_byte = (value < 0 ? 0x80 : 0) | static_cast<uint8_t>(std::fabs(value) * 64);  // up to 2 in e4m3 and e5m2
    switch (type) {
    case Type::fp16: std::memcpy(at, &as_half, 2); break;
    case Type::bf16: std::memcpy(at, &as_bfloat, 2); break;
    case Type::float32: std::memcpy(at, &value, 4); break;
    case Type::float64: std::memcpy(at, &as_double, 8); break;
    case Type::int8: std::memcpy(at, &as_small, 1); break;
    case Type::int16: std::memcpy(at, &as_short, 2); break;
    case Type::int32: std::memcpy(at, &as_int, 4); break;
    case Type::uint8: std::memcpy(at, &as_byte, 1); break;
    default: std::memcpy(at, &as_long, 8); break;
    }
}

static double load(const char* at, Type type)
{
    __half as_half;
    __nv_bfloat16 as_bfloat;
    float as_float;
    int32_t as_int;
    int64_t as_long;
    int16_t as_short;
    double as_double;
    switch (type) {
    case Type::fp16: std::memcpy(&as_half, at, 2); return __half2float(as_half);
    case Type::bf16: std::memcpy(&as_bfloat, at, 2); return __bfloat162float(as_bfloat);
    case Type::float32: std::memcpy(&as_float, at, 4); return as_float;
    case Type::int32: std::memcpy(&as_int, at, 4); return as_int;
    case Type::float64: std::memcpy(&as_double, at, 8); return as_double;
    case Type::int8: return static_cast<signed char>(*at);
    case Type::int16: std::memcpy(&as_short, at, 2); return as_short;
    case Type::uint8: return static_cast<unsigned char>(*at);
    default: std::memcpy(&as_long, at, 8); return static_cast<double>(as_long);
    }
}

// Device memory for one argument: inputs filled, outputs and workspaces full of NaN.
static CUdeviceptr allocate(const Argument& argument, uint32_t seed)
{
    CUdeviceptr memory = 0;
    const size_t bytes = std::max<long long>(argument.bytes, 16);
    check(cuMemAlloc(&memory, bytes), argument.name);
    if (argument.kind == Kind::input) {
        const size_t size = element_bytes(argument.type);
        std::vector<char> host(argument.bytes);
        for (size_t at = 0; at < host.size(); at += size)
            store(host.data() + at, argument.type, next_value(seed));
        check(cuMemcpyHtoD(memory, host.data(), host.size()), argument.name);
    } else {
        check(cuMemsetD8(memory, 0xFF, bytes), argument.name);
    }
    return memory;
}

// Storage for the value of one argument; cuLaunchKernel reads the argument from its address.
struct Value { CUdeviceptr pointer; int64_t as_long; int32_t as_int; float as_float; double as_double; CUtensorMap as_map; };

static CUtensorMapDataType map_type(Type type)
{
    switch (type) {
    case Type::fp16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case Type::bf16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case Type::float32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case Type::float64: return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case Type::int16: return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    case Type::int32: return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case Type::int64: return CU_TENSOR_MAP_DATA_TYPE_INT64;
    default: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    }
}

static CUtensorMapSwizzle map_swizzle(int bytes)
{
    return bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
         : bytes == 32  ? CU_TENSOR_MAP_SWIZZLE_32B  : CU_TENSOR_MAP_SWIZZLE_NONE;
}

static CUtensorMapL2promotion map_promotion(int bytes)
{
    return bytes == 256 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : bytes == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
         : bytes == 64  ? CU_TENSOR_MAP_L2_PROMOTION_L2_64B  : CU_TENSOR_MAP_L2_PROMOTION_NONE;
}

// The tensor map of `argument` for a tensor at `address`.
static CUtensorMap encode(const Argument& argument, CUdeviceptr address)
{
    const TensorMapNumbers& map = *argument.map;
    const unsigned element_strides[5] = {1, 1, 1, 1, 1};
    const cuuint64_t *sizes = reinterpret_cast<const cuuint64_t*>(map.sizes);
    const cuuint64_t *strides = reinterpret_cast<const cuuint64_t*>(map.strides_bytes);
    CUtensorMap encoded;
    check(cuTensorMapEncodeTiled(
        &encoded, map_type(argument.type), map.rank, reinterpret_cast<void*>(address), sizes, strides, map.box, element_strides,
        CU_TENSOR_MAP_INTERLEAVE_NONE, map_swizzle(map.swizzle_bytes), map_promotion(map.l2_promotion_bytes),
        map.fill_nan ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        argument.name);
    return encoded;
}

static void* value_of(const Argument& argument, Value& value)
{
    if (argument.kind == Kind::tensor_map)
        return &value.as_map;
    if (argument.kind != Kind::scalar)
        return &value.pointer;
    value.as_long = argument.whole;
    value.as_int = static_cast<int32_t>(argument.whole);
    value.as_float = static_cast<float>(argument.real);
    value.as_double = argument.real;
    if (argument.type == Type::float32)
        return &value.as_float;
    if (argument.type == Type::float64)
        return &value.as_double;
    return argument.type == Type::int64 ? static_cast<void*>(&value.as_long) : static_cast<void*>(&value.as_int);
}

// A workload on the device: the function of each launch, where the value of each argument is, and the arguments whose
// memory each pass must find zeroed.
struct Zeroed { CUdeviceptr memory; size_t bytes; };
struct Prepared {
    const Workload& workload;
    std::vector<CUfunction> functions;
    std::vector<void*> values;
    std::vector<Zeroed> zeroed;
};

static std::vector<CUfunction> functions_of(const Workload& workload, CUmodule module)
{
    std::vector<CUfunction> functions(workload.launch_count);
    for (int i = 0; i < workload.launch_count; ++i) {
        const Launch& launch = workload.launches[i];
        check(cuModuleGetFunction(&functions[i], module, launch.entry), launch.entry);
        check(cuFuncSetAttribute(functions[i], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.smem_dynamic_bytes),
              "shared memory");
    }
    return functions;
}

// One pass. Clusters are declared in the source, so a launch has no attributes.
static void launch_all(Prepared& prepared)
{
    for (const Zeroed& each : prepared.zeroed)
        check(cuMemsetD8Async(each.memory, 0, each.bytes, nullptr), "zeroed workspace");
    for (int i = 0; i < prepared.workload.launch_count; ++i) {
        const Launch& launch = prepared.workload.launches[i];
        check(cuLaunchKernel(prepared.functions[i], launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                             launch.block[1], launch.block[2], launch.smem_dynamic_bytes, nullptr, prepared.values.data(),
                             nullptr),
              launch.entry);
    }
}

// Microseconds of one pass: the median of several batches, after a warm-up. Inputs stay in L2 when they fit.
static double time_us(Prepared& prepared)
{
    const int batches = 15, passes = 50;
    std::vector<double> times;
    CUevent begin, end;
    check(cuEventCreate(&begin, CU_EVENT_DEFAULT), "event");
    check(cuEventCreate(&end, CU_EVENT_DEFAULT), "event");
    for (int batch = 0; batch < batches; ++batch) {
        check(cuEventRecord(begin, nullptr), "event");
        for (int pass = 0; pass < passes; ++pass)
            launch_all(prepared);
        check(cuEventRecord(end, nullptr), "event");
        check(cuEventSynchronize(end), "run");
        float milliseconds = 0;
        check(cuEventElapsedTime(&milliseconds, begin, end), "event");
        times.push_back(milliseconds * 1000.0 / passes);
    }
    std::nth_element(times.begin(), times.begin() + batches / 2, times.end());
    return times[batches / 2];
}

static bool report(const Argument& argument, CUdeviceptr memory)
{
    std::vector<char> host(argument.bytes);
    check(cuMemcpyDtoH(host.data(), memory, host.size()), argument.name);
    double sum = 0;
    long long bad = 0;
    for (size_t at = 0; at < host.size(); at += element_bytes(argument.type)) {
        const double value = load(host.data() + at, argument.type);
        bad += std::isnan(value);
        sum += std::isfinite(value) ? value : 0;
    }
    std::printf("  %-8s sum %.6g, %lld elements are NaN\n", argument.name, sum, bad);
    return bad == 0;
}

static bool run(const Workload& workload, CUmodule module)
{
    std::vector<Value> storage(workload.argument_count);
    Prepared prepared{workload, functions_of(workload, module), std::vector<void*>(workload.argument_count), {}};
    for (int i = 0; i < workload.argument_count; ++i) {
        const Argument& argument = workload.arguments[i];
        storage[i].pointer = 0;
        if (argument.kind == Kind::tensor_map)
            storage[i].as_map = encode(argument, storage[argument.map->argument].pointer);  // after its tensor
        else if (argument.kind != Kind::scalar)
            storage[i].pointer = allocate(argument, 1u + i);
        if (argument.zero_fill && argument.bytes > 0)
            prepared.zeroed.push_back({storage[i].pointer, static_cast<size_t>(argument.bytes)});
        prepared.values[i] = value_of(argument, storage[i]);
    }
    launch_all(prepared);
    check(cuCtxSynchronize(), "run");
    const double microseconds = time_us(prepared);
    std::printf("%s: %.2f us, %.2f TFLOP/s, %.0f GB/s\n", workload.name, microseconds,
                workload.flop / microseconds * 1e-6, workload.bytes / microseconds * 1e-3);
    bool finite = true;
    for (int i = 0; i < workload.argument_count; ++i) {
        if (workload.arguments[i].kind == Kind::output)
            finite = report(workload.arguments[i], storage[i].pointer) && finite;
        if (storage[i].pointer != 0)
            check(cuMemFree(storage[i].pointer), "free");
    }
    return finite;
}

int main()
{
    CUdevice device;
    CUcontext context;
    check(cuInit(0), "driver");
    check(cuDeviceGet(&device, 0), "device");
    check(cuDevicePrimaryCtxRetain(&context, device), "device");
    check(cuCtxSetCurrent(context), "device");
    CUmodule module = load_module(device);
    bool finite = true;
    for (const Workload& workload : workloads)
        finite = run(workload, module) && finite;
    return finite ? 0 : 1;
}
