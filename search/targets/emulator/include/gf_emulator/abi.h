// What a kernel's library calls in the runtime: the one border between emulated device code and native/.
// Every function notes its return address as the *site* that reports and counters name, so kernels must reach
// these through always-inlined wrappers and be compiled without sibling-call optimisation.
#pragma once
#include "gf_emulator/vector_types.h"

namespace gf_emulator {

enum class BarrierOperation : int { sync, count, all, any };

enum class Collective : int {
    none,
    sync_warp,
    shuffle_index,
    shuffle_up,
    shuffle_down,
    shuffle_xor,
    ballot,
    any,
    all,
    match_any,
    reduce_add,
    reduce_min_signed,
    reduce_min_unsigned,
    reduce_max_signed,
    reduce_max_unsigned,
    reduce_and,
    reduce_or,
    reduce_xor,
    ldmatrix,
    stmatrix,
    wmma,
    mma,
    wgmma,
    wgmma_fence,
    wgmma_commit,
    wgmma_wait,
    elect,
    set_registers,
};

enum class AtomicOperation : int {
    add,
    minimum,
    maximum,
    exchange,
    compare_and_swap,
    bit_and,
    bit_or,
    bit_xor,
    increment,
    decrement
};
enum class AtomicType : int {
    int32,
    uint32,
    int64,
    uint64,
    float32,
    float64,
    uint16,
    float16,
    bfloat16,
    float16x2,
    bfloat16x2,
};

// What CUDA's intrinsics with a rounding mode in their name compute; to nearest is the host's own.
enum class RoundedOperation : int { add, multiply, multiply_add, divide, square_root };
enum class Rounding : int { to_zero, up, down };

enum class TileShape : int { m16n16k16, m32n8k16, m8n32k16, m16n8k16, m16n16k8, m16n8k8, m16n8k32 };
enum class TileUse : int { matrix_a, matrix_b, accumulator };
enum class Element : int { float16, bfloat16, float32, tf32, float8_e4m3, float8_e5m2, int8, uint8, int32 };
// What gf_emulator_plain_product and gf_emulator_integer_product multiply.
enum class PlainOperand : int { int8, uint8, float64, bits, uint4, int4 };

}  // namespace gf_emulator

// The runtime hides everything else.
#pragma GCC visibility push(default)
extern "C" {
// `const`: a fiber's coordinates never change while its kernel runs.
uint3 gf_emulator_thread_index() __attribute__((const));
uint3 gf_emulator_block_index() __attribute__((const));
uint3 gf_emulator_block_size() __attribute__((const));
uint3 gf_emulator_grid_size() __attribute__((const));
unsigned gf_emulator_lane() __attribute__((const));
// Another one of 132 in each order of threads.
unsigned gf_emulator_multiprocessor() __attribute__((const));
unsigned gf_emulator_warp_slot() __attribute__((const));

// `line` keeps calls of different source lines apart: compilers merge and copy calls.
int gf_emulator_block_barrier(gf_emulator::BarrierOperation operation, int predicate, int line);
std::uint64_t gf_emulator_warp_collective(unsigned mask, gf_emulator::Collective kind, std::uint64_t value,
                                          int lane_argument, int width);
void gf_emulator_grid_barrier(int line);
unsigned gf_emulator_active_mask();
void gf_emulator_named_barrier(unsigned id, unsigned thread_count, bool wait);
// Of the 64 to 512 threads of the block around the calling one.
void gf_emulator_tile_barrier(unsigned threads);
void gf_emulator_fence(bool device_wide);
// Before a load of these bytes through the read-only path, in a checked build.
void gf_emulator_reads_only(const void* address, unsigned bytes);
void gf_emulator_yield();
void gf_emulator_dependent_launch_wait();
void gf_emulator_dependent_launch_allow();

void gf_emulator_atomic(void* address, const void* operand, const void* compared, void* before,
                        gf_emulator::AtomicOperation operation, gf_emulator::AtomicType type);
// The same with the scope of a block: other blocks may see it torn or late.
void gf_emulator_block_atomic(void* address, const void* operand, const void* compared, void* before,
                              gf_emulator::AtomicOperation operation, gf_emulator::AtomicType type);
// The value that the thread's last exchange took, as it is: a use of it is a read of what the word held. Compilers drop
// a `pure` call whose result nobody uses, so an exchange that only stores is none.
std::uint64_t gf_emulator_exchanged(std::uint64_t bits) __attribute__((pure, nothrow));

// A relaxed load or store of a flag, of 1, 2, 4 or 8 bytes; `block_wide`: of the scope of a block.
std::uint64_t gf_emulator_flag_load(const void* address, unsigned bytes, bool block_wide);
void gf_emulator_flag_store(void* address, unsigned bytes, std::uint64_t value, bool block_wide);

void gf_emulator_wmma_load(void* registers, const void* matrix, unsigned leading_dimension,
                           int register_count, gf_emulator::TileShape shape, gf_emulator::TileUse use,
                           gf_emulator::Element element, bool column_major);
void gf_emulator_wmma_store(const void* registers, void* matrix, unsigned leading_dimension,
                            gf_emulator::TileShape shape, gf_emulator::Element element, bool column_major);
// One warp-wide D = A * B + C. By value, so that a checked build has no stores of them to watch.
void gf_emulator_matrix_multiply(void* d, const void* a, const void* b, const void* c,
                                 gf_emulator::TileShape shape, gf_emulator::Element input_a,
                                 gf_emulator::Element input_b, gf_emulator::Element accumulator,
                                 gf_emulator::Collective kind);
// The same on integers, doubles and bits (xor, or and), whose lanes hold the matrices' rows one after the other.
void gf_emulator_plain_product(void* d, const void* a, const void* b, const void* c, int rows, int columns, int depth,
                               gf_emulator::PlainOperand operand, bool by_and);
// mma.sync of integers, with the lanes' registers as PTX has them; `rows` of A, 8 columns of B.
void gf_emulator_integer_product(int* d, const unsigned* a, const unsigned* b, const int* c, int rows, int depth,
                                 gf_emulator::PlainOperand input_a, gf_emulator::PlainOperand input_b, bool saturates);
void gf_emulator_ldmatrix(unsigned* registers, const void* row, int matrix_count, bool transposed);
void gf_emulator_stmatrix(void* row, const unsigned* registers, int matrix_count, bool transposed);

uint3 gf_emulator_cluster_size() __attribute__((const));
void gf_emulator_cluster_arrive();
void gf_emulator_cluster_arrive_relaxed();
void gf_emulator_cluster_wait();
void* gf_emulator_map_shared_rank(void* address, unsigned rank);
unsigned gf_emulator_rank_of(const void* shared);

void gf_emulator_async_copy(void* shared_destination, const void* global_source, int bytes, int valid_bytes);
void gf_emulator_async_copy_commit();
void gf_emulator_async_copy_wait(int groups_left_in_flight);

void gf_emulator_mbarrier_init(void* barrier, unsigned arrivals);
void gf_emulator_mbarrier_init_fence();
void gf_emulator_mbarrier_invalidate(void* barrier);
void gf_emulator_mbarrier_arrive(void* barrier);
void gf_emulator_mbarrier_arrive_rank(void* barrier, unsigned rank);
// `barrier` may lie in another block's shared memory.
void gf_emulator_mbarrier_arrive_there(void* barrier);
void gf_emulator_mbarrier_drop(void* barrier);
unsigned gf_emulator_mbarrier_parity(void* barrier);
// The arrival comes when the thread's copies until now are done. `adds`: beyond those that the barrier expects.
void gf_emulator_async_copy_arrive(void* barrier, bool adds);
void gf_emulator_mbarrier_expect(void* barrier, unsigned bytes, bool arrives);
// Bytes that no copy brings have come. `releases`: with what the thread did before, as a store that it has made.
void gf_emulator_mbarrier_complete(void* barrier, unsigned bytes, bool releases);
bool gf_emulator_mbarrier_try_wait(void* barrier, unsigned parity);
void gf_emulator_mbarrier_wait(void* barrier, unsigned parity);
void gf_emulator_proxy_fence(bool of_shared, bool of_global);

// `at` holds `rank` coordinates. `rank_mask`: blocks of the cluster; null: the own block.
void gf_emulator_tensor_load(void* shared, const void* map, void* barrier, const unsigned* rank_mask, int rank,
                             const int* at);
void gf_emulator_tensor_store(const void* map, const void* shared, int rank, const int* at);
// `reduction` is an operation of atomics, on the elements of the map's type.
void gf_emulator_tensor_reduce(const void* map, const void* shared, int rank, const int* at,
                               gf_emulator::AtomicOperation reduction);
void gf_emulator_bulk_load(void* shared, const void* global, unsigned bytes, void* barrier);
void gf_emulator_bulk_multicast(void* shared, const void* global, unsigned bytes, void* barrier, unsigned ranks);
// From the own shared memory to that of a block of the cluster, where the barrier lies, too.
void gf_emulator_bulk_move(void* to, const void* from, unsigned bytes, void* barrier);
void gf_emulator_bulk_store(void* global, const void* shared, unsigned bytes);
void gf_emulator_bulk_reduce(void* global, const void* shared, unsigned bytes, gf_emulator::AtomicOperation reduction,
                             gf_emulator::AtomicType type);
void gf_emulator_bulk_commit();
// `for_reads`: until the groups have read shared memory. Their writes may come later.
void gf_emulator_bulk_wait(int groups_left_in_flight, bool for_reads);

// A product of a warpgroup; `a_registers` is null where A lies in shared memory. `flags`: 1 accumulate, 2 and 4 A and B
// are transposed, 8 and 16 A and B are negated, 32 integer sums saturate.
void gf_emulator_wgmma(float* d, unsigned long long a, const unsigned* a_registers, unsigned long long b, int columns,
                       gf_emulator::Element element, unsigned flags);
// The same with a type for each matrix: D of float32, float16 (two in a word) or int32. `d` holds a place for each word.
void gf_emulator_wgmma_mixed(void* const* d, unsigned long long a, const unsigned* a_registers, unsigned long long b,
                             int columns, gf_emulator::Element of_d, gf_emulator::Element of_a, gf_emulator::Element of_b,
                             unsigned flags);
void gf_emulator_wgmma_fence();
void gf_emulator_wgmma_commit();
void gf_emulator_wgmma_wait(int groups_left_in_flight);
bool gf_emulator_elect();
// The same among the lanes of a mask, which all run it.
bool gf_emulator_elect_of(unsigned lanes);
void gf_emulator_set_registers(unsigned registers, bool grow);

void* gf_emulator_dynamic_shared();
std::size_t gf_emulator_shared_offset(const void* pointer);
bool gf_emulator_is_shared(const void* pointer);
// Of an offset that gf_emulator_shared_offset gives.
void* gf_emulator_shared_pointer(unsigned offset);

float gf_emulator_rounded_float(gf_emulator::RoundedOperation operation, gf_emulator::Rounding mode, float x, float y,
                                float z);
double gf_emulator_rounded_double(gf_emulator::RoundedOperation operation, gf_emulator::Rounding mode, double x,
                                  double y, double z);
float gf_emulator_rounded_to_float(gf_emulator::Rounding mode, double x);
float gf_emulator_rounded_signed(gf_emulator::Rounding mode, long long x);
float gf_emulator_rounded_unsigned(gf_emulator::Rounding mode, unsigned long long x);
double gf_emulator_rounded_signed_double(gf_emulator::Rounding mode, long long x);
double gf_emulator_rounded_unsigned_double(gf_emulator::Rounding mode, unsigned long long x);

void* gf_emulator_device_malloc(std::size_t bytes);
void gf_emulator_device_free(void* piece);

void gf_emulator_special_function();
int gf_emulator_printf();
long long gf_emulator_clock();
[[noreturn]] void gf_emulator_trap(const char* reason);
}
#pragma GCC visibility pop
