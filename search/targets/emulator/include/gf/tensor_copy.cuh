// Emulated form of gf/tensor_copy.cuh: a map holds the launch's numbers (native/tensor_map.h), and bytes land late.
#pragma once
#include "gf/mbarrier.cuh"

namespace gf {

struct alignas(64) TensorMap {
    unsigned long long words[16];
};

namespace emulated {
template <class... Coordinates>
__device__ __forceinline__ void tensor_load(void* shared, const TensorMap* map, unsigned long long* barrier,
                                            const unsigned* rank_mask, Coordinates... coordinates) {
    const int at[] = {coordinates...};
    gf_emulator_tensor_load(shared, map, barrier, rank_mask, int(sizeof...(Coordinates)), at);
}
template <class... Coordinates>
__device__ __forceinline__ void tensor_store(const TensorMap* map, const void* shared, Coordinates... coordinates) {
    const int at[] = {coordinates...};
    gf_emulator_tensor_store(map, shared, int(sizeof...(Coordinates)), at);
}
}  // namespace emulated

__device__ __forceinline__ void tensor_load(void* shared, const TensorMap* map, unsigned long long* barrier,
                                            int c0) {
    emulated::tensor_load(shared, map, barrier, nullptr, c0);
}
__device__ __forceinline__ void tensor_load_multicast(void* shared, const TensorMap* map,
                                                      unsigned long long* barrier, unsigned short rank_mask,
                                                      int c0) {
    const unsigned mask = rank_mask;
    emulated::tensor_load(shared, map, barrier, &mask, c0);
}
__device__ __forceinline__ void tensor_store(const TensorMap* map, const void* shared, int c0) {
    emulated::tensor_store(map, shared, c0);
}

__device__ __forceinline__ void tensor_load(void* shared, const TensorMap* map, unsigned long long* barrier,
                                            int c0, int c1) {
    emulated::tensor_load(shared, map, barrier, nullptr, c0, c1);
}
__device__ __forceinline__ void tensor_load_multicast(void* shared, const TensorMap* map,
                                                      unsigned long long* barrier, unsigned short rank_mask,
                                                      int c0, int c1) {
    const unsigned mask = rank_mask;
    emulated::tensor_load(shared, map, barrier, &mask, c0, c1);
}
__device__ __forceinline__ void tensor_store(const TensorMap* map, const void* shared, int c0, int c1) {
    emulated::tensor_store(map, shared, c0, c1);
}

__device__ __forceinline__ void tensor_load(void* shared, const TensorMap* map, unsigned long long* barrier,
                                            int c0, int c1, int c2) {
    emulated::tensor_load(shared, map, barrier, nullptr, c0, c1, c2);
}
__device__ __forceinline__ void tensor_load_multicast(void* shared, const TensorMap* map,
                                                      unsigned long long* barrier, unsigned short rank_mask,
                                                      int c0, int c1, int c2) {
    const unsigned mask = rank_mask;
    emulated::tensor_load(shared, map, barrier, &mask, c0, c1, c2);
}
__device__ __forceinline__ void tensor_store(const TensorMap* map, const void* shared, int c0, int c1, int c2) {
    emulated::tensor_store(map, shared, c0, c1, c2);
}

__device__ __forceinline__ void tensor_load(void* shared, const TensorMap* map, unsigned long long* barrier,
                                            int c0, int c1, int c2, int c3) {
    emulated::tensor_load(shared, map, barrier, nullptr, c0, c1, c2, c3);
}
__device__ __forceinline__ void tensor_load_multicast(void* shared, const TensorMap* map,
                                                      unsigned long long* barrier, unsigned short rank_mask,
                                                      int c0, int c1, int c2, int c3) {
    const unsigned mask = rank_mask;
    emulated::tensor_load(shared, map, barrier, &mask, c0, c1, c2, c3);
}
__device__ __forceinline__ void tensor_store(const TensorMap* map, const void* shared, int c0, int c1, int c2, int c3) {
    emulated::tensor_store(map, shared, c0, c1, c2, c3);
}

__device__ __forceinline__ void tensor_prefetch(const TensorMap*) {}

__device__ __forceinline__ void bulk_load(void* shared, const void* global, unsigned bytes,
                                          unsigned long long* barrier) {
    gf_emulator_bulk_load(shared, global, bytes, barrier);
}
__device__ __forceinline__ void bulk_store(void* global, const void* shared, unsigned bytes) {
    gf_emulator_bulk_store(global, shared, bytes);
}

__device__ __forceinline__ void bulk_commit() { gf_emulator_bulk_commit(); }
template <int groups_left_in_flight>
__device__ __forceinline__ void bulk_wait() {
    gf_emulator_bulk_wait(groups_left_in_flight, false);
}
template <int groups_left_in_flight>
__device__ __forceinline__ void bulk_wait_read() {
    gf_emulator_bulk_wait(groups_left_in_flight, true);
}

__device__ __forceinline__ void proxy_fence_shared() { gf_emulator_proxy_fence(true, false); }
__device__ __forceinline__ void proxy_fence() { gf_emulator_proxy_fence(true, true); }

}  // namespace gf
