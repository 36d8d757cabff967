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
    std::printf("%s\n", greenfast_attention::refusal(call));
    call.q.strides[2] = 64, call.o.strides[0] = 0;
    std::printf("%s\n", greenfast_attention::refusal(call));
    call.o.strides[0] = 8 * 256 * 64, call.k.data = reinterpret_cast<void*>(0x1002);
    std::printf("%s\n", greenfast_attention::refusal(call));
    call.k.data = call.q.data, call.v.strides[3] = 2;
    std::printf("%s\n", greenfast_attention::refusal(call));
    call.v.strides[3] = 1, call.B = 1, call.q.strides[0] = 3;  // which a batch of one never uses
    std::printf("%d\n", greenfast_attention::refusal(call) == nullptr && greenfast_attention::fits(call));
    uint64_t words[64];
    stub_launch(0, words);
    std::printf("%d %d %d %d %s", served, refused, misfit, stub_launches(), stub_entry(0));
    for (int i = 0; i < 30; ++i)
        std::printf(" %llu", static_cast<unsigned long long>(words[i]));
    std::printf("\n");
}
