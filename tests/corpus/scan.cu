// Running sums.
// nvcc scan: -arch=sm_80 -O3
// nvrtc scan: -arch=sm_80
extern "C" __global__ void hillis_steele(const int *x, int *y) {
  extern __shared__ int s[];
  int t = threadIdx.x, n = blockDim.x, from = 0;
  s[t] = x[t];
  for (int d = 1; d < n; d *= 2) {
    __syncthreads();
    s[(1 - from) * n + t] = s[from * n + t] + (t >= d ? s[from * n + t - d] : 0);
    from = 1 - from;
  }
  y[t] = s[from * n + t];
}

extern "C" __global__ void blelloch(const int *x, int *y) {
  __shared__ int s[512];
  int t = threadIdx.x;
  s[2 * t] = x[2 * t], s[2 * t + 1] = x[2 * t + 1];
  int d = 1;
  for (int n = 256; n; n /= 2, d *= 2) {
    __syncthreads();
    if (t < n) s[d * (2 * t + 2) - 1] += s[d * (2 * t + 1) - 1];
  }
  if (t == 0) s[511] = 0;
  for (int n = 1; n <= 256; n *= 2) {
    d /= 2;
    __syncthreads();
    if (t < n) {
      int low = d * (2 * t + 1) - 1, high = d * (2 * t + 2) - 1, kept = s[low];
      s[low] = s[high], s[high] += kept;
    }
  }
  __syncthreads();
  y[2 * t] = s[2 * t], y[2 * t + 1] = s[2 * t + 1];
}

__device__ int warp_scan(int v) {
  int lane = threadIdx.x % 32;
  for (int d = 1; d < 32; d *= 2) {
    int other = __shfl_up_sync(~0u, v, d);
    if (lane >= d) v += other;
  }
  return v;
}

// A block publishes its own sum, looks back over its predecessors', then publishes the prefix.
extern "C" __global__ void look_back(const int *x, int *y, unsigned *next,
                                     volatile unsigned long long *state) {
  __shared__ int sums[8], before;
  __shared__ unsigned block;
  if (threadIdx.x == 0) block = atomicAdd(next, 1);
  __syncthreads();
  int i = block * blockDim.x + threadIdx.x, warp = threadIdx.x / 32;
  int v = warp_scan(x[i]);
  if (threadIdx.x % 32 == 31) sums[warp] = v;
  __syncthreads();
  int whole = 0;
  for (int w = 0; w < blockDim.x / 32; w++) {
    if (w == warp) v += whole;
    whole += sums[w];
  }
  if (threadIdx.x == 0) {
    const unsigned long long own = 1ull << 32, prefix = 2ull << 32;
    int sum = 0;
    state[block] = (block ? own : prefix) | (unsigned)whole;
    for (int b = block - 1; b >= 0; b--) {
      unsigned long long seen;
      while (!((seen = state[b]) >> 32)) __nanosleep(20);
      sum += (int)seen;
      if (seen >= prefix) break;
    }
    if (block) state[block] = prefix | (unsigned)(sum + whole);
    before = sum;
  }
  __syncthreads();
  y[i] = before + v;
}

// The elements that pass, in order.
extern "C" __global__ void compact(int n, const int *x, int *y, int *count) {
  __shared__ int at;
  if (threadIdx.x == 0) at = 0;
  __syncthreads();
  for (int base = 0; base < n; base += blockDim.x) {
    int v = base + threadIdx.x < n ? x[base + threadIdx.x] : -1;
    unsigned kept = __ballot_sync(~0u, v >= 0);
    if (v >= 0) y[at + __popc(kept & ((1u << threadIdx.x) - 1))] = v;
    __syncwarp();
    if (threadIdx.x == 0) at += __popc(kept);
    __syncwarp();
  }
  if (threadIdx.x == 0) *count = at;
}
