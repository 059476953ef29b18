// Functions that are not inlined, with structs by value and through pointers; recursive ones.
// nvcc calls: -arch=sm_80 -O3
struct Pair {
  int low, high;
  double real;
};

__noinline__ __device__ int gcd(int a, int b) {
  while (b) {
    int rest = a % b;
    a = b, b = rest;
  }
  return a;
}

__noinline__ __device__ Pair paired(int a, Pair p) { return {p.high, a + p.low, p.real / 2}; }

__noinline__ __device__ void exchange(int *a, int *b) {
  int kept = *a;
  *a = *b, *b = kept;
}

__noinline__ __device__ int nested(int a) { return a > 3 ? gcd(a, 12) + 1 : a; }

extern "C" __global__ void direct(const int *x, int *y, Pair *pairs) {
  int t = threadIdx.x, a = x[t], b = 36;
  if (t % 2) a = gcd(a, b) * 10 + nested(t);  // not by all lanes
  Pair p = {1, 2, 3};
  for (int i = 0; i < t % 4; i++) p = paired(a, p);
  if (p.low > p.high) exchange(&p.low, &p.high);
  y[t] = a, pairs[t] = p;
}

__device__ int ackermann(int m, int n) {
  return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

extern "C" __global__ void recursive(int *y) { y[threadIdx.x] = ackermann(2, threadIdx.x % 5); }

__device__ void quicksort(int *x, int n) {
  if (n < 2) return;
  int pivot = x[n / 2], i = 0, j = n - 1;
  while (i <= j) {
    while (x[i] < pivot) i++;
    while (x[j] > pivot) j--;
    if (i <= j) {
      int kept = x[i];
      x[i++] = x[j], x[j--] = kept;
    }
  }
  quicksort(x, j + 1);
  quicksort(x + i, n - i);
}

extern "C" __global__ void sorted(int n, int *x) { quicksort(x + threadIdx.x * n, n); }
