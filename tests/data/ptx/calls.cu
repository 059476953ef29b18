// What a compiler makes of calls: device functions, a function table, printf, demoted variables, inline scopes.
// nvcc -ptx -arch=sm_90a -lineinfo calls.cu
#include <cstdio>

struct P { float a; int n; double d; };

__device__ float table[4] = {1.f, 2.f, -3.5f, 1e-3f};
__device__ float *pointers[2] = {table, table + 2};
__constant__ int lut[3][2] = {{1, 2}, {3, 4}, {5, 6}};
extern __shared__ __align__(16) char smem[];

__device__ __noinline__ float helper(float x, P p) { return x * p.a + p.n; }
__device__ __noinline__ float f1(float x) { return x + 1; }
__device__ __noinline__ float f2(float x) { return x * 2; }
typedef float (*F)(float);
__device__ F functions[2] = {f1, f2};

__global__ void __launch_bounds__(128, 2) calls(const float *__restrict__ a, float *out, int n, P p) {
  __shared__ float tile[32][33];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x % 32][threadIdx.x / 32] = a[i];
  __syncthreads();
  float s = functions[n & 1](tile[threadIdx.x / 32][threadIdx.x % 32]);
#pragma unroll 1
  for (int j = 0; j < n; j++) s = helper(s, p) + lut[j % 3][j % 2] + *pointers[j & 1];
  if (s > 1e10f) printf("big %f\n", s);
  asm volatile("{ .reg .pred p; LAB: setp.lt.s32 p, %0, 5; @!p bra DONE; bra LAB; DONE: }" ::"r"(n));
  ((float *)smem)[threadIdx.x] = s;
  out[i] = ((float *)smem)[threadIdx.x ^ 1];
}
