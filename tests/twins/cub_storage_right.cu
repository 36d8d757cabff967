// check --grid 3 --block 64 --arg x:int32[768] --arg y:int32[768]:out --arg s:int32[3]:out

// CUB's collectives of a block share one storage, with a barrier before each use but the first.
#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>

constexpr int threads = 64, items = 4;
using Load = cub::BlockLoad<int, threads, items, cub::BLOCK_LOAD_TRANSPOSE>;
using Sort = cub::BlockRadixSort<int, threads, items>;
using Scan = cub::BlockScan<int, threads>;
using Reduce = cub::BlockReduce<int, threads>;
using Store = cub::BlockStore<int, threads, items, cub::BLOCK_STORE_WARP_TRANSPOSE>;

__global__ void sorted_and_summed(const int* x, int* y, int* s)
{
    __shared__ union {
        typename Load::TempStorage load;
        typename Sort::TempStorage sort;
        typename Scan::TempStorage scan;
        typename Reduce::TempStorage reduce;
        typename Store::TempStorage store;
    } storage;
    int values[items], sum;
    Load(storage.load).Load(x + blockIdx.x * threads * items, values);
    __syncthreads();  // loaded
    Sort(storage.sort).Sort(values);
    __syncthreads();  // sorted
    Scan(storage.scan).InclusiveSum(values, values, sum);
    __syncthreads();  // summed
    const int largest = Reduce(storage.reduce).Reduce(values[items - 1], [](int a, int b) { return a > b ? a : b; });
    if (threadIdx.x == 0) s[blockIdx.x] = largest - sum;
    __syncthreads();  // reduced
    Store(storage.store).Store(y + blockIdx.x * threads * items, values);
}
