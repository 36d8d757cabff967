// check --entry k --block 32 --arg a:float32[256] --arg o:float32[256]:out
// finds misaligned
extern "C" __global__ void k(const float* a, float* o) { o[threadIdx.x] = 0; if (threadIdx.x == 0) {
  float4 v = *reinterpret_cast<const float4*>(a + 1); o[0] = v.x + v.w; } }  // <<
