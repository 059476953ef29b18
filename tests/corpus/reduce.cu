// Sums and votes of warps, CTAs and grids.
// nvcc reduce: -arch=sm_80 -O3
// nvcc reduce_sm_75: -arch=sm_75 -O3
// nvrtc reduce: -arch=sm_80
extern "C" __global__ void __launch_bounds__(256) shared_tree(int n, const int *x, int *sums) {
  __shared__ int s[256];
  int t = threadIdx.x, i = blockIdx.x * 256 + t;
  s[t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {
    if (t < d) s[t] += s[t + d];
    __syncthreads();
  }
  if (t == 0) sums[blockIdx.x] = s[0];
}

template <class T> __device__ T warp_sum(T v) {
  for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d);
  return v;
}

template <class T> __global__ void shuffles(int n, const T *x, T *sum) {
  __shared__ T part[32];
  T v = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : T(0);
  v = warp_sum(v);
  if (threadIdx.x == 0) atomicAdd(sum, v);
}

template __global__ void shuffles(int, const int *, int *);
template __global__ void shuffles(int, const float *, float *);
template __global__ void shuffles(int, const double *, double *);

__device__ unsigned arrived;

extern "C" __global__ void last_block(int n, const float *x, volatile float *parts, float *sum) {
  __shared__ bool last;
  float v = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
  v = warp_sum(v);
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = v;
    __threadfence();
    last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  v = threadIdx.x < gridDim.x ? parts[threadIdx.x] : 0;
  v = warp_sum(v);
  if (threadIdx.x == 0) *sum = v;
}

extern "C" __global__ void votes(const int *x, int *count, int *any, int *all, unsigned *ballot) {
  int t = threadIdx.x, v = x[t];
  count[t] = __syncthreads_count(v > 0);
  any[t] = __syncthreads_or(v > 95);
  all[t] = __syncthreads_and(v > -96);
  ballot[t] = __ballot_sync(~0u, v & 1) ^ (__all_sync(~0u, v > -50) << __any_sync(~0u, v > 90));
}

extern "C" __global__ void arg_max(int n, const float *x, unsigned long long *best) {
  unsigned long long mine = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    unsigned bits = __float_as_uint(x[i]);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    mine = max(mine, (unsigned long long)bits << 32 | (unsigned)~i);
  }
  for (int d = 1; d < 32; d *= 2) mine = max(mine, __shfl_xor_sync(~0u, mine, d));
  if (threadIdx.x % 32 == 0) atomicMax(best, mine);
}

extern "C" __global__ void atomics(const int *x, int *out, unsigned *wrap, float *real) {
  int v = x[blockIdx.x * blockDim.x + threadIdx.x];
  atomicAdd(out, v), atomicMin(out + 1, v), atomicMax(out + 2, v);
  atomicAnd(out + 3, v), atomicOr(out + 4, v), atomicXor(out + 5, v);
  atomicSub(out + 6, v), atomicInc(wrap, 6), atomicDec(wrap + 1, 6);
  int seen = *(volatile float *)real;
  for (int old = __float_as_int(seen), now;; old = now) {  // a maximum by compare and swap
    now = atomicCAS((int *)real, old, __float_as_int(fmaxf(v, __int_as_float(old))));
    if (now == old) break;
  }
}
#if __CUDA_ARCH__ >= 800

extern "C" __global__ void redux(const int *x, int *out) {
  int t = threadIdx.x, v = x[t];
  unsigned peers = __match_any_sync(~0u, v & 3);
  out[t] = __reduce_add_sync(peers, v);
  out[t + 32] = __reduce_max_sync(peers, v);
  out[t + 64] = __reduce_xor_sync(peers, (unsigned)v);
  int same;
  __match_all_sync(~0u, v >> 31, &same);
  out[t + 96] = same + 2 * __popc(peers & ((1u << t) - 1));
}
#endif
