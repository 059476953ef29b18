// What neural networks need: rows normalised, attention, quantised weights, eight-bit floats.
// nvcc networks: -arch=sm_80 -O3
// nvcc networks_sm_90: -arch=sm_90 -O3
// nvcc networks_fast: -arch=sm_80 -O3 --use_fast_math -lineinfo
// nvrtc networks: -arch=sm_90
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

template <class Op> __device__ float block_reduce(float v, Op op, float *s) {
  for (int d = 16; d; d /= 2) v = op(v, __shfl_xor_sync(~0u, v, d));
  __syncthreads();
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
  __syncthreads();
  v = s[0];
  for (int w = 1; w < blockDim.x / 32; w++) v = op(v, s[w]);
  return v;
}

extern "C" __global__ void softmax(int n, const float *x, float *y) {
  __shared__ float s[32];
  x += blockIdx.x * n, y += blockIdx.x * n;
  float top = -INFINITY, sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) top = fmaxf(top, x[i]);
  top = block_reduce(top, [](float a, float b) { return fmaxf(a, b); }, s);
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += y[i] = expf(x[i] - top);
  sum = block_reduce(sum, [](float a, float b) { return a + b; }, s);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] /= sum;
}

extern "C" __global__ void layernorm(int n, const __nv_bfloat16 *x, const float *gain,
                                     const float *bias, float *y) {
  __shared__ float s[32];
  auto add = [](float a, float b) { return a + b; };
  x += blockIdx.x * n, y += blockIdx.x * n;
  float sum = 0, squares = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += __bfloat162float(x[i]);
  float mean = block_reduce(sum, add, s) / n;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float d = __bfloat162float(x[i]) - mean;
    squares += d * d;
  }
  float scale = rsqrtf(block_reduce(squares, add, s) / n + 1e-5f);
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    y[i] = (__bfloat162float(x[i]) - mean) * scale * gain[i] + bias[i];
}

extern "C" __global__ void activations(int n, const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  y[i] = 0.5f * v * (1 + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
  y[n + i] = v / (1 + __expf(-v));
  y[2 * n + i] = 0.5f * v * (1 + erff(v * 0.70710678f));
  y[3 * n + i] = v > 20 ? v : log1pf(expf(v));
}

// A row of Q for each thread, K and V by tiles of 16 rows in shared memory; 16 wide.
extern "C" __global__ void attention(int n, bool causal, const float *q, const float *k,
                                     const float *v, float *o) {
  __shared__ float sk[16][16], sv[16][16];
  int t = threadIdx.x, row = blockIdx.x * blockDim.x + t;
  float mine[16], out[16] = {}, top = -INFINITY, sum = 0;
  for (int d = 0; d < 16; d++) mine[d] = q[row * 16 + d] * 0.25f;
  for (int from = 0; from < n; from += 16) {
    __syncthreads();
    for (int e = t; e < 256; e += blockDim.x)
      sk[e / 16][e % 16] = k[from * 16 + e], sv[e / 16][e % 16] = v[from * 16 + e];
    __syncthreads();
    for (int j = 0; j < 16; j++) {
      if (causal && from + j > row) break;
      float score = 0;
      for (int d = 0; d < 16; d++) score += mine[d] * sk[j][d];
      float higher = fmaxf(top, score), fade = expf(top - higher), p = expf(score - higher);
      sum = sum * fade + p, top = higher;
      for (int d = 0; d < 16; d++) out[d] = out[d] * fade + p * sv[j][d];
    }
  }
  for (int d = 0; d < 16; d++) o[row * 16 + d] = out[d] / sum;
}

// Eight unsigned 4-bit weights a word, made halves by lop3 and prmt; a scale for each 8 words.
extern "C" __global__ void dequantise_w4(const unsigned *w, const __half *scales, __half2 *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned word = w[i], h[4], bias = 0x64086408;
  __half2 scale = __half2half2(scales[i / 8]), sixteenth = __float2half2_rn(0.0625f);
  for (int p = 0; p < 2; p++, word >>= 8) {
    asm("lop3.b32 %0, %1, 0x000f000f, 0x64006400, 0xea;" : "=r"(h[2 * p]) : "r"(word));
    asm("lop3.b32 %0, %1, 0x00f000f0, 0x64006400, 0xea;" : "=r"(h[2 * p + 1]) : "r"(word));
  }
  for (int p = 0; p < 4; p++) {
    __half2 v = *(__half2 *)&h[p];
    v = p % 2 ? __hfma2(v, sixteenth, __float2half2_rn(-72.f)) : __hsub2(v, *(__half2 *)&bias);
    y[i * 4 + p] = __hmul2(v, scale);
  }
}

// Signed bytes made floats by prmt: 2^23 + 128 + b, less what is too much.
extern "C" __global__ void dequantise_s8(const unsigned *w, float4 *y) {
  unsigned word = w[threadIdx.x] ^ 0x80808080;
  auto real = [&](unsigned how) {
    return __uint_as_float(__byte_perm(word, 0x4b000000, how)) - 8388736.f;
  };
  y[threadIdx.x] = make_float4(real(0x7650), real(0x7651), real(0x7652), real(0x7653));
}

extern "C" __global__ void to_fp8(int n, const float *x, unsigned char *e4m3, unsigned char *e5m2,
                                  float *back) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __nv_fp8_e4m3 a(x[i]);
  __nv_fp8_e5m2 b(x[i]);
  e4m3[i] = a.__x, e5m2[i] = b.__x, back[i] = float(a), back[n + i] = float(b);
}

extern "C" __global__ void absmax_quantise(int n, const float *x, signed char *q, float *scale) {
  __shared__ float s[32];
  float most = 0;
  x += blockIdx.x * n, q += blockIdx.x * n;
  for (int i = threadIdx.x; i < n; i += blockDim.x) most = fmaxf(most, fabsf(x[i]));
  most = block_reduce(most, [](float a, float b) { return fmaxf(a, b); }, s);
  for (int i = threadIdx.x; i < n; i += blockDim.x) q[i] = __float2int_rn(x[i] * (128 / most) / 2);
  if (threadIdx.x == 0) scale[blockIdx.x] = most;
}

extern "C" __global__ void rope(int heads, const __half2 *x, __half2 *y, float base) {
  int d = threadIdx.x, at = (blockIdx.x * heads + blockIdx.y) * blockDim.x + d;
  float s, c, angle = blockIdx.x * powf(base, -d / (float)blockDim.x);
  sincosf(angle, &s, &c);
  float2 v = __half22float2(x[at]);
  y[at] = __floats2half2_rn(v.x * c - v.y * s, v.x * s + v.y * c);
}

extern "C" __global__ void embedding_gradient(int width, const int *tokens, const __half2 *g,
                                              __half2 *sums, __nv_bfloat16 *brain) {
  int at = tokens[blockIdx.x] * width + threadIdx.x;
  atomicAdd(sums + at, g[blockIdx.x * width + threadIdx.x]);
  atomicAdd(brain + at, __float2bfloat16(1.f));
}
