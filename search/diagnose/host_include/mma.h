#pragma once
#include "cuda_fp16.h"
namespace nvcuda {
namespace wmma {}
}  // namespace nvcuda
