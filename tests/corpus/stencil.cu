// Neighbours: stencils in one to three dimensions, convolutions, games, pictures.
// nvcc stencil: -arch=sm_80 -O3 -fmad=false
// nvrtc stencil: -arch=sm_80 -fmad=false
__constant__ float weights[7] = {1, -2, 3, -4, 3, -2, 1};
__constant__ int kernel2d[3][3] = {{1, 2, 1}, {2, 4, 2}, {1, 2, 1}};
__device__ int offsets[4] = {-1, 1, 1 << 16, -(1 << 16)};
__device__ const int *rows[2] = {offsets + 2, offsets};

extern "C" __global__ void stencil_1d(int n, const float *x, float *y) {
  extern __shared__ float s[];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  for (int k = t; k < blockDim.x + 6; k += blockDim.x) {
    int from = blockIdx.x * blockDim.x + k - 3;
    s[k] = from >= 0 && from < n ? x[from] : 0;
  }
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 7; k++) sum += weights[k] * s[t + k];
  if (i < n) y[i] = sum;
}

extern "C" __global__ void heat_2d(int w, int h, const double *x, double *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= w || j >= h) return;
  int at = j * w + i;
  double c = x[at];
  if (i > 0 && i + 1 < w && j > 0 && j + 1 < h)
    c += 0.25 * (x[at - 1] + x[at + 1] + x[at - w] + x[at + w] - 4 * c);
  y[at] = c;
}

// Planes go by: the neighbours in z stay in registers.
extern "C" __global__ void laplace_3d(int nx, int ny, int nz, const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < 1 || j < 1 || i >= nx - 1 || j >= ny - 1) return;
  int plane = nx * ny, at = j * nx + i;
  float below = x[at], here = x[at + plane];
  for (int k = 1; k < nz - 1; k++) {
    at += plane;
    float above = x[at + plane];
    y[at] = below + above + x[at - 1] + x[at + 1] + x[at - nx] + x[at + nx] - 6 * here;
    below = here, here = above;
  }
}

extern "C" __global__ void blur(int w, int h, const uchar3 *x, uchar3 *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
  if (i >= w || j >= h) return;
  int r = 0, g = 0, b = 0;
  for (int v = -1; v <= 1; v++)
    for (int u = -1; u <= 1; u++) {
      int k = kernel2d[v + 1][u + 1];
      uchar3 p = x[min(max(j + v, 0), h - 1) * w + min(max(i + u, 0), w - 1)];
      r += k * p.x, g += k * p.y, b += k * p.z;
    }
  y[j * w + i] = make_uchar3((r + 8) / 16, (g + 8) / 16, (b + 8) / 16);
}

// Channels × images: y[n][k] = Σ x[n][c] * f[k][c], 3 × 3 without border.
extern "C" __global__ void convolution(int channels, int side, const float *x, const float *f,
                                       float *y) {
  int out = side - 2, i = threadIdx.x % out, j = threadIdx.x / out;
  if (j >= out) return;
  float sum = 0;
  for (int c = 0; c < channels; c++)
    for (int v = 0; v < 3; v++)
      for (int u = 0; u < 3; u++)
        sum += x[((blockIdx.y * channels + c) * side + j + v) * side + i + u] *
               f[((blockIdx.x * channels + c) * 3 + v) * 3 + u];
  y[((blockIdx.y * gridDim.x + blockIdx.x) * out + j) * out + i] = sum;
}

extern "C" __global__ void life(int n, const unsigned *x, unsigned *y) {  // 32 cells a word
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= n) return;
  unsigned ones = 0, twos = 0, fours = 0, own = x[j];
  for (int v = -1; v <= 1; v++) {
    unsigned row = x[(j + v + n) % n];
    unsigned near[3] = {__funnelshift_l(row, row, 1), row, __funnelshift_r(row, row, 1)};
    for (int u = 0; u < 3; u++) {
      if (u == 1 && v == 0) continue;
      unsigned carry = ones & near[u], more = twos & carry;
      ones ^= near[u], twos ^= carry, fours |= more;
    }
  }
  y[j] = ~fours & twos & (ones | own);
}

extern "C" __global__ void initialised(int *y) {
  int t = threadIdx.x;
  y[t] = offsets[t % 4] + rows[t / 2 % 2][t % 2];
  if (t == 0) offsets[3] = 5;
}

extern "C" __global__ void mandelbrot(int w, int most, short *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, n = 0;
  double cx = (i % w) * 0.03125 - 2, cy = (i / w) * 0.0625 - 1, u = 0, v = 0;
  for (; n < most && u * u + v * v <= 4; n++) {
    double next = u * u - v * v + cx;
    v = 2 * u * v + cy, u = next;
  }
  y[i] = n;
}
