// What nvcc's host code asks of a runtime: launches, templates, constants, managed variables,
// printf, attributes, occupancy, streams, events, properties. With SPLIT, in two files.

#include <cstdio>

#ifdef SPLIT
extern __device__ float scale(float);
#else
__device__ float scale(float x) { return 2 * x; }
#endif

__constant__ float shift[2];
__managed__ int total;

template <typename T> __global__ void apply(T *out, const T *in, int n) {
  extern __shared__ char raw[];
  T *cached = reinterpret_cast<T *>(raw);
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  cached[threadIdx.x] = i < n ? in[i] : T(0);
  __syncthreads();
  if (i < n) {
    out[i] = T(scale(cached[blockDim.x - 1 - threadIdx.x])) + T(shift[1]);
    atomicAdd(&total, 1);
  }
  if (i == 0) printf("of %d\n", n);
}

struct Wide { double values[40]; };

__global__ void sum(Wide w, double *out) {
  *out = 0;
  for (double v : w.values) *out += v;
}

#define CHECK(call) \
  if (cudaError_t e = (call)) printf("%s: %s\n", #call, cudaGetErrorName(e))

int main() {
  const int n = 256;
  float shifts[2] = {0, 0.5f}, *in, *out, host[n];
  CHECK(cudaMallocHost(&in, sizeof host));
  CHECK(cudaMalloc(&out, sizeof host));
  for (int i = 0; i < n; i++) in[i] = i;
  CHECK(cudaMemcpyToSymbol(shift, shifts, sizeof shifts));
  cudaStream_t stream;
  cudaEvent_t begin, end;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaEventRecord(begin, stream));
  apply<<<2, 128, 128 * sizeof(float), stream>>>(out, in, n);
  apply<<<2, 128, 60000, stream>>>(out, in, n);
  printf("too much: %s\n", cudaGetErrorName(cudaGetLastError()));
  CHECK(cudaFuncSetAttribute(apply<float>, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000));
  apply<<<2, 128, 60000, stream>>>(out, in, n);
  CHECK(cudaEventRecord(end, stream));
  CHECK(cudaMemcpyAsync(host, out, sizeof host, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, begin, end));
  printf("%g %g %d %d\n", host[0], host[255], total, ms > 0);

  int blocks;
  cudaDeviceProp properties;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, apply<float>, 128, 60000));
  CHECK(cudaGetDeviceProperties(&properties, 0));
  printf("%d of %zu, sm_%d%d, %d SMs\n", blocks, properties.sharedMemPerMultiprocessor,
         properties.major, properties.minor, properties.multiProcessorCount);

  Wide w;
  double *d;
  for (int i = 0; i < 40; i++) w.values[i] = i;
  CHECK(cudaMallocManaged(&d, sizeof *d));
  sum<<<1, 1>>>(w, d);
  CHECK(cudaDeviceSynchronize());
  printf("%g\n", *d);
  return 4;
}
