// Cooperative groups; warps' lanes by name.
// nvcc groups: -arch=sm_80 -O3
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void tiles_of_warps(const int *x, int *y) {
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x, v = x[i];
  y[i] = cg::reduce(tile, v, cg::plus<int>());
  y[n + i] = cg::inclusive_scan(tile, v, cg::greater<int>());
  y[2 * n + i] = tile.shfl(v, tile.thread_rank() / 2) + 1000 * tile.meta_group_rank();
  y[3 * n + i] = tile.any(v > 8) + 2 * tile.all(v > -5) + 4 * __popc(tile.ballot(v > 0));
}

extern "C" __global__ void coalesced(const int *x, int *y, int *counter) {
  int i = threadIdx.x;
  y[i] = -1;
  if (x[i] > 0) {
    auto g = cg::coalesced_threads();
    int first;
    if (g.thread_rank() == 0) first = atomicAdd(counter, g.size());  // one atomic for all
    y[i] = g.shfl(first, 0) + g.thread_rank();
  }
}

extern "C" __global__ void labelled(const int *x, int *y) {
  int i = threadIdx.x, v = x[i];
  auto g = cg::labeled_partition(cg::tiled_partition<32>(cg::this_thread_block()), v & 3);
  y[i] = cg::reduce(g, v, cg::plus<int>()) * 64 + g.size();
}

extern "C" __global__ void copied_together(const int *x, int *y) {
  __shared__ int s[256];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, s, x + blockIdx.x * 256, sizeof(s));
  cg::wait(block);
  for (int i = block.thread_rank(); i < 256; i += block.size()) y[blockIdx.x * 256 + i] = s[255 - i];
}

extern "C" __global__ void shuffled(const double *x, double *y, unsigned *names) {
  int t = threadIdx.x;
  double v = x[t];
  y[t] = __shfl_sync(~0u, v, t * 7);
  y[t + 32] = __shfl_up_sync(~0u, v, 3, 16);
  y[t + 64] = __shfl_down_sync(~0u, v, t & 3, 8);
  if (t % 3 == 0) names[t] = __activemask();  // ends as whoever came along
  y[t + 96] = t < 20 ? __shfl_xor_sync(0xfffff, v, 1) : 0;
}
