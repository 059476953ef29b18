// nvcc -arch=sm_90a --fatbin --compress-mode=… scale.cu: none, speed (LZ4), default (Zstandard)
extern "C" __global__ void scale(float *x, float a) {
  float v = x[threadIdx.x];
#pragma unroll
  for (int i = 0; i < 8; i++) v = v * a + i;
  x[threadIdx.x] = v;
}
