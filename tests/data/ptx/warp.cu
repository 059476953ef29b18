// Shuffles, votes, atomics, packed halves, matrices and asynchronous copies.
// nvcc -ptx -arch=sm_80 warp.cu
#include <cuda_fp16.h>

__global__ void warp(const int4 *in, int *sum, __half2 *out, float *acc) {
  __shared__ int4 stage[128];
  unsigned to = (unsigned)__cvta_generic_to_shared(&stage[threadIdx.x]);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + threadIdx.x));
  asm volatile("cp.async.commit_group;\n\tcp.async.wait_group 0;");
  __syncthreads();
  int4 v = stage[threadIdx.x ^ 1];
  int s = v.x + v.y;
  for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d);
  if (__any_sync(~0u, s > 5)) atomicAdd(sum, s);
  __half2 h = __floats2half2_rn(v.z, v.w);
  out[threadIdx.x] = __hfma2(h, h, h);
  unsigned r[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(to));
  float c[4] = {};
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[0]), "r"(r[2]));
  for (int i = 0; i < 4; i++) acc[threadIdx.x * 4 + i] = c[i];
}
