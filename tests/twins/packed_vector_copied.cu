// check --entry k --block 32 --arg a:uint8[544]='range(0,9)' --arg o:float32[128]:out
// finds misaligned
struct __attribute__((packed)) P { char tag; float4 v; };
extern "C" __global__ void k(const unsigned char* a, float* o) {
  const P& p = reinterpret_cast<const P*>(a)[threadIdx.x];
  const float4 v = p.v;  // <<
  o[threadIdx.x] = v.x;
}
