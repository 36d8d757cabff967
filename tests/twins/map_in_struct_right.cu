// check --launch map_in_struct.toml
// The kernel takes one struct by value, in which the maps lie at multiples of 64 bytes.
#include <cuda.h>
#include <cstdint>
struct Maps { CUtensorMap x, y; };
struct Params { int rows; Maps maps; float factor; };
__device__ unsigned place(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }
extern "C" __global__ void k(const __grid_constant__ Params p) {
  __shared__ alignas(128) float tile[8][32];
  __shared__ uint64_t bar;
  const int t = threadIdx.x, first = blockIdx.x * p.rows;
  if (t == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place(&bar)));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place(&bar)), "r"(1024) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(place(tile)), "l"(&p.maps.x), "r"(0), "r"(first), "r"(place(&bar)) : "memory");
  }
  __syncwarp();
  asm volatile("{\n.reg .pred p;\nWAIT_%=:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n"
               "@p bra DONE_%=;\nbra WAIT_%=;\nDONE_%=:\n}" ::"r"(place(&bar)) : "memory");
  for (int r = 0; r < 8; r++) tile[r][t] *= p.factor;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  if (t == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
                 ::"l"(&p.maps.y), "r"(place(tile)), "r"(0), "r"(first) : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
}
