// Calls the generated header of gemm on the stub: without a bias, with one, and with a residual, which no kernel has.
#include "greenfast_gemm.h"

#include <cstdio>

extern "C" {
void stub_reset(int arguments, int refuse);
void stub_enter();
void stub_launch(int i, uint64_t* out);
}

int main()
{
    stub_enter();
    greenfast_gemm::Call call;
    call.M = call.A_rows = 64, call.N = call.B_rows = 4096, call.K = call.A_columns = call.B_columns = 4096;
    call.dtype = "bf16";
    call.a = {reinterpret_cast<void*>(0x1000), {4096, 1}};
    call.b = {reinterpret_cast<void*>(0x2000), {4096, 1}};
    call.c = {reinterpret_cast<void*>(0x5000), {4096, 1}};
    const greenfast_gemm::Tensor bias = {reinterpret_cast<void*>(0x3000), {1}};
    const greenfast_gemm::Tensor residual = {reinterpret_cast<void*>(0x4000), {4096, 1}};
    for (int number = 0; number < 3; ++number) {
        stub_reset(5, 0);
        call.bias = number == 1 ? bias : greenfast_gemm::Tensor{};
        call.residual = number == 2 ? residual : greenfast_gemm::Tensor{};
        const int status = greenfast_gemm::launch(call, nullptr);
        std::printf("%d", status);
        uint64_t words[64] = {};
        if (status == 0)
            stub_launch(0, words);
        for (int i = 8; i < 13; ++i)
            std::printf(" %llu", static_cast<unsigned long long>(words[i]));
        std::printf("\n");
    }
}
