// What is linked with parts.cu: functions, variables and function pointers of another file.
// nvcc linked: -arch=sm_80 -O3 -rdc=true
struct Pair {
  int whole;
  double real;
};
extern __device__ int table[4];
extern __constant__ float scale;
extern __device__ int (*chosen)(int);
extern __device__ int twice(int x);
extern __device__ Pair combined(Pair p, int n);
extern __device__ int factorial(int n);
static __device__ int counter;

__device__ int product(int n) { return n * factorial(n - 1); }  // which calls this again

extern "C" __global__ void linked(int *y, float *z) {
  int t = threadIdx.x;
  atomicAdd(&counter, 1);
  Pair p = combined({t, 2.0}, 3);
  y[t] = twice(t) + table[t % 4] + p.whole + chosen(t) + factorial(t % 6);
  __syncthreads();
  z[t] = scale * (float)p.real + counter;
}
