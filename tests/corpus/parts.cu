// What linked.cu has of another file.
// nvcc parts: -arch=sm_80 -O3 -rdc=true
struct Pair {
  int whole;
  double real;
};
__device__ int table[4] = {10, 20, 30, 40};
__constant__ float scale = 2.5f;
static __device__ int counter = 7;
extern __device__ int product(int n);

__device__ int twice(int x) { return 2 * x + counter; }
__device__ Pair combined(Pair p, int n) { return {p.whole + n, p.real * n}; }
__device__ int factorial(int n) { return n < 2 ? 1 : product(n); }
static __device__ int thousands(int x) { return x * 1000; }
__device__ int (*chosen)(int) = thousands;

extern "C" __global__ void part(int *y) { y[threadIdx.x] = product(threadIdx.x % 5 + 1); }
