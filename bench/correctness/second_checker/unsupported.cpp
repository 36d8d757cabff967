// Calls of gf_emulator/abi.h that the wgmma templates do not make. Each ends the judgement as `unsupported`.

namespace second {
[[noreturn]] void unsupported(const char* call, const void* site);
}

#define UNSUPPORTED(name) \
    __attribute__((visibility("default"))) void name() { second::unsupported(#name, __builtin_return_address(0)); }

extern "C" {
UNSUPPORTED(gf_emulator_grid_barrier)
UNSUPPORTED(gf_emulator_active_mask)
UNSUPPORTED(gf_emulator_tile_barrier)
UNSUPPORTED(gf_emulator_atomic)
UNSUPPORTED(gf_emulator_block_atomic)
UNSUPPORTED(gf_emulator_flag_load)
UNSUPPORTED(gf_emulator_flag_store)
UNSUPPORTED(gf_emulator_wmma_load)
UNSUPPORTED(gf_emulator_wmma_store)
UNSUPPORTED(gf_emulator_matrix_multiply)
UNSUPPORTED(gf_emulator_plain_product)
UNSUPPORTED(gf_emulator_integer_product)
UNSUPPORTED(gf_emulator_wgmma_mixed)
UNSUPPORTED(gf_emulator_async_copy)
UNSUPPORTED(gf_emulator_async_copy_commit)
UNSUPPORTED(gf_emulator_async_copy_wait)
UNSUPPORTED(gf_emulator_async_copy_arrive)
UNSUPPORTED(gf_emulator_mbarrier_drop)
UNSUPPORTED(gf_emulator_mbarrier_complete)
UNSUPPORTED(gf_emulator_tensor_reduce)
UNSUPPORTED(gf_emulator_bulk_multicast)
UNSUPPORTED(gf_emulator_bulk_move)
UNSUPPORTED(gf_emulator_bulk_reduce)
UNSUPPORTED(gf_emulator_mbarrier_parity)
UNSUPPORTED(gf_emulator_shared_pointer)
UNSUPPORTED(gf_emulator_is_shared)
UNSUPPORTED(gf_emulator_device_malloc)
UNSUPPORTED(gf_emulator_device_free)
UNSUPPORTED(gf_emulator_printf)
UNSUPPORTED(gf_emulator_clock)
UNSUPPORTED(gf_emulator_trap)
}
