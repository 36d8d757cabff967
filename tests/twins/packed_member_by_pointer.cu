// check --entry k --block 32 --arg a:float32[256] --arg o:float32[256]:out
// finds misaligned
struct __attribute__((packed)) P { char tag; float x; };
extern "C" __global__ void k(const float* a, float* o) { const P* p = reinterpret_cast<const P*>(a);
  const float* x = &p[threadIdx.x].x; o[threadIdx.x] = *x; }  // <<
