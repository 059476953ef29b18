// What sm_90a has: mbarriers, bulk and tensor copies, clusters, wgmma, by inline PTX.
// nvcc hopper: -arch=sm_90a -O3
// nvrtc hopper: -arch=sm_90a -default-device
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define DEVICE __device__ __forceinline__

DEVICE unsigned address(const void *p) { return __cvta_generic_to_shared(p); }

DEVICE void init(unsigned long long *bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(bar)), "r"(count));
}

DEVICE void expect(unsigned long long *bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(bar)), "r"(bytes)
               : "memory");
}

DEVICE void arrive(unsigned long long *bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(bar)) : "memory");
}

DEVICE void wait(unsigned long long *bar, int phase) {
  asm volatile("{\n.reg .pred p;\n"
               "WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               "@p bra DONE;\nbra WAIT;\nDONE:\n}" ::"r"(address(bar)), "r"(phase)
               : "memory");
}

DEVICE void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

DEVICE void bring(void *to, const void *from, int bytes, unsigned long long *bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(address(to)), "l"(from), "r"(bytes), "r"(address(bar)) : "memory");
}

DEVICE void bring_tile(void *to, const CUtensorMap *map, int x, int y, unsigned long long *bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];"
               ::"r"(address(to)), "l"(map), "r"(x), "r"(y), "r"(address(bar)) : "memory");
}

DEVICE void commit_and_wait() {
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}

DEVICE bool elected() {
  unsigned p;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(p));
  return p;
}

DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

DEVICE unsigned rank_in_cluster() {
  unsigned r;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}

// A ring of two: a warp brings chunks of 1 KiB, the others add them up and send the sums back.
extern "C" __global__ void __launch_bounds__(160) bulk_ring(int chunks, const int *x, int *y) {
  __shared__ alignas(128) int ring[2][256], sums[128];
  __shared__ unsigned long long full[2], empty[2];
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; s++) init(&full[s], 1), init(&empty[s], 128);
    fence_init();
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    if (elected())
      for (int i = 0; i < chunks; i++) {
        if (i >= 2) wait(&empty[i % 2], (i / 2 - 1) & 1);
        expect(&full[i % 2], 1024);
        bring(ring[i % 2], x + (blockIdx.x * chunks + i) * 256, 1024, &full[i % 2]);
      }
    return;
  }
  int sum = 0;
  for (int i = 0; i < chunks; i++) {
    wait(&full[i % 2], i / 2 & 1);
    sum = 3 * sum + ring[i % 2][threadIdx.x] - ring[i % 2][threadIdx.x + 128];
    arrive(&empty[i % 2]);
  }
  sums[threadIdx.x] = sum;
  fence_async();
  asm volatile("bar.sync 1, 128;" ::: "memory");
  if (threadIdx.x) return;
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;"
               ::"l"(y + blockIdx.x * 128), "r"(address(sums)) : "memory");
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], 512;"
               ::"l"(y + gridDim.x * 128), "r"(address(sums)) : "memory");
  commit_and_wait();
}

// Each CTA of a cluster counts its part in the others' shared memory.
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_histogram(int n, const unsigned char *x, int *bins) {
  __shared__ int own[64];
  unsigned rank = rank_in_cluster();
  own[threadIdx.x] = 0;
  cluster_sync();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address(&own[x[i] >> 2])), "r"(x[i] & 3));
    asm volatile("red.shared::cluster.add.s32 [%0], 1;" ::"r"(there) : "memory");
  }
  cluster_sync();
  atomicAdd(&bins[threadIdx.x * 4 + rank], own[threadIdx.x]);
}

extern "C" __global__ void ring_of_clusters(const int *x, int *y) {
  __shared__ int box[32];
  __shared__ unsigned long long bar;
  unsigned rank = rank_in_cluster(), size, there, there_bar;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  if (threadIdx.x == 0) init(&bar, 1), expect(&bar, 128), fence_init();
  cluster_sync();
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address(&box[threadIdx.x])), "r"((rank + 1) % size));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there_bar) : "r"(address(&bar)), "r"((rank + 1) % size));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.s32 [%0], %1, [%2];"
               ::"r"(there), "r"(x[blockIdx.x * 32 + threadIdx.x]), "r"(there_bar) : "memory");
  wait(&bar, 0);
  y[blockIdx.x * 32 + threadIdx.x] = box[threadIdx.x];
  cluster_sync();
}

// A tile comes and goes by tensor maps and is turned over on the way.
extern "C" __global__ void tensor_transpose(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to) {
  __shared__ alignas(128) float in[32][32], out[32][32];
  __shared__ unsigned long long bar;
  if (threadIdx.x == 0) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&from));
    init(&bar, 1), fence_init(), expect(&bar, 4096);
    bring_tile(in, &from, blockIdx.x * 32, blockIdx.y * 32, &bar);
  }
  __syncthreads();
  wait(&bar, 0);
  for (int j = 0; j < 32; j++) out[j][threadIdx.x] = in[threadIdx.x][j];
  fence_async();
  __syncthreads();
  if (threadIdx.x) return;
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
               ::"l"(&to), "r"(blockIdx.y * 32), "r"(blockIdx.x * 32), "r"(address(out)) : "memory");
  commit_and_wait();
}

DEVICE unsigned long long descriptor(const void *p) {  // K-major, swizzle of 128 bytes
  return (address(p) & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// D = A Bᵀ: 64 × 32 by a warpgroup, K = 64 a stage, tiles by tensor maps.
extern "C" __global__ void __launch_bounds__(128)
wgmma_gemm(int n, int stages, const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float *d) {
  extern __shared__ __align__(1024) __nv_bfloat16 tiles[];
  __nv_bfloat16 *sa[2] = {tiles, tiles + 4096}, *sb[2] = {tiles + 8192, tiles + 8192 + 2048};
  __shared__ unsigned long long full[2];
  int t = threadIdx.x;
  auto stage = [&](int i) {
    expect(&full[i % 2], 12288);
    bring_tile(sa[i % 2], &a, i * 64, blockIdx.y * 64, &full[i % 2]);
    bring_tile(sb[i % 2], &b, i * 64, blockIdx.x * 32, &full[i % 2]);
  };
  if (t == 0) {
    init(&full[0], 1), init(&full[1], 1), fence_init();
    for (int i = 0; i < min(stages, 2); i++) stage(i);
  }
  __syncthreads();
  float c[16];
  for (int i = 0; i < stages; i++) {
    wait(&full[i % 2], i / 2 & 1);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < 4; k++)
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
                   "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, "
                   "%8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 0, 0;\n}"
                   : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
                     "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15])
                   : "l"(descriptor(sa[i % 2] + 16 * k)), "l"(descriptor(sb[i % 2] + 16 * k)), "r"(i + k));
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
    if (t == 0 && i + 2 < stages) stage(i + 2);
  }
  int row = blockIdx.y * 64 + t / 32 * 16 + t % 32 / 4, column = blockIdx.x * 32 + t % 4 * 2;
  for (int e = 0; e < 16; e += 2)
    *(float2 *)(d + (row + e / 2 % 2 * 8) * n + column + e / 4 * 8) = make_float2(c[e], c[e + 1]);
}

extern "C" __global__ void stored_matrices(const unsigned *x, unsigned short *y) {
  __shared__ alignas(16) unsigned short s[4][8][8];
  int t = threadIdx.x;
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(address(s[t / 8][t % 8])), "r"(x[t]), "r"(x[t + 32]), "r"(x[t + 64]), "r"(x[t + 96]) : "memory");
  __syncwarp();
  for (int i = t; i < 256; i += 32) y[i] = (&s[0][0][0])[i];
}
