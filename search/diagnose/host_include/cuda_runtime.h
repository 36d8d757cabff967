// CUDA's runtime API for programs whose launches are recorded (gf_recorder.h). Every call succeeds.
#pragma once
#include <algorithm>
#include <climits>
#include <cmath>
#include <ctime>

#include "gf_recorder.h"

#define CUDART_VERSION 13000
// Other headers ask for these.
#define __DRIVER_TYPES_H__
#define __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_API_H__
#define __VECTOR_TYPES_H__
#define __host__ __host__ // host_text.py removes it, and keeps the body of such a function
#define __forceinline__ inline
#define __noinline__
#define __align__(bytes) alignas(bytes)
#define __restrict__ __restrict
#define CUDA_CALLBACK
#define CUDART_CB

enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidSymbol = 13,
    cudaErrorInvalidDevicePointer = 17,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600,
    cudaErrorAssert = 710,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorLaunchTimeout = 702,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorUnknown = 999
};
typedef cudaError cudaError_t;
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9, cudaFuncAttributeNonPortableClusterSizeAllowed = 14 };
enum cudaSharedMemConfig { cudaSharedMemBankSizeDefault, cudaSharedMemBankSizeFourByte, cudaSharedMemBankSizeEightByte };
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxBlockDimX = 2,
    cudaDevAttrMaxBlockDimY = 3,
    cudaDevAttrMaxBlockDimZ = 4,
    cudaDevAttrMaxGridDimX = 5,
    cudaDevAttrMaxGridDimY = 6,
    cudaDevAttrMaxGridDimZ = 7,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrTotalConstantMemory = 9,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMaxRegistersPerBlock = 12,
    cudaDevAttrClockRate = 13,
    cudaDevAttrGpuOverlap = 15,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrIntegrated = 18,
    cudaDevAttrCanMapHostMemory = 19,
    cudaDevAttrComputeMode = 20,
    cudaDevAttrConcurrentKernels = 31,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrAsyncEngineCount = 40,
    cudaDevAttrUnifiedAddressing = 41,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrStreamPrioritiesSupported = 78,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxRegistersPerMultiprocessor = 82,
    cudaDevAttrManagedMemory = 83,
    cudaDevAttrPageableMemoryAccess = 88,
    cudaDevAttrConcurrentManagedAccess = 89,
    cudaDevAttrCooperativeLaunch = 95,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrMaxBlocksPerMultiprocessor = 106
};
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4 };
enum { cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2 };
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaMemAttachGlobal = 1, cudaMemAttachHost = 2 };
enum { cudaDeviceScheduleAuto = 0, cudaDeviceScheduleSpin = 1, cudaDeviceScheduleYield = 2, cudaDeviceScheduleBlockingSync = 4, cudaDeviceBlockingSync = 4, cudaDeviceMapHost = 8, cudaDeviceLmemResizeToMax = 16 };
enum cudaLimit { cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize };
enum cudaMemoryAdvise { cudaMemAdviseSetReadMostly = 1, cudaMemAdviseSetPreferredLocation = 3, cudaMemAdviseSetAccessedBy = 5 };
enum cudaComputeMode { cudaComputeModeDefault, cudaComputeModeExclusive, cudaComputeModeProhibited, cudaComputeModeExclusiveProcess };
constexpr int cudaCpuDeviceId = -1;
constexpr cudaStream_t cudaStreamLegacy = nullptr, cudaStreamPerThread = nullptr;

// Of an H200.
struct cudaDeviceProp {
    char name[256] = "NVIDIA H200";
    std::size_t totalGlobalMem = 150754820096u, sharedMemPerBlock = 49152, sharedMemPerMultiprocessor = 233472;
    std::size_t sharedMemPerBlockOptin = 232448, totalConstMem = 65536, memPitch = 2147483647;
    int regsPerBlock = 65536, regsPerMultiprocessor = 65536, warpSize = 32, maxThreadsPerBlock = 1024;
    int maxThreadsDim[3] = {1024, 1024, 64}, maxGridSize[3] = {2147483647, 65535, 65535};
    int major = 9, minor = 0, multiProcessorCount = 132, maxThreadsPerMultiProcessor = 2048, maxBlocksPerMultiProcessor = 32;
    int l2CacheSize = 62914560, persistingL2CacheMaxSize = 39321600, memoryBusWidth = 6144, asyncEngineCount = 3;
    int clockRate = 1980000, memoryClockRate = 3201000, concurrentKernels = 1, managedMemory = 1, concurrentManagedAccess = 1;
    int unifiedAddressing = 1, cooperativeLaunch = 1, canMapHostMemory = 1, integrated = 0, deviceOverlap = 1, computeMode = 0;
    int ECCEnabled = 1, pageableMemoryAccess = 0, kernelExecTimeoutEnabled = 0, tccDriver = 0, pciBusID = 0, pciDeviceID = 0;
    int pciDomainID = 0, streamPrioritiesSupported = 1, globalL1CacheSupported = 1, localL1CacheSupported = 1, isMultiGpuBoard = 0, multiGpuBoardGroupID = 0;
    int hostNativeAtomicSupported = 0, singleToDoublePrecisionPerfRatio = 2, computePreemptionSupported = 1, canUseHostPointerForRegisteredMem = 1;
    int cooperativeMultiDeviceLaunch = 0, pageableMemoryAccessUsesHostPageTables = 0, directManagedMemAccessFromHost = 0, hostRegisterSupported = 1;
    int memoryPoolsSupported = 1, clusterLaunch = 1, unifiedFunctionPointers = 1, accessPolicyMaxWindowSize = 134217728;
    std::size_t textureAlignment = 512, texturePitchAlignment = 32, surfaceAlignment = 512, reservedSharedMemPerBlock = 1024;
    int maxTexture1D = 131072, maxTexture1DLinear = 268435456, maxTexture1DMipmap = 32768, maxTexture2D[2] = {131072, 65536}, maxTexture2DLinear[3] = {131072, 65000, 2097120};
    int maxTexture2DGather[2] = {32768, 32768}, maxTexture3D[3] = {16384, 16384, 16384}, maxTexture1DLayered[2] = {32768, 2048}, maxTexture2DLayered[3] = {32768, 32768, 2048};
    int maxTextureCubemap = 32768, maxTextureCubemapLayered[2] = {32768, 2046}, maxSurface1D = 32768, maxSurface2D[2] = {131072, 65536}, maxSurface3D[3] = {16384, 16384, 16384};
    unsigned char uuid[16] = {};
};

struct cudaPointerAttributes {
    int type, device;
    void *devicePointer, *hostPointer;
};
struct cudaFuncAttributes {
    std::size_t sharedSizeBytes = 0, constSizeBytes = 0, localSizeBytes = 0;
    int maxThreadsPerBlock = 1024, numRegs = 32, ptxVersion = 90, binaryVersion = 90, maxDynamicSharedSizeBytes = 232448;
};

// CUDA declares these outside of any namespace.
#define GF_LEAST_AND_LARGEST(type)                             \
    inline type min(type a, type b) { return b < a ? b : a; } \
    inline type max(type a, type b) { return a < b ? b : a; }
GF_LEAST_AND_LARGEST(int)
GF_LEAST_AND_LARGEST(unsigned int)
GF_LEAST_AND_LARGEST(long)
GF_LEAST_AND_LARGEST(unsigned long)
GF_LEAST_AND_LARGEST(long long)
GF_LEAST_AND_LARGEST(unsigned long long)
GF_LEAST_AND_LARGEST(float)
GF_LEAST_AND_LARGEST(double)
#undef GF_LEAST_AND_LARGEST
#define GF_LEAST_AND_LARGEST_OF_BOTH(one, other)                                     \
    inline other min(one a, other b) { return min(static_cast<other>(a), b); }                   \
    inline other min(other a, one b) { return min(a, static_cast<other>(b)); }                   \
    inline other max(one a, other b) { return max(static_cast<other>(a), b); }                   \
    inline other max(other a, one b) { return max(a, static_cast<other>(b)); }
GF_LEAST_AND_LARGEST_OF_BOTH(int, unsigned int)
GF_LEAST_AND_LARGEST_OF_BOTH(long, unsigned long)
GF_LEAST_AND_LARGEST_OF_BOTH(long long, unsigned long long)
GF_LEAST_AND_LARGEST_OF_BOTH(float, double)
#undef GF_LEAST_AND_LARGEST_OF_BOTH

namespace gf_recorder {
inline cudaError_t copy(void* to, const void* from, std::size_t bytes) {
    std::memmove(to, from, bytes);
    recorder().copied(to, from, bytes);
    return cudaSuccess;
}
inline cudaError_t fill(void* to, int value, std::size_t bytes) {
    std::memset(to, value, bytes);
    recorder().written(to, bytes);
    return cudaSuccess;
}
inline cudaError_t copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t height) {
    for (std::size_t row = 0; row < height; ++row)
        std::memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
    if (height) recorder().copied(to, from, (height - 1) * to_pitch + width);
    return cudaSuccess;
}
template <class T> cudaError_t to_symbol(const char* name, T& symbol, const void* from, std::size_t bytes, std::size_t offset = 0, cudaMemcpyKind = cudaMemcpyDefault, cudaStream_t = nullptr) {
    std::memcpy(reinterpret_cast<char*>(const_cast<typename std::remove_const<T>::type*>(&symbol)) + offset, from, bytes);
    const std::string value = initialiser(symbol);
    if (value.empty()) recorder().unsupported((std::string("a copy to the variable ") + name + ", which has pointers").c_str());
    recorder().symbol(name, value);
    return cudaSuccess;
}
template <class T> cudaError_t from_symbol(void* to, const T& symbol, std::size_t bytes, std::size_t offset = 0, cudaMemcpyKind = cudaMemcpyDefault, cudaStream_t = nullptr) {
    std::memcpy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes);
    return cudaSuccess;
}
template <class... Parameters, std::size_t... at>
void call(void (*kernel)(Parameters...), void** arguments, std::index_sequence<at...>) {
    (void)arguments;
    kernel(*static_cast<typename std::remove_cv<Parameters>::type*>(arguments[at])...);
}
}  // namespace gf_recorder

template <class T> cudaError_t cudaMalloc(T** address, std::size_t bytes) {
    *address = static_cast<T*>(gf_recorder::recorder().allocate(bytes, false));
    return *address ? cudaSuccess : cudaErrorMemoryAllocation;
}
template <class T> cudaError_t cudaMallocAsync(T** address, std::size_t bytes, cudaStream_t) { return cudaMalloc(address, bytes); }
template <class T> cudaError_t cudaMallocManaged(T** address, std::size_t bytes, unsigned = 1) {
    *address = static_cast<T*>(gf_recorder::recorder().allocate(bytes, true));
    return *address ? cudaSuccess : cudaErrorMemoryAllocation;
}
template <class T> cudaError_t cudaMallocPitch(T** address, std::size_t* pitch, std::size_t width, std::size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return cudaMalloc(address, *pitch * height);
}
template <class T> cudaError_t cudaMallocHost(T** address, std::size_t bytes, unsigned = 0) { return cudaMallocManaged(address, bytes); }
template <class T> cudaError_t cudaHostAlloc(T** address, std::size_t bytes, unsigned) { return cudaMallocManaged(address, bytes); }
template <class T, class U> cudaError_t cudaHostGetDevicePointer(T** device, U* host, unsigned) { return *device = (T*)host, cudaSuccess; }
inline cudaError_t cudaFree(void* address) { return gf_recorder::recorder().release(address), cudaSuccess; }
inline cudaError_t cudaFreeAsync(void* address, cudaStream_t) { return cudaFree(address); }
inline cudaError_t cudaFreeHost(void* address) { return cudaFree(address); }
inline cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return cudaSuccess; }
inline cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }

inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) { return gf_recorder::copy(to, from, bytes); }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t = nullptr) { return gf_recorder::copy(to, from, bytes); }
inline cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t height, cudaMemcpyKind) { return gf_recorder::copy_rows(to, to_pitch, from, from_pitch, width, height); }
inline cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t = nullptr) { return gf_recorder::copy_rows(to, to_pitch, from, from_pitch, width, height); }
inline cudaError_t cudaMemset(void* to, int value, std::size_t bytes) { return gf_recorder::fill(to, value, bytes); }
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t = nullptr) { return gf_recorder::fill(to, value, bytes); }
inline cudaError_t cudaMemset2D(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height) {
    for (std::size_t row = 0; row < height; ++row) gf_recorder::fill(static_cast<char*>(to) + row * pitch, value, width);
    return cudaSuccess;
}
inline cudaError_t cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height, cudaStream_t = nullptr) { return cudaMemset2D(to, pitch, value, width, height); }

// Three axes, without CUDA's arrays.
struct cudaExtent { std::size_t width, height, depth; };
struct cudaPos { std::size_t x, y, z; };
struct cudaPitchedPtr { void* ptr; std::size_t pitch, xsize, ysize; };
struct cudaMemcpy3DParms {
    void* srcArray;
    cudaPos srcPos;
    cudaPitchedPtr srcPtr;
    void* dstArray;
    cudaPos dstPos;
    cudaPitchedPtr dstPtr;
    cudaExtent extent;
    cudaMemcpyKind kind;
};
inline cudaExtent make_cudaExtent(std::size_t width, std::size_t height, std::size_t depth) { return {width, height, depth}; }
inline cudaPos make_cudaPos(std::size_t x, std::size_t y, std::size_t z) { return {x, y, z}; }
inline cudaPitchedPtr make_cudaPitchedPtr(void* address, std::size_t pitch, std::size_t width, std::size_t height) { return {address, pitch, width, height}; }
inline cudaError_t cudaMalloc3D(cudaPitchedPtr* memory, cudaExtent extent) {
    *memory = {nullptr, 0, extent.width, extent.height};
    return cudaMallocPitch(&memory->ptr, &memory->pitch, extent.width, extent.height * extent.depth);
}
inline cudaError_t cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent) {
    for (std::size_t layer = 0; layer < extent.depth; ++layer)
        cudaMemset2D(static_cast<char*>(to.ptr) + layer * to.pitch * to.ysize, to.pitch, value, extent.width, extent.height);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* copy) {
    if (copy->srcArray || copy->dstArray) {
        gf_recorder::recorder().unsupported("cudaMemcpy3D of an array");
        return cudaSuccess;
    }
    const auto at = [](const cudaPitchedPtr& memory, const cudaPos& place, std::size_t layer) {
        return static_cast<char*>(memory.ptr) + ((place.z + layer) * memory.ysize + place.y) * memory.pitch + place.x;
    };
    for (std::size_t layer = 0; layer < copy->extent.depth; ++layer)
        gf_recorder::copy_rows(at(copy->dstPtr, copy->dstPos, layer), copy->dstPtr.pitch, at(copy->srcPtr, copy->srcPos, layer), copy->srcPtr.pitch, copy->extent.width, copy->extent.height);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* copy, cudaStream_t = nullptr) { return cudaMemcpy3D(copy); }
inline cudaError_t cudaMemPrefetchAsync(const void*, std::size_t, int, cudaStream_t = nullptr) { return cudaSuccess; }
inline cudaError_t cudaMemAdvise(const void*, std::size_t, cudaMemoryAdvise, int) { return cudaSuccess; }
inline cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* total) { return *left = *total = 150754820096u, cudaSuccess; }
#define cudaMemcpyToSymbol(symbol, ...) gf_recorder::to_symbol(#symbol, symbol, __VA_ARGS__)
#define cudaMemcpyToSymbolAsync(symbol, ...) gf_recorder::to_symbol(#symbol, symbol, __VA_ARGS__)
#define cudaMemcpyFromSymbol(to, symbol, ...) gf_recorder::from_symbol(to, symbol, __VA_ARGS__)
#define cudaMemcpyFromSymbolAsync(to, symbol, ...) gf_recorder::from_symbol(to, symbol, __VA_ARGS__)
template <class U> cudaError_t cudaGetSymbolSize(std::size_t* bytes, const U& symbol) { return *bytes = sizeof symbol, cudaSuccess; }
template <class T, class U> cudaError_t cudaGetSymbolAddress(T** address, U& symbol) {
    gf_recorder::recorder().unsupported("cudaGetSymbolAddress");
    return *address = (T*)&symbol, cudaSuccess;
}

inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "error"; }
inline const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "cudaError"; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaThreadSynchronize() { return cudaSuccess; }
inline cudaError_t cudaThreadExit() { return cudaSuccess; }
inline cudaError_t cudaThreadSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
inline cudaError_t cudaThreadSetLimit(cudaLimit, std::size_t) { return cudaSuccess; }
inline cudaError_t cudaInitDevice(int, unsigned, unsigned) { return cudaSuccess; }
inline cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaGetDeviceFlags(unsigned* flags) { return *flags = cudaDeviceScheduleAuto, cudaSuccess; }
inline cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit) { return *value = limit == cudaLimitStackSize ? 1024 : limit == cudaLimitPrintfFifoSize ? 1048576 : 8388608, cudaSuccess; }
inline cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int) { return std::snprintf(text, length, "0000:00:00.0"), cudaSuccess; }
inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetLimit(cudaLimit, std::size_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* it) { *it = cudaSharedMemBankSizeFourByte; return cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) { return *properties = cudaDeviceProp(), cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    const cudaDeviceProp own;
    switch (attribute) {
    case cudaDevAttrComputeMode: *value = cudaComputeModeDefault; break;
    case cudaDevAttrMaxBlockDimX: *value = own.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *value = own.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *value = own.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *value = own.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = own.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = own.maxGridSize[2]; break;
    case cudaDevAttrTotalConstantMemory: *value = int(own.totalConstMem); break;
    case cudaDevAttrMaxRegistersPerBlock: *value = own.regsPerBlock; break;
    case cudaDevAttrIntegrated: *value = own.integrated; break;
    case cudaDevAttrAsyncEngineCount: *value = own.asyncEngineCount; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = int(own.sharedMemPerMultiprocessor); break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = own.regsPerMultiprocessor; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = own.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = own.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = int(own.sharedMemPerBlock); break;
    case cudaDevAttrWarpSize: *value = own.warpSize; break;
    case cudaDevAttrClockRate: *value = own.clockRate; break;
    case cudaDevAttrMultiProcessorCount: *value = own.multiProcessorCount; break;
    case cudaDevAttrMemoryClockRate: *value = own.memoryClockRate; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = own.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = own.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = own.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = own.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = own.minor; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(own.sharedMemPerBlockOptin); break;
    case cudaDevAttrPageableMemoryAccess: *value = own.pageableMemoryAccess; break;
    default: *value = 1;
    }
    return cudaSuccess;
}
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
    const bool is_device = gf_recorder::recorder().find(address) != nullptr;
    *attributes = {is_device ? 2 : 0, 0, const_cast<void*>(address), const_cast<void*>(address)};
    return cudaSuccess;
}

inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = reinterpret_cast<cudaStream_t>(1), cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) { return cudaStreamCreate(stream); }
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
inline cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) { return *priority = 0, cudaSuccess; }
inline cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* flags) { return *flags = cudaStreamDefault, cudaSuccess; }
inline cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, std::size_t = 0, unsigned = 0) { return cudaSuccess; }
inline cudaError_t cudaStreamAddCallback(cudaStream_t stream, void (*function)(cudaStream_t, cudaError_t, void*), void* data, unsigned) { return function(stream, cudaSuccess, data), cudaSuccess; }
inline cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*function)(void*), void* data) { return function(data), cudaSuccess; }
typedef void (*cudaStreamCallback_t)(cudaStream_t, cudaError_t, void*);
typedef void (*cudaHostFn_t)(void*);
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = reinterpret_cast<cudaEvent_t>(1), cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr) { return cudaSuccess; }
inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t = nullptr, unsigned = 0) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 1.0f, cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }

template <class F> cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute, int) { return cudaSuccess; }
template <class F> cudaError_t cudaFuncSetCacheConfig(F, cudaFuncCache) { return cudaSuccess; }
template <class F> cudaError_t cudaFuncSetSharedMemConfig(F, cudaSharedMemConfig) { return cudaSuccess; }
template <class F> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, F) { return *attributes = cudaFuncAttributes(), cudaSuccess; }
template <class F> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, F, int threads, std::size_t) { return *blocks = std::max(1, 2048 / std::max(threads, 1)), cudaSuccess; }
template <class F> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, F kernel, int threads, std::size_t bytes, unsigned) { return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, bytes); }
template <class F, class B> cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, F, B, int = 0) { return *grid = 264, *block = 1024, cudaSuccess; }
template <class F> cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, F, std::size_t = 0, int = 0) { return *grid = 264, *block = 1024, cudaSuccess; }
template <class... P> cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes = 0, cudaStream_t = nullptr) {
    gf_recorder::configure(grid, block, shared_bytes);
    gf_recorder::call(kernel, arguments, std::index_sequence_for<P...>());
    return cudaSuccess;
}
inline cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t = 0, cudaStream_t = nullptr) {
    gf_recorder::recorder().unsupported("cudaLaunchKernel of a function that was cast to void*");
    return cudaSuccess;
}
template <class K> cudaError_t cudaLaunchCooperativeKernel(K kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) { return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream); }
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
