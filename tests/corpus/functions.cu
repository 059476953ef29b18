// CUDA's mathematical functions.
// nvcc functions: -arch=sm_80 -O3
// nvcc functions_fast: -arch=sm_80 -O3 --use_fast_math -DFAST
// nvrtc functions_fast: -arch=sm_80 -use_fast_math -DFAST
#define FUNCTIONS(NAME, T, ...)                                                \
  extern "C" __global__ void NAME(int n, const T *x, T *y) {                   \
    int i = blockIdx.x * blockDim.x + threadIdx.x;                             \
    if (i >= n) return;                                                        \
    T v = x[i], all[] = {__VA_ARGS__};                                         \
    for (int k = 0; k < sizeof(all) / sizeof(T); k++) y[k * n + i] = all[k];   \
  }
FUNCTIONS(exponentials, float, expf(v), exp2f(v), exp10f(v / 4), expm1f(v), logf(fabsf(v) + 1),
          log2f(fabsf(v) + 1), log10f(fabsf(v) + 1), log1pf(fabsf(v)), powf(fabsf(v), 1.7f), cbrtf(v))
FUNCTIONS(circular, float, sinf(v), cosf(v), tanf(v / 8), asinf(v / 9), acosf(v / 9), atanf(v),
          atan2f(v, 1.5f), sinhf(v), coshf(v), tanhf(v), sinpif(v), hypotf(v, 3.f))
FUNCTIONS(special, float, erff(v), erfcf(v / 4), tgammaf(fabsf(v) + 1), lgammaf(fabsf(v) + 1), normcdff(v),
          erfinvf(erff(v / 9)))
#ifndef FAST
FUNCTIONS(far_circular, float, sinf(v * 1e6f), cosf(v * 1e20f))
FUNCTIONS(doubles, double, exp(v), log(fabs(v) + 1), atan(v), sqrt(fabs(v)), rsqrt(fabs(v) + 1), tanh(v),
          erf(v), cbrt(v), fmod(v, 0.7), 1 / v)
FUNCTIONS(doubles_called, double, sin(v), cos(v * 1e12), pow(fabs(v), 1.7))
FUNCTIONS(rounded, float, rintf(v), floorf(v), ceilf(v), truncf(v), roundf(v), fmodf(v, 0.7f),
          remainderf(v, 0.7f), copysignf(2, v), ldexpf(v, -140), v / 3, sqrtf(fabsf(v)), 1 / v, fmaf(v, v, v),
          __fadd_ru(v, 1e-12f), __fmul_rd(v, 0.1f), nextafterf(v, 9), fdimf(v, 1), fminf(v, NAN))
#endif
