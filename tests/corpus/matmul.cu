// Products and tiles without and with matrix instructions; int8.
// nvcc matmul: -arch=sm_80 -O3
// nvcc matmul_sm_75: -arch=sm_75 -O3
// nvrtc matmul: -arch=sm_80
#include <cuda_fp16.h>
#include <mma.h>

extern "C" __global__ void transpose(int w, int h, const float *x, float *y) {
  __shared__ float tile[32][33];
  int i = blockIdx.x * 32 + threadIdx.x, j = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (i < w && j + k < h) tile[threadIdx.y + k][threadIdx.x] = x[(j + k) * w + i];
  __syncthreads();
  i = blockIdx.y * 32 + threadIdx.x, j = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (i < h && j + k < w) y[(j + k) * h + i] = tile[threadIdx.x][threadIdx.y + k];
}

extern "C" __global__ void naive(int m, int n, int k, const float *a, const float *b, float *c) {
  int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m || j >= n) return;
  float sum = 0;
  for (int p = 0; p < k; p++) sum += a[i * k + p] * b[p * n + j];
  c[i * n + j] = sum;
}

extern "C" __global__ void tiled(int n, int k, const double *a, const double *b, double *c) {
  __shared__ double sa[8][8], sb[8][9];
  int x = threadIdx.x, y = threadIdx.y, i = blockIdx.y * 8 + y, j = blockIdx.x * 8 + x;
  double sum = 0;
  for (int p = 0; p < k; p += 8) {
    sa[y][x] = a[i * k + p + x], sb[y][x] = b[(p + y) * n + j];
    __syncthreads();
    for (int q = 0; q < 8; q++) sum += sa[y][q] * sb[q][x];
    __syncthreads();
  }
  c[i * n + j] = sum;
}

// 64 × 64 by 8 × 8 threads: 8 × 8 sums a thread.
extern "C" __global__ void __launch_bounds__(64)
register_blocked(int n, int k, const float *__restrict__ a, const float *__restrict__ b, float *c) {
  __shared__ __align__(16) float sa[4][64], sb[4][64];
  int t = threadIdx.x, ty = t / 8 * 8, tx = t % 8 * 8, i = blockIdx.y * 64, j = blockIdx.x * 64;
  float sums[8][8] = {};
  for (int p = 0; p < k; p += 4) {
    float4 row = *(const float4 *)(a + (i + t) * k + p);
    sa[0][t] = row.x, sa[1][t] = row.y, sa[2][t] = row.z, sa[3][t] = row.w;
    ((float4 *)sb)[t] = *(const float4 *)(b + (p + t / 16) * n + j + t % 16 * 4);
    __syncthreads();
#pragma unroll
    for (int q = 0; q < 4; q++) {
      float x[8], y[8];
      *(float4 *)x = *(float4 *)&sa[q][ty], *(float4 *)(x + 4) = *(float4 *)&sa[q][ty + 4];
      *(float4 *)y = *(float4 *)&sb[q][tx], *(float4 *)(y + 4) = *(float4 *)&sb[q][tx + 4];
      for (int u = 0; u < 8; u++)
        for (int v = 0; v < 8; v++) sums[u][v] += x[u] * y[v];
    }
    __syncthreads();
  }
  for (int u = 0; u < 8; u++)
    for (int v = 0; v < 8; v += 4)
      *(float4 *)(c + (i + ty + u) * n + j + tx + v) = *(float4 *)&sums[u][v];
}

extern "C" __global__ void dot_bytes(int n, int words, const int *a, const unsigned *b, int *c) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y;
  if (i >= n) return;
  int sum = 0;
  for (int p = 0; p < words; p++) sum = __dp4a(a[j * words + p], (int)b[i * words + p], sum);
  c[j * n + i] = sum;
  for (int p = 0; p < words; p++)
    sum = __dp2a_lo(a[j * words + p], (int)b[i * words + p], __dp2a_hi(a[p], (int)b[p], sum));
  c[(gridDim.y + j) * n + i] = sum;
}

extern "C" __global__ void wmma_f16(int n, int k, const __half *a, const __half *b, float *c) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
  fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
  fragment<accumulator, 16, 16, 16, float> fc;
  int i = blockIdx.y * 16, j = blockIdx.x * 16;
  fill_fragment(fc, 1.f);
  for (int p = 0; p < k; p += 16) {
    load_matrix_sync(fa, a + i * k + p, k);
    load_matrix_sync(fb, b + j * k + p, k);
    mma_sync(fc, fa, fb, fc);
  }
  for (int e = 0; e < fc.num_elements; e++) fc.x[e] *= 2;
  store_matrix_sync(c + i * n + j, fc, n, mem_row_major);
}

extern "C" __global__ void wmma_s8(const signed char *a, const signed char *b, int *c) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 32, 8, 16, signed char, col_major> fa;
  fragment<matrix_b, 32, 8, 16, signed char, row_major> fb;
  fragment<accumulator, 32, 8, 16, int> fc;
  load_matrix_sync(fc, c, 32, mem_col_major);
  load_matrix_sync(fa, a, 32);
  load_matrix_sync(fb, b, 16);
  mma_sync(fc, fa, fb, fc);
  store_matrix_sync(c, fc, 32, mem_col_major);
}
#if __CUDA_ARCH__ >= 800

__device__ unsigned shared_address(const void *p) { return __cvta_generic_to_shared(p); }

__device__ void bring(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
}

__device__ void load_matrices(unsigned (&r)[4], const void *from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(from)));
}

__device__ void mma_f16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// C = A Bᵀ, a tile of 64 × 64 by four warps; three stages of K = 32, swizzled.
extern "C" __global__ void __launch_bounds__(128)
pipelined(int n, int k, const __half *a, const __half *b, __half *c) {
  __shared__ __align__(128) __half sa[3][64 * 32], sb[3][64 * 32];
  int t = threadIdx.x, lane = t % 32, wm = t / 64 * 32, wn = t / 32 % 2 * 32;
  a += blockIdx.y * 64 * k, b += blockIdx.x * 64 * k;
  auto at = [](int row, int chunk) { return row * 32 + (chunk ^ (row >> 1 & 3)) * 8; };
  auto stage = [&](int s, int p) {
    for (int i = t; i < 256; i += 128) {
      bring(&sa[s][at(i / 4, i % 4)], a + i / 4 * k + p + i % 4 * 8);
      bring(&sb[s][at(i / 4, i % 4)], b + i / 4 * k + p + i % 4 * 8);
    }
  };
  float sums[2][4][4] = {};
  for (int s = 0; s < 2; s++) {
    if (s * 32 < k) stage(s, s * 32);
    asm volatile("cp.async.commit_group;");
  }
  for (int p = 0, s = 0; p < k; p += 32, s = (s + 1) % 3) {
    asm volatile("cp.async.wait_group 1;");
    __syncthreads();
    if (p + 64 < k) stage((s + 2) % 3, p + 64);
    asm volatile("cp.async.commit_group;");
    for (int q = 0; q < 4; q += 2) {
      unsigned fa[2][4], fb[2][4];
      for (int u = 0; u < 2; u++) {
        load_matrices(fa[u], &sa[s][at(wm + u * 16 + lane % 16, q + lane / 16)]);
        load_matrices(fb[u], &sb[s][at(wn + u * 16 + lane % 16, q + lane / 16)]);
      }
      for (int u = 0; u < 2; u++)
        for (int v = 0; v < 4; v++) mma_f16(sums[u][v], fa[u], fb[v / 2][v % 2], fb[v / 2][v % 2 + 2]);
    }
  }
  for (int u = 0; u < 2; u++)
    for (int v = 0; v < 4; v++) {
      int i = blockIdx.y * 64 + wm + u * 16 + lane / 4, j = blockIdx.x * 64 + wn + v * 8 + lane % 4 * 2;
      *(__half2 *)(c + i * n + j) = __floats2half2_rn(sums[u][v][0], sums[u][v][1]);
      *(__half2 *)(c + (i + 8) * n + j) = __floats2half2_rn(sums[u][v][2], sums[u][v][3]);
    }
}

extern "C" __global__ void mma_f64(const double *a, const double *b, double *c) {
  int lane = threadIdx.x;
  double c0 = 0, c1 = 0;
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(c0), "+d"(c1)
      : "d"(a[lane]), "d"(b[lane]));
  ((double2 *)c)[lane] = make_double2(c0, c1);
}

extern "C" __global__ void mma_b1(const unsigned *a, const unsigned *b, int2 *c) {
  int lane = threadIdx.x, c0 = 0, c1 = 0, d = 0, e = 0;
  asm("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.xor.popc {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+r"(c0), "+r"(c1), "+r"(d), "+r"(e)
      : "r"(a[lane]), "r"(a[32 + lane]), "r"(b[lane]));
  c[lane] = make_int2(c0, c1);
  c[32 + lane] = make_int2(d, e);
}
#endif
