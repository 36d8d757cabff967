// check --entry k --block 32 --arg a:uint8[544]='range(0,9)' --arg o:float32[128]:out --arg b:float4[32]:out
struct __attribute__((packed)) P { char tag; float4 v; };
#pragma pack(push, 1)
struct Q { char tag; int2 pair; float4 v; };
#pragma pack(pop)
struct Aligned { float4 v; char tag; };
__device__ float4 of(const Aligned& p) { return p.v; }
extern "C" __global__ void k(const unsigned char* a, float* o, float4* b) {
  const P& p = reinterpret_cast<const P*>(a)[threadIdx.x];
  b[threadIdx.x] = p.v;
  Q q{1, {2, 3}, make_float4(1, 2, 3, 4)};
  q.v = p.v;
  float4 s; s = {1, 2, 3, 4}; s = p.v;
  const float4 w = of(Aligned{make_float4(q.v.x, 2, 3, 4), 'a'});
  for (int i = 0; i < 3; i++) o[threadIdx.x * 4 + i] = (i ? i == 1 ? p.v.y : p.v.z : p.v.x) + w.x + q.pair.y + s.z + sizeof(Q) + sizeof(P);
  o[threadIdx.x * 4 + 3] = p.v.w;
}
