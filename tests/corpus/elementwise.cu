// Each element by itself: strides, packed halves, vectors, templates, structs by value.
// nvcc elementwise: -arch=sm_80 -O3
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void grid_stride(int n, float a, const float *x, float *y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = a * x[i] + y[i];
}

extern "C" __global__ void saxpy_half2(int n, __half a, const __half2 *x, __half2 *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hfma2(__half2half2(a), x[i], y[i]);
}

extern "C" __global__ void saxpy_bfloat162(int n, __nv_bfloat16 a, const __nv_bfloat162 *x,
                                           __nv_bfloat162 *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hfma2(__bfloat162bfloat162(a), x[i], y[i]);
}

extern "C" __global__ void vectors(const float4 *x, const int4 *k, float4 *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 v = x[i];
  int4 s = k[i];
  y[i] = make_float4(v.w * s.x, v.z * s.y, v.y * s.z, v.x * s.w);
}

template <class T> __device__ T clamp_to(T x, T low, T high) {
  return x < low ? low : x > high ? high : x;
}

template <class T> __global__ void clamped(int n, const T *x, T *y, T low, T high) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = clamp_to(x[i], low, high);
}

template __global__ void clamped(int, const signed char *, signed char *, signed char, signed char);
template __global__ void clamped(int, const long long *, long long *, long long, long long);
template __global__ void clamped(int, const double *, double *, double, double);

struct Affine {
  char kind;
  short bias;
  float scale[3];
  double offset;
};

extern "C" __global__ void structs(Affine p, const float *x, double *y) {
  int i = threadIdx.x;
  y[i] = p.kind == 'a' ? p.scale[i % 3] * x[i] + p.bias + p.offset : 0;
}

union Word {
  float real;
  unsigned bits;
  unsigned char bytes[4];
};

extern "C" __global__ void unions(const float *x, unsigned *y) {
  Word w;
  w.real = x[threadIdx.x];
  unsigned char low = w.bytes[threadIdx.x % 4];
  w.bytes[threadIdx.x % 4] = w.bytes[3 - threadIdx.x % 4];
  w.bytes[3 - threadIdx.x % 4] = low;
  y[threadIdx.x] = w.bits;
}

extern "C" __global__ void saturated(const int *x, signed char *c, unsigned char *u, short *s) {
  int i = threadIdx.x, v = x[i];
  asm("cvt.sat.s8.s32 %0, %1;" : "=r"(v) : "r"(x[i]));
  c[i] = v;
  u[i] = min(max(x[i], 0), 255);
  s[i] = min(max(x[i], -32768), 32767);
}

extern "C" __global__ void half_to_float(int n, const __half *x, const __nv_bfloat16 *b, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float s = __half2float(x[i]) - __bfloat162float(b[i]);
  y[i] = __hlt(x[i], __float2half(0.f)) ? -s : s;
}
