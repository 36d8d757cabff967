// check --entry fourier<float> --grid 2 --block 32 --arg x:float2[128] --arg y:float2[128]:out --arg size[128]:out

// A Fourier transform of 64 numbers a block, in six passes between two arrays.
#include <cuComplex.h>
#include <cuda/std/complex>

template <class T>
__global__ void fourier(const cuComplex* x, cuComplex* y, T* size)
{
    using Complex = cuda::std::complex<T>;
    __shared__ T real[2][64], imaginary[2][64];
    const int first = blockIdx.x * 64, t = threadIdx.x;
    for (int i = t; i < 64; i += 32) {
        real[0][i] = cuCrealf(x[first + i]);
        imaginary[0][i] = cuCimagf(x[first + i]);
    }
    int from = 0;
    for (int step = 1; step < 64; step *= 2, from ^= 1) {
        __syncthreads();  // passed
        const int k = t & (step - 1), at = 2 * t - k;
        const Complex turned = cuda::std::polar(T(1), T(-3.14159265) * k / step);
        const Complex a(real[from][t], imaginary[from][t]), b(real[from][t + 32], imaginary[from][t + 32]);
        const Complex sum = a + turned * b, difference = a - turned * b;
        real[from ^ 1][at] = sum.real(), imaginary[from ^ 1][at] = sum.imag();
        real[from ^ 1][at + step] = difference.real(), imaginary[from ^ 1][at + step] = difference.imag();
    }
    __syncthreads();
    for (int i = t; i < 64; i += 32) {
        y[first + i] = make_cuComplex(real[from][i], imaginary[from][i]);
        size[first + i] = cuCabsf(y[first + i]);
    }
}
