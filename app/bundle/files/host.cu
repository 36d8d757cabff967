// Runs and times kernel.cu from C++. Compile this file alone:
//
//   nvcc -std=c++17 -arch=sm_90 -o host host.cu && ./host
//
// README.txt names the GPU's own -arch. No library but the runtime is linked, also for kernels that take tensor maps.
//
// It fills the inputs with fixed pseudo-random numbers in [-1, 1), launches every workload of launch.h, and prints the
// time of one pass and a checksum of each output. It fails only on NaN; run_cupy.py checks the values.
#include "kernel.cu"
#include "launch.h"

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static void check(cudaError_t error, const char* what)
{
    if (error == cudaSuccess)
        return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
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

// Device memory for one argument: inputs filled, outputs full of NaN, workspaces zeroed where the kernel needs it.
static void* allocate(const Argument& argument, uint32_t seed)
{
    void* memory = nullptr;
    check(cudaMalloc(&memory, std::max<long long>(argument.bytes, 16)), argument.name);
    if (argument.kind == Kind::input) {
        const size_t size = element_bytes(argument.type);
        std::vector<char> host(argument.bytes);
        for (size_t at = 0; at < host.size(); at += size)
            store(host.data() + at, argument.type, next_value(seed));
        check(cudaMemcpy(memory, host.data(), host.size(), cudaMemcpyHostToDevice), argument.name);
    } else {
        check(cudaMemset(memory, argument.zero_fill ? 0 : 0xFF, std::max<long long>(argument.bytes, 16)), argument.name);
    }
    return memory;
}

// Storage for the value of one argument; cudaLaunchKernel reads the argument from its address.
struct Value { void* pointer; int64_t as_long; int32_t as_int; float as_float; double as_double; CUtensorMap as_map; };

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

// The driver's cuTensorMapEncodeTiled, through the runtime.
static auto map_encoder()
{
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found), "driver");
#else
    check(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found), "driver");
#endif
    if (found != cudaDriverEntryPointSuccess) {
        std::fprintf(stderr, "the driver has no tensor maps\n");
        std::exit(1);
    }
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
}

// The tensor map of `argument` for a tensor at `address`.
static CUtensorMap encode(const Argument& argument, void* address)
{
    static const auto encoder = map_encoder();
    const TensorMapNumbers& map = *argument.map;
    const unsigned element_strides[5] = {1, 1, 1, 1, 1};
    const cuuint64_t *sizes = reinterpret_cast<const cuuint64_t*>(map.sizes);
    const cuuint64_t *strides = reinterpret_cast<const cuuint64_t*>(map.strides_bytes);
    CUtensorMap encoded;
    const CUresult result = encoder(
        &encoded, map_type(argument.type), map.rank, address, sizes, strides, map.box, element_strides,
        CU_TENSOR_MAP_INTERLEAVE_NONE, map_swizzle(map.swizzle_bytes), map_promotion(map.l2_promotion_bytes),
        map.fill_nan ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "tensor map %s: the driver's error %d\n", argument.name, static_cast<int>(result));
        std::exit(1);
    }
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

static void launch_all(const Workload& workload, void** values)
{
    for (int i = 0; i < workload.launch_count; ++i) {
        const Launch& launch = workload.launches[i];
        check(cudaLaunchKernel(launch.entry, dim3(launch.grid[0], launch.grid[1], launch.grid[2]),
                               dim3(launch.block[0], launch.block[1], launch.block[2]), values,
                               launch.smem_dynamic_bytes, nullptr),
              "launch");
    }
}

// Microseconds of one pass: the median of several batches, after a warm-up. Inputs stay in L2 when they fit.
static double time_us(const Workload& workload, void** values)
{
    const int batches = 15, passes = 50;
    std::vector<double> times;
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    for (int batch = 0; batch < batches; ++batch) {
        check(cudaEventRecord(begin), "event");
        for (int pass = 0; pass < passes; ++pass)
            launch_all(workload, values);
        check(cudaEventRecord(end), "event");
        check(cudaEventSynchronize(end), "run");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
        times.push_back(milliseconds * 1000.0 / passes);
    }
    std::nth_element(times.begin(), times.begin() + batches / 2, times.end());
    return times[batches / 2];
}

static bool report(const Argument& argument, const void* memory)
{
    std::vector<char> host(argument.bytes);
    check(cudaMemcpy(host.data(), memory, host.size(), cudaMemcpyDeviceToHost), argument.name);
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

static bool run(const Workload& workload)
{
    std::vector<Value> storage(workload.argument_count);
    std::vector<void*> values(workload.argument_count);
    for (int i = 0; i < workload.argument_count; ++i) {
        const Argument& argument = workload.arguments[i];
        storage[i].pointer = nullptr;
        if (argument.kind == Kind::tensor_map)
            storage[i].as_map = encode(argument, storage[argument.map->argument].pointer);  // after its tensor
        else if (argument.kind != Kind::scalar)
            storage[i].pointer = allocate(argument, 1u + i);
        values[i] = value_of(argument, storage[i]);
    }
    for (int i = 0; i < workload.launch_count; ++i)
        check(cudaFuncSetAttribute(workload.launches[i].entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   workload.launches[i].smem_dynamic_bytes), "shared memory");
    launch_all(workload, values.data());
    check(cudaDeviceSynchronize(), "run");
    const double microseconds = time_us(workload, values.data());
    std::printf("%s: %.2f us, %.2f TFLOP/s, %.0f GB/s\n", workload.name, microseconds,
                workload.flop / microseconds * 1e-6, workload.bytes / microseconds * 1e-3);
    bool finite = true;
    for (int i = 0; i < workload.argument_count; ++i) {
        if (workload.arguments[i].kind == Kind::output)
            finite = report(workload.arguments[i], storage[i].pointer) && finite;
        if (storage[i].pointer != nullptr)
            check(cudaFree(storage[i].pointer), "free");
    }
    return finite;
}

int main()
{
    bool finite = true;
    for (const Workload& workload : workloads)
        finite = run(workload) && finite;
    return finite ? 0 : 1;
}
