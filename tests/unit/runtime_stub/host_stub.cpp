// A libcuda for host.cu: its memory is the CPU's, and launches are printed and run nothing. STUB_SM: the GPU, 90 by default.
// STUB_TICKET: the place of an argument that each launch must find zeroed, and does not leave so.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

static int sm()
{
    const char* given = std::getenv("STUB_SM");
    return given ? std::atoi(given) : 90;
}

static char* bytes(CUdeviceptr memory) { return reinterpret_cast<char*>(memory); }

extern "C" {
CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult, const char** name) { *name = "CUDA_ERROR_OF_THE_STUB"; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) { *device = ordinal; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { *context = nullptr; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxSynchronize() { return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice)
{
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? sm() / 10 : sm() % 10;
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* module, const void* image)
{
    *module = nullptr;
    return std::memcmp(image, "\177ELF", 4) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name)
{
    *function = reinterpret_cast<CUfunction>(new std::string(name));
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuMemAlloc(CUdeviceptr* memory, size_t size)
{
    *memory = reinterpret_cast<CUdeviceptr>(std::malloc(size));
    return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr memory) { std::free(bytes(memory)); return CUDA_SUCCESS; }
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t size) { std::memcpy(bytes(to), from, size); return CUDA_SUCCESS; }
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t size) { std::memcpy(to, bytes(from), size); return CUDA_SUCCESS; }
CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t size) { std::memset(bytes(to), value, size); return CUDA_SUCCESS; }
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size, CUstream) { return cuMemsetD8(to, value, size); }
CUresult cuEventCreate(CUevent* event, unsigned) { *event = nullptr; return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent, CUstream) { return CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) { *milliseconds = 1; return CUDA_SUCCESS; }
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned smem, CUstream, void** values, void**)
{
    if (const char* place = std::getenv("STUB_TICKET")) {
        char& ticket = *bytes(*static_cast<CUdeviceptr*>(values[std::atoi(place)]));
        if (ticket != 0)
            return CUDA_ERROR_LAUNCH_FAILED;
        ticket = 1;
    }
    const std::string& name = *reinterpret_cast<std::string*>(function);
    std::printf("launch %s %u %u %u %u %u %u %u\n", name.c_str(), gx, gy, gz, bx, by, bz, smem);
    return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                                const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    return CUDA_SUCCESS;
}
}
