// What the language has: calls, pointers to functions, classes, switches, local arrays, printing.
// nvcc language: -arch=sm_80 -O3
// nvcc language_debug: -arch=sm_80 -G
// nvrtc language: -arch=sm_80 -default-device
#include <assert.h>
#include <stdio.h>

extern "C" __global__ void switches(const int *x, int *y) {
  int v = x[threadIdx.x], r;
  switch (v) {
    case 0: r = 11; break;
    case 1: r = v * 5 + threadIdx.x; break;
    case 2: r = __popc(threadIdx.x);  // falls through
    case 3: r = v + 100; break;
    case 4: r = v << threadIdx.x % 8; break;
    case 5: r = -v; break;
    case 6: r = threadIdx.x / 3; break;
    case 7: r = threadIdx.x % 5; break;
    case 1000: r = 1; break;
    default: r = 7777;
  }
  y[threadIdx.x] = r;
}

extern "C" __global__ void local_arrays(const int *x, int *y) {
  int stack[24], n = 0, t = threadIdx.x;
  char text[16];
  for (int v = x[t]; v; v /= 3) stack[n++] = v % 3;
  for (int i = 0; i < 16; i++) text[i] = i < n ? '0' + stack[n - 1 - i] : 0;
  unsigned hash = 5381;
  for (int i = 0; text[i]; i++) hash = hash * 33 ^ text[i];
  y[t] = hash + stack[t % max(n, 1)] * (n > 0);
}

extern "C" __global__ void uneven_loops(const int *x, int *y) {
  int t = threadIdx.x, sum = 0;
  for (int i = 0; i < x[t]; i++) {
    if (i % 3 == t % 3) continue;
    for (int j = i; j > 0; j /= 2) {
      if ((j & t) == 5) goto out;
      sum += j;
    }
    if (sum > 1000) break;
  }
  sum *= 2;
out:
  y[t] = sum;
}

extern "C" __global__ void early_exit(const int *x, int *y) {
  __shared__ int s[64];
  int t = threadIdx.x;
  s[t] = 0;
  __syncthreads();
  if (x[t] < 0) return;  // the others go on to meet without it
  s[t] = x[t];
  __syncthreads();
  for (int k = t + 1; k < 64; k++) s[t] += k % 2 ? 1 : 0;
  y[t] = s[t];
}

extern "C" __global__ void prints(const double *x) {
  int t = threadIdx.x;
  if (t % 8 == 3) printf("%d of %u: %5.2f %s %llx %c%%\n", t, blockDim.x, x[t], t > 9 ? "high" : "low",
                         0x123456789abull * t, 'a' + t);
}

extern "C" __global__ void asserts(const int *x) { assert(x[threadIdx.x] != 7); }

extern "C" __global__ void traps(const int *x) {
  if (x[threadIdx.x] == 7) __trap();
}

extern "C" __global__ void clocks(long long *y, unsigned *where) {
  long long from = clock64();
  unsigned begin = clock();
  while (clock64() - from < 1000) {}
  unsigned lane, warp, sm;
  asm volatile("mov.u32 %0, %%laneid; mov.u32 %1, %%warpid; mov.u32 %2, %%smid;"
               : "=r"(lane), "=r"(warp), "=r"(sm));
  y[threadIdx.x] = (clock64() - from > 0) + 2 * (clock() - begin < 1u << 30);
  where[threadIdx.x] = lane + 100 * warp + (sm >= 1u << 12);
}

struct Matrix {
  float m[2][2];
  __device__ Matrix operator*(const Matrix &o) const {
    Matrix r;
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) r.m[i][j] = m[i][0] * o.m[0][j] + m[i][1] * o.m[1][j];
    return r;
  }
};

extern "C" __global__ void operators(Matrix a, int n, Matrix *y) {
  Matrix r = {{{1, 0}, {0, 1}}};
  for (int k = 0; k < n + threadIdx.x % 4; k++) r = r * a;
  y[threadIdx.x] = r;
}

template <int N> struct Fibonacci {
  static constexpr int value = Fibonacci<N - 1>::value + Fibonacci<N - 2>::value;
};
template <> struct Fibonacci<1> { static constexpr int value = 1; };
template <> struct Fibonacci<0> { static constexpr int value = 0; };

template <class... T> __device__ int sum_of(T... v) { return (v + ... + 0); }

extern "C" __global__ void __launch_bounds__(64, 2) templates(int *y) {
  int t = threadIdx.x;
  auto add = [t](auto v) { return v + t; };
  y[t] = sum_of(Fibonacci<20>::value, add(1), add(short(2)), (int)add(2.5f));
}

__device__ volatile int flag;

extern "C" __global__ void volatiles(int *y) {  // CTA 0 waits for what CTA 1 says
  if (blockIdx.x == 1) {
    y[1] = 42;
    __threadfence();
    flag = 1;
  } else {
    while (!flag) {}
    __threadfence();
    y[0] = ((volatile int *)y)[1] + 1;
  }
}
