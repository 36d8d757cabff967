// check --entry k --block 32 --arg a:int8[64]=65 --arg o:int32[32]:out
__device__ char name[8] = "device";
extern "C" __global__ void k(const char* a, int* o) {
  __shared__ char own[4];
  if (threadIdx.x == 0) { own[0] = 'a'; own[1] = 0; }
  __syncthreads();
  int n = printf("%d %s %-*s%% %5.2f %.3s\n", 1, name, 7, own, 1.0f, "literal");
  n += printf("%s", (const char*)nullptr) + printf("no value %%s\n") + printf("%p %lld", (void*)a, 1ll);
  if (threadIdx.x == 40) printf("%s", a);
  o[threadIdx.x] = n;
}
