// Functions through tables and of classes.
// nvcc pointers: -arch=sm_80 -O3
__device__ int twice(int a) { return 2 * a; }
__device__ int square(int a) { return a * a; }
__device__ int less(int a) { return a - 1; }
typedef int (*Function)(int);
__device__ Function functions[3] = {twice, square, less};

extern "C" __global__ void pointers(const int *x, int *y) {
  int t = threadIdx.x;
  y[t] = functions[x[t]](t);
}

struct Shape {
  __device__ virtual ~Shape() {}
  __device__ virtual float area() const = 0;
};
struct Square : Shape {
  float side;
  __device__ Square(float s) : side(s) {}
  __device__ float area() const override { return side * side; }
};
struct Rectangle : Shape {
  float a, b;
  __device__ Rectangle(float a, float b) : a(a), b(b) {}
  __device__ float area() const override { return a * b; }
};

__noinline__ __device__ float sum(const Shape *a, const Shape *b) { return a->area() + b->area(); }

extern "C" __global__ void virtuals(float *y) {
  int t = threadIdx.x;
  Square s(t);
  Rectangle r(t, 3);
  y[t] = t % 3 ? sum(&s, &r) : sum(&s, &s);
}
