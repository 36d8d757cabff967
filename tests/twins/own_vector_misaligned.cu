// check --entry k --block 32 --arg a:float32[256] --arg o:float32[256]:out
// finds misaligned
extern "C" __global__ void k(const float* a, float* o) { float s[12];
  for (int i = 0; i < 12; i++) s[i] = a[i + threadIdx.x];
  float4 v = *reinterpret_cast<float4*>(s + 1 + (threadIdx.x & 1)); o[threadIdx.x] = v.x + v.z; }  // <<
