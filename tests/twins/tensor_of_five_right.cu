// check --launch tensor_of_five.toml
#include <cuda.h>
#include <cassert>
#include <cstdint>
struct Word { uint64_t value; };
__device__ static inline void prepare(Word& bar, int thread_count, int transaction_count = 0) {
  void const* const ptr = &bar;
  uint32_t bar_ptr = static_cast<uint32_t>(__cvta_generic_to_shared(ptr));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" :: "r"(bar_ptr), "r"(thread_count + transaction_count));
}
__device__ static inline void wait(Word& sem, int parity) {
  void const* const ptr = &sem;
  uint32_t mbar_ptr = static_cast<uint32_t>(__cvta_generic_to_shared(ptr));
  asm volatile("{\n" ".reg .pred                P1;\n" "LAB_WAIT:\n"
    "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
    "@P1                       bra.uni DONE;\n" "bra.uni                   LAB_WAIT;\n" "DONE:\n" "}\n"
    :: "r"(mbar_ptr), "r"(parity));
}
__device__ static inline void expect_bytes(Word& bar, uint32_t bytes) {
  uint32_t bar_ptr = static_cast<uint32_t>(__cvta_generic_to_shared(&bar));
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" :: "r"(bar_ptr), "r"(bytes));
}
__device__ static inline void load5(void* dst, const CUtensorMap* map, Word& bar, int a, int b, int c, int d, int e) {
  uint64_t tma_ptr = reinterpret_cast<uint64_t>(map);
  uint32_t mbar_ptr = static_cast<uint32_t>(__cvta_generic_to_shared(&bar));
  uint32_t dst_ptr = static_cast<uint32_t>(__cvta_generic_to_shared(dst));
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" :: "r"(dst_ptr), "l"(tma_ptr), "r"(mbar_ptr), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e) : "memory");
}
__device__ static inline void store_add5(const CUtensorMap* map, const void* src, int a, int b, int c, int d, int e) {
  asm volatile("cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group"
    " [%0, {%2, %3, %4, %5, %6}], [%1];" :: "l"(map), "r"((uint32_t)__cvta_generic_to_shared(src)), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e) : "memory");
}
extern "C" __global__ void k(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out) {
  __shared__ alignas(128) float tile[2 * 4 * 8];
  __shared__ Word arrived;
  if (threadIdx.x == 0) { prepare(arrived, 0, 1); asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
  __syncthreads();
  if (threadIdx.x == 0) { expect_bytes(arrived, sizeof tile); load5(tile, &in, arrived, 0, 4, 1, 0, 1); }
  wait(arrived, 0);
  for (int i = threadIdx.x; i < 64; i += 32) tile[i] *= 2;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  if (threadIdx.x == 0) {
    store_add5(&out, tile, 0, 4, 1, 0, 1);
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
