// Stands in for CUB's cub/block/block_store.cuh.
#pragma once
#include "cub/block/block_load.cuh"
