// What the driver gives a kernel: a grid that waits for itself, a heap, clocks.
// nvcc system: -arch=sm_80 -O3
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void grid_sync(int *x, int *y, int rounds) {
  cg::grid_group grid = cg::this_grid();
  int n = grid.size(), t = grid.thread_rank();
  for (int i = 0; i < rounds; i++) {
    x[t] = i + t;
    grid.sync();
    y[t] += x[(t + 33 * i) % n];
    grid.sync();
  }
}

struct Node {
  int value;
  Node *next;
  __device__ Node(int v, Node *n) : value(v), next(n) {}
  __device__ virtual int weight() { return value; }
  __device__ virtual ~Node() {}
};
struct Heavy : Node {
  double more[3];
  __device__ Heavy(int v, Node *n) : Node(v, n) { more[v % 3] = 0.5; }
  __device__ int weight() override { return 2 * value + (int)(4 * more[value % 3]); }
};

extern "C" __global__ void lists(int *y) {
  int t = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
  Node *first = nullptr;
  for (int i = 0; i < t % 7; i++) first = (i + t) % 2 ? new Node(i, first) : new Heavy(i, first);
  while (first) {
    Node *next = first->next;
    sum = 3 * sum + first->weight();
    delete first;
    first = next;
  }
  y[t] = sum;
}

extern "C" __global__ void spin(int *y) {
  long long start = clock64();
  while (clock64() - start < 1000 * threadIdx.x) __nanosleep(20);
  y[threadIdx.x] = (clock64() - start) / 1000 >= threadIdx.x;
}
