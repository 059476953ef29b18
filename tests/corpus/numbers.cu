// Bits and whole numbers.
// nvcc numbers: -arch=sm_80 -O3
// nvrtc numbers: -arch=sm_80 --device-int128
#include <stdint.h>

extern "C" __global__ void bit_tricks(int n, const unsigned *x, const unsigned *y, unsigned *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned a = x[i], b = y[i], field;
  unsigned long long wide = (unsigned long long)a << 32 | b;
  out[i] = __popc(a) | __popcll(wide) << 8 | __clz(a) << 16 | __clzll(wide) << 24;
  out[n + i] = __brev(a) ^ (unsigned)(__brevll(wide) >> 7);
  out[2 * n + i] = __ffs(a) | __ffsll(wide) << 8;
  out[3 * n + i] = __funnelshift_l(a, b, b & 63);
  out[4 * n + i] = __funnelshift_rc(a, b, a & 63);
  asm("bfe.u32 %0, %1, %2, %3;" : "=r"(field) : "r"(a), "r"(b & 31), "r"(a & 31));
  out[5 * n + i] = field;
  asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(field) : "r"(a), "r"(b), "r"(a & 31), "r"(b >> 27));
  out[6 * n + i] = field;
  out[7 * n + i] = __byte_perm(a, b, b >> 3);
  out[8 * n + i] = (a & b) | (~a & 0x0f0f0f0f) ^ b;
}

extern "C" __global__ void packed_bytes(int n, const unsigned *x, const unsigned *y, unsigned *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = __vadd4(x[i], y[i]);
  out[n + i] = __vabsdiffu4(x[i], y[i]);
  out[2 * n + i] = __vmaxs2(x[i], y[i]);
  out[3 * n + i] = __vcmpgtu4(x[i], y[i]);
  out[4 * n + i] = __sad((int)x[i], (int)y[i], 5u);
  out[5 * n + i] = __uhadd(x[i], y[i]);
  out[6 * n + i] = __vaddss2(x[i], y[i]);
}

template <class T> __device__ void divided(int i, const T *x, const T *y, T *out) {
  T d = y[i] ? y[i] : T(3);
  out[4 * i] = x[i] / d, out[4 * i + 1] = x[i] % d;
  out[4 * i + 2] = x[i] / T(7), out[4 * i + 3] = x[i] % T(10);
}

#define DIVIDE(NAME, T)                                                        \
  extern "C" __global__ void NAME(const T *x, const T *y, T *out) {            \
    divided(blockIdx.x * blockDim.x + threadIdx.x, x, y, out);                 \
  }
DIVIDE(divide_s8, int8_t)
DIVIDE(divide_u16, uint16_t)
DIVIDE(divide_s32, int32_t)
DIVIDE(divide_u32, uint32_t)
DIVIDE(divide_s64, int64_t)
DIVIDE(divide_u64, uint64_t)

extern "C" __global__ void wide_products(const long long *x, const long long *y, long long *out) {
  int i = threadIdx.x;
  out[4 * i] = x[i] * y[i];
  out[4 * i + 1] = __mul64hi(x[i], y[i]);
  out[4 * i + 2] = __umul64hi(x[i], y[i]);
  out[4 * i + 3] = (long long)(int)x[i] * (int)y[i] + __mulhi((int)x[i], (int)y[i]) + __mul24(x[i], y[i]);
}

// Sums, products and shifts of 128 bits: Horner's rule for a polynomial modulo 2^128.
extern "C" __global__ void int128(const __int128 *x, const unsigned char *shift, __int128 *out) {
  int i = threadIdx.x;
  __int128 v = x[i], sum = 1;
  for (int k = 0; k < 5; k++) sum = sum * v + (v >> shift[i]) - ((unsigned __int128)v >> k);
  out[i] = v < 0 ? sum : ~sum << shift[i];
}

extern "C" __global__ void mod_power(const unsigned *x, const unsigned *e, unsigned *out) {
  const unsigned p = 2147483647u;
  unsigned long long base = x[threadIdx.x] % p, r = 1;
  for (unsigned k = e[threadIdx.x]; k; k >>= 1) {
    if (k & 1) r = r * base % p;
    base = base * base % p;
  }
  out[threadIdx.x] = r;
}

extern "C" __global__ void random_walk(int n, unsigned *state, double *mean) {  // PCG and xorshift
  unsigned long long s = state[threadIdx.x] * 2654435769ull + 1;
  unsigned v = state[threadIdx.x] | 1;
  double sum = 0;
  for (int i = 0; i < n; i++) {
    s = s * 6364136223846793005ull + 1442695040888963407ull;
    unsigned x = (unsigned)((s >> 18 ^ s) >> 27), r = s >> 59;
    v ^= v << 13, v ^= v >> 17, v ^= v << 5;
    sum += (x >> r | x << (-r & 31)) * 0x1p-32 + (int)v * 0x1p-31;
  }
  state[threadIdx.x] = v, mean[threadIdx.x] = sum;
}

extern "C" __global__ void crc32(int n, const unsigned char *text, unsigned *out) {
  unsigned c = ~0u;
  text += threadIdx.x * n;
  for (int i = 0; i < n; i++) {
    c ^= text[i];
    for (int b = 0; b < 8; b++) c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
  }
  out[threadIdx.x] = ~c;
}
