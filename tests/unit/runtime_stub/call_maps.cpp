// Calls the generated header of a kernel with tensor maps on the stub, and prints the maps of its launches.
#include "greenfast_attention.h"

#include <cstdio>

extern "C" {
void stub_reset(int arguments, int refuse);
void stub_enter();
void stub_show_map(int argument);
int stub_launches();
void stub_launch(int i, uint64_t* out);
}

int main()
{
    for (int map = 22; map < 25; ++map) {
        stub_reset(22, 0);
        stub_enter();
        stub_show_map(map);
        greenfast_attention::Call call;
        call.B = 1, call.H = 8, call.H_kv = 4, call.S_q = 256, call.S_kv = 200, call.D = 64;
        call.dtype = "bf16", call.mask = "none";
        int64_t place = 0x1000, heads[] = {8, 4, 4, 8}, rows[] = {256, 200, 200, 256}, i = 0;
        for (auto* tensor : {&call.q, &call.k, &call.v, &call.o}) {  // [B, S, H, D], and a batch of one with any stride
            tensor->data = reinterpret_cast<void*>(place);
            tensor->strides[0] = 8, tensor->strides[1] = 64, tensor->strides[2] = 64 * heads[i], tensor->strides[3] = 1;
            place += 64 * heads[i] * rows[i] * 2, ++i;
        }
        const int status = greenfast_attention::launch(call, nullptr);
        uint64_t words[64] = {};
        if (stub_launches() == 1)
            stub_launch(0, words);
        std::printf("%d", status);
        for (int word = 30; word < 46; ++word)
            std::printf(" %llu", static_cast<unsigned long long>(words[word]));
        std::printf("\n");
        call.k.strides[1] = int64_t(1) << 40;  // of a head: no map has such a stride
        std::printf("%d\n", greenfast_attention::launch(call, nullptr));
    }
}
