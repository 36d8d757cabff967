// Stands in for CUDA's math_constants.h. Its macros are in gf_emulator/constant_macros.h: they are replaced before this
// header is read.
#pragma once
#include "cuda_runtime.h"
