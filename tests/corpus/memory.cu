// Memory's odd corners: caches, vectors, scopes, pointers to anywhere, the heap's absence.
// nvcc memory: -arch=sm_80 -O3
// nvcc memory_linked: -arch=sm_80 -O3 -rdc=true -lineinfo
// nvrtc memory: -arch=sm_80
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

extern "C" __global__ void cache_hints(const float4 *x, float4 *y) {
  int i = threadIdx.x;
  float4 a = __ldg(x + i), b = __ldcs(x + 32 + i), c = __ldcg(x + 64 + i), d = __ldcv(x + 96 + i);
  __stcs(y + i, make_float4(a.x, b.y, c.z, d.w));
  __stwt(y + 32 + i, make_float4(d.x, c.y, b.z, a.w));
}

extern "C" __global__ void anywhere(int *g, int *y) {  // generic addresses of three spaces
  __shared__ int s[64];
  int l[4] = {(int)threadIdx.x, 1, 2, 3}, t = threadIdx.x;
  s[t] = 100 + t;
  __syncthreads();
  int *p = t % 3 == 0 ? g + t : t % 3 == 1 ? s + (t ^ 2) : l + t % 4;
  y[t] = *p + 10000 * __isShared(p) + 20000 * __isGlobal(p) + 40000 * __isLocal(p);
  if (t % 3 == 0) *p = -t;
}

extern "C" __global__ void unaligned(const unsigned char *x, unsigned *y) {
  const unsigned char *p = x + 3 * threadIdx.x;
  unsigned v;
  memcpy(&v, p, 4);
  y[threadIdx.x] = v;
}

extern "C" __global__ void pipelined_copy(const int4 *x, int4 *y) {
  __shared__ int4 s[2][64];
  int t = threadIdx.x;
  __pipeline_memcpy_async(&s[0][t], x + t, 16);
  __pipeline_commit();
  for (int i = 0; i < 4; i++) {
    if (i < 3) __pipeline_memcpy_async(&s[~i & 1][t], x + (i + 1) * 64 + t, 16, i == 1 ? 8 : 0);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    int4 v = s[i & 1][63 - t];
    y[i * 64 + t] = make_int4(v.w, v.z, v.y, v.x);
    __syncthreads();
  }
}

extern "C" __global__ void scopes(int *x, unsigned long long *wide, float *f, __half2 *h) {
  __shared__ int s;
  int t = threadIdx.x;
  if (t == 0) s = 0;
  __syncthreads();
  atomicAdd_block(&s, t), atomicAdd_system(x, t), atomicMax_block(x + 1, t * 37 % 64);
  atomicXor((unsigned long long *)wide, 0x100000001ull << t % 16);
  atomicExch(wide + 1 + t, atomicCAS(wide + 1 + t, 0ull, 5ull) + t);
  atomicAdd(f, 0.25f), atomicAdd(h, __floats2half2_rn(1, -1));
  __syncthreads();
  if (t == 0) x[2] = s;
}

__device__ int counters[4];
__device__ float4 table = {1.5, -2, 65504};
__constant__ struct {
  char name[5];
  double value;
  const int *where;
} records[2] = {{"one", 1.25, counters + 1}, {"four", -4e300, counters + 3}};

extern "C" __global__ void constants(double *y) {
  int t = threadIdx.x;
  y[t] = records[t & 1].value + records[t & 1].name[t % 5] + (records[t & 1].where - counters) +
         (&table.x)[t % 3];
}

extern "C" __global__ void bool_matrix(const bool *a, bool *b, int n) {  // Warshall's closure
  for (int k = 0; k < n; k++) {
    int i = threadIdx.x, j = threadIdx.y;
    bool now = a[i * n + j] | b[i * n + j] | (b[i * n + k] & b[k * n + j]);
    __syncthreads();
    b[i * n + j] = now;
    __syncthreads();
  }
}
