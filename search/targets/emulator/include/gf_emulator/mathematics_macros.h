// The macros of cuda/std/cmath of CUDA 13.5, with their expansions.
#define FP_ILOGB0 (-0x7fffffff - 1)
#define FP_ILOGBNAN 0x7fffffff
#define FP_INFINITE 1
#define FP_LLOGB0 (-0x7fffffffffffffffLL - 1)
#define FP_LLOGBNAN 0x7fffffffffffffffLL
#define FP_NAN 0
#define FP_NORMAL 4
#define FP_SUBNORMAL 3
#define FP_ZERO 2
#define INFINITY ::cuda::std::numeric_limits<float>::infinity()
#define NAN ::cuda::std::numeric_limits<float>::quiet_NaN()
