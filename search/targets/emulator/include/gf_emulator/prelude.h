// Precompiled and put before every kernel.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_fp8.h"
#include "cuda_runtime.h"
#include "gf_emulator/dynamic_shared.h"
#include "gf_emulator/entry.h"
#include "gf_emulator/textures.h"
#include "mma.h"

#include "gf_emulator/overload_names.h"

#include "gf_emulator/memory.h"
