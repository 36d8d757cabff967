// NVTX's marks and ranges, which a checked program may set without effect.
#pragma once
#include <cstddef>
#include <cstdint>

#define NVTX_VERSION 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE std::uint16_t(sizeof(nvtxEventAttributes_t))

typedef std::uint64_t nvtxRangeId_t;
typedef struct nvtxDomain* nvtxDomainHandle_t;
enum { NVTX_COLOR_UNKNOWN, NVTX_COLOR_ARGB };
enum { NVTX_MESSAGE_UNKNOWN, NVTX_MESSAGE_TYPE_ASCII, NVTX_MESSAGE_TYPE_UNICODE };
enum { NVTX_PAYLOAD_UNKNOWN, NVTX_PAYLOAD_TYPE_UNSIGNED_INT64, NVTX_PAYLOAD_TYPE_INT64, NVTX_PAYLOAD_TYPE_DOUBLE };
union nvtxMessageValue_t {
    const char* ascii;
    const wchar_t* unicode;
};
union nvtxPayload {
    std::uint64_t ullValue;
    std::int64_t llValue;
    double dValue;
};
struct nvtxEventAttributes_t {
    std::uint16_t version, size;
    std::uint32_t category;
    std::int32_t colorType;
    std::uint32_t color;
    std::int32_t payloadType, reserved0;
    nvtxPayload payload;
    std::int32_t messageType;
    nvtxMessageValue_t message;
};

template <class... Any> void nvtxMark(Any...) {}
template <class... Any> void nvtxMarkA(Any...) {}
template <class... Any> void nvtxMarkEx(Any...) {}
template <class... Any> int nvtxRangePush(Any...) { return 0; }
template <class... Any> int nvtxRangePushA(Any...) { return 0; }
template <class... Any> int nvtxRangePushW(Any...) { return 0; }
template <class... Any> int nvtxRangePushEx(Any...) { return 0; }
inline int nvtxRangePop() { return 0; }
template <class... Any> nvtxRangeId_t nvtxRangeStart(Any...) { return 0; }
template <class... Any> nvtxRangeId_t nvtxRangeStartA(Any...) { return 0; }
template <class... Any> nvtxRangeId_t nvtxRangeStartEx(Any...) { return 0; }
inline void nvtxRangeEnd(nvtxRangeId_t) {}
template <class... Any> void nvtxNameOsThread(Any...) {}
template <class... Any> void nvtxNameCudaStream(Any...) {}
template <class... Any> nvtxDomainHandle_t nvtxDomainCreateA(Any...) { return nullptr; }
template <class... Any> int nvtxDomainRangePushEx(Any...) { return 0; }
template <class... Any> int nvtxDomainRangePop(Any...) { return 0; }
template <class... Any> void nvtxDomainDestroy(Any...) {}
