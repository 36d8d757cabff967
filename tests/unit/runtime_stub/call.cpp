// Calls the generated header on the stub and prints the launches.
#include "greenfast_attention.h"

#include <cstdio>

extern "C" {
void stub_reset(int arguments, int refuse);
void stub_enter();
int stub_launches();
const char* stub_entry(int i);
void stub_launch(int i, uint64_t* out);
}

int main()
{
    stub_reset(22, 0);
    stub_enter();
    greenfast_attention::Call call;
    call.B = 2, call.H = call.H_kv = 8, call.S_q = call.S_kv = 256, call.D = 64;
    call.dtype = "bf16";
    for (auto* tensor : {&call.q, &call.k, &call.v, &call.o}) {
        tensor->data = reinterpret_cast<void*>(0x1000);
        tensor->strides[0] = 8 * 256 * 64, tensor->strides[1] = 256 * 64, tensor->strides[2] = 64, tensor->strides[3] = 1;
    }
    const int served = greenfast_attention::launch(call, reinterpret_cast<CUstream>(7));
    call.S_kv = 4096;
    const int refused = greenfast_attention::launch(call, nullptr);
    call.q.strides[2] = 65;
    const int misfit = greenfast_attention::launch(call, nullptr);
    uint64_t words[64];
    stub_launch(0, words);
    std::printf("%d %d %d %d %s", served, refused, misfit, stub_launches(), stub_entry(0));
    for (int i = 0; i < 30; ++i)
        std::printf(" %llu", static_cast<unsigned long long>(words[i]));
    std::printf("\n");
}
