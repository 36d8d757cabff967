#pragma once
#include "cuda_runtime.h"
namespace nvcuda {
namespace wmma {}
}
