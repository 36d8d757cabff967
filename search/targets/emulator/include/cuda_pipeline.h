// Stands in for CUDA's cuda_pipeline.h.
#pragma once
#include "cuda_pipeline_primitives.h"
