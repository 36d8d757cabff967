// Stands in for what nvcc and NVRTC give every translation unit.
#pragma once
#include "gf_emulator/atomics.h"
#include "gf_emulator/coordinates.h"
#include "gf_emulator/dpx.h"
#include "gf_emulator/functions.h"
#include "gf_emulator/integers.h"
#include "gf_emulator/mathematics.h"
#include "gf_emulator/qualifiers.h"
#include "gf_emulator/rounding.h"
#include "gf_emulator/synchronisation.h"
#include "gf_emulator/vector_types.h"
#include "gf_emulator/video.h"
#include "gf_emulator/warp.h"
