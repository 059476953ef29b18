/* A program of the CUDA runtime, with what nvcc would add: it registers its fatbinary, its kernels
   and its variables, and launches through stubs. The first argument says what it does. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fatbin.h" /* unsigned long long fatbin[] */

typedef struct { unsigned x, y, z; } dim3;

void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *,
                            void *, void *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
void __cudaRegisterManagedVar(void **, void **, char *, const char *, int, size_t, int, int);
char __cudaInitModule(void **);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
int cudaMalloc(void **, size_t);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaMallocHost(void **, size_t);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int);
int cudaMemset(void *, int, size_t);
int cudaFree(void *);
int cudaDeviceSynchronize(void);
int cudaGetLastError(void);
int cudaGraphCreate(void **, unsigned);
int cudaDeviceGetAttribute(int *, int, int);
int cudaFuncGetAttributes(void *, const void *);
const char *cudaGetErrorName(int);

static char scale, show, spin, bias; /* their addresses stand for kernels and a variable */
static unsigned *calls;
static void **module;

static void __attribute__((constructor)) enter(void) {
  static struct { int magic, version; void *data, *file; } wrapper = {0x466243b1, 1, fatbin, 0};
  module = __cudaRegisterFatBinary(&wrapper);
  __cudaRegisterFunction(module, &scale, "scale", "scale", -1, 0, 0, 0, 0, 0);
  __cudaRegisterFunction(module, &show, "show", "show", -1, 0, 0, 0, 0, 0);
  __cudaRegisterFunction(module, &spin, "spin", "spin", -1, 0, 0, 0, 0, 0);
  __cudaRegisterVar(module, &bias, "bias", "bias", 0, 4, 0, 0);
  __cudaRegisterManagedVar(module, (void **)&calls, "calls", "calls", 0, 4, 0, 0);
  __cudaRegisterFatBinaryEnd(module);
}

static void say(const char *what, int status) {
  printf("%s %s\n", what, cudaGetErrorName(status));
}

static int launch(void *kernel, unsigned grid, unsigned block, void **arguments) {
  return cudaLaunchKernel(kernel, (dim3){grid, 1, 1}, (dim3){block, 1, 1}, arguments, 0, 0);
}

static int scaled(float *y, unsigned n, float *x, float a) {
  void *arguments[] = {&y, &n, &x, &a};
  return launch(&scale, (n + 31) / 32, 32, arguments);
}

static void products(void) {
  enum { N = 100 };
  float host[N], *x, *y, half = 0.25f;
  say("managed", cudaMallocManaged((void **)&x, sizeof host, 1));
  say("malloc", cudaMalloc((void **)&y, sizeof host));
  for (int i = 0; i < N; i++) x[i] = i; /* the host writes what a kernel reads */
  say("scale", scaled(y, N, x, 2));
  cudaMemcpyToSymbol(&bias, &half, 4, 0, 1);
  say("scale", scaled(x, N / 2, x, 3));
  say("copy", cudaMemcpy(host, y, sizeof host, 2));
  __cudaInitModule(module);
  printf("%g %g %g %g, %u calls\n", host[0], host[99], x[49], x[50], *calls);
  say("free", cudaFree(y));
}

static void misuse(void) {
  void *p, *q;
  char host[64];
  cudaMalloc(&p, 64);
  say("outside", cudaMemcpy(p, host, 65, 1));
  say("swapped", cudaMemcpy(host, p, 64, 1));
  say("kind", cudaMemcpy(host, p, 64, 9));
  say("inner", cudaFree((char *)p + 1));
  say("host", cudaMemset(host, 0, 64));
  say("graph", cudaGraphCreate(&q, 0));
  say("block", launch(&spin, 1, 2000, 0));
  say("grid", launch(&spin, 0, 32, 0));
  say("kernel", launch(host, 1, 1, 0));
  say("last", cudaGetLastError());
  say("cleared", cudaGetLastError());
  say("freed", cudaFree(p));
  say("twice", cudaFree(p));
}

static void prints(void) {
  for (unsigned n = 1; n < 3; n++) {
    void *arguments[] = {&n};
    launch(&show, 1, 1, arguments);
    printf("launched %u\n", n);
    cudaDeviceSynchronize();
  }
}

static void fault(void) {
  float *x;
  cudaMalloc((void **)&x, 64);
  say("launch", scaled(x, 32, x, 1));
  say("wait", cudaDeviceSynchronize());
  say("after", cudaMalloc((void **)&x, 64));
}

static int forks(void) {
  float *x;
  say("parent", cudaMalloc((void **)&x, 64));
  fflush(stdout);
  if (!fork()) {
    say("child", cudaMalloc((void **)&x, 64));
    return 0;
  }
  sleep(1);
  return 0;
}

static void device(void) {
  struct { size_t shared, constant, local; int threads, registers, ptx, binary, more[30]; } kernel;
  int sms;
  cudaDeviceGetAttribute(&sms, 16, 0);
  cudaFuncGetAttributes(&kernel, &scale);
  printf("%d SMs, PTX for sm_%d on sm_%d\n", sms, kernel.ptx, kernel.binary);
}

int main(int count, char **words) {
  const char *what = count > 1 ? words[1] : "";
  if (!strcmp(what, "products")) products();
  if (!strcmp(what, "misuse")) misuse();
  if (!strcmp(what, "prints")) prints();
  if (!strcmp(what, "fault")) fault();
  if (!strcmp(what, "forks")) return forks();
  if (!strcmp(what, "abort")) abort();
  if (!strcmp(what, "spin")) {
    puts("spinning"), fflush(stdout);
    say("spin", launch(&spin, 1, 1, 0));
  }
  if (!strcmp(what, "device")) device();
  return count > 2 ? atoi(words[2]) : 0;
}
