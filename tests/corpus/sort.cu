// Orders, counts and shared locks.
// nvcc sort: -arch=sm_80 -O3
// nvrtc sort: -arch=sm_80
extern "C" __global__ void histogram_global(int n, const unsigned char *x, unsigned *bins) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&bins[x[i] >> 2], 1);
}

extern "C" __global__ void histogram_shared(int n, const uchar4 *x, unsigned *bins) {
  __shared__ unsigned s[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) s[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    uchar4 v = x[i];
    atomicAdd(&s[v.x], 1), atomicAdd(&s[v.y], 1), atomicAdd(&s[v.z], 1), atomicAdd(&s[v.w], 1);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (s[i]) atomicAdd(&bins[i], s[i]);
}

extern "C" __global__ void bitonic(float *x) {
  __shared__ float s[256];
  int t = threadIdx.x;
  s[t] = x[t];
  for (int size = 2; size <= 256; size *= 2)
    for (int d = size / 2; d; d /= 2) {
      __syncthreads();
      int other = t ^ d;
      if (other > t && (s[t] > s[other]) == !(t & size)) {
        float kept = s[t];
        s[t] = s[other], s[other] = kept;
      }
    }
  __syncthreads();
  x[t] = s[t];
}

extern "C" __global__ void odd_even(int n, short *x) {
  for (int round = 0; round < n; round++) {
    for (int i = 2 * threadIdx.x + round % 2; i + 1 < n; i += 2 * blockDim.x)
      if (x[i] > x[i + 1]) {
        short kept = x[i];
        x[i] = x[i + 1], x[i + 1] = kept;
      }
    __syncthreads();
  }
}

// One bit a round, over the whole block; stable.
extern "C" __global__ void radix(unsigned *x, unsigned *order) {
  __shared__ unsigned keys[256], from[256], zeros[8];
  unsigned t = threadIdx.x, key = x[t], at = t;
  for (int bit = 0; bit < 12; bit++) {
    unsigned clear = __ballot_sync(~0u, !(key >> bit & 1));
    if (t % 32 == 0) zeros[t / 32] = __popc(clear);
    __syncthreads();
    unsigned before = 0, all = 0;
    for (int w = 0; w < 8; w++) {
      if (w < t / 32) before += zeros[w];
      all += zeros[w];
    }
    before += __popc(clear & ~(~0u << t % 32));
    unsigned to = key >> bit & 1 ? all + t - before : before;
    keys[to] = key, from[to] = at;
    __syncthreads();
    key = keys[t], at = from[t];
  }
  x[t] = key, order[t] = at;
}

extern "C" __global__ void locked(int *lock, int *shared_sum, int *steps) {
  __shared__ int mutex;
  __shared__ int sum;
  if (threadIdx.x == 0) mutex = 0, sum = 0;
  __syncthreads();
  bool done = false;
  while (!done)
    if (atomicCAS(&mutex, 0, 1) == 0) {  // the other lanes of the warp spin
      sum = 3 * sum % 1009 + 1;
      __threadfence_block();
      atomicExch(&mutex, 0);
      done = true;
    }
  __syncthreads();
  if (threadIdx.x != 0) return;
  *shared_sum = sum;
  while (atomicExch(lock, 1)) __nanosleep(100);
  *(volatile int *)steps = *(volatile int *)steps + 1;
  __threadfence();
  atomicExch(lock, 0);
}

// Each warp's threads pull tasks of uneven length from a queue.
extern "C" __global__ void queue(int n, const int *lengths, int *collatz, int *head) {
  for (;;) {
    int i = atomicAdd(head, 1);
    if (i >= n) break;
    unsigned v = lengths[i];
    int steps = 0;
    while (v != 1) v = v & 1 ? 3 * v + 1 : v / 2, steps++;
    collatz[i] = steps;
  }
}
