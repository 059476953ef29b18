// What a compiler makes of printf and assert.
// nvcc -ptx -arch=sm_90a prints.cu
#include <cassert>
#include <cstdio>

extern "C" __global__ void prints(const float *x, int n, short s, char c, int *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int r = printf("%2d: %f %hd %c %lld %s %5.2e%%\n", i, x[i], s, c, 1ll << i, "text", x[i] * 1e10);
  if (i % 3 == 1) r += printf("no arguments\n");
  assert(i < n);
  out[i] = r;
}
