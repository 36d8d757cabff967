// check --entry k --block 32 --arg a:float32[256] --arg o:float32[256]:out
// finds misaligned
extern "C" __global__ void k(const float* a, float* o) { 
  float4 v = __ldg(reinterpret_cast<const float4*>(a + threadIdx.x * 4 + 2)); o[threadIdx.x] = v.x; }  // <<
