// cuda::std holds what std does. Atomics are CUDA's own (cuda/atomic).
#pragma once
namespace cuda {
namespace std {
using namespace ::std;
}
}  // namespace cuda
