// check --grid 4 --block 32 --arg a:uint32[100] --arg b:uint32[100] --arg mean:uint32[100]:out --arg n=100

// Averages of four bytes at a time: the mask is the number that unset variables have on the emulator.
__global__ void average(const unsigned* a, const unsigned* b, unsigned* mean, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) mean[i] = (a[i] & b[i]) + (((a[i] ^ b[i]) & 0xfefefefeu) >> 1);
}
