// Emulated form of gf/shared.cuh.
#pragma once
#include "gf_emulator/abi.h"

#define GF_DYNAMIC_SHARED(Type, name) Type* name = static_cast<Type*>(gf_emulator_dynamic_shared())
