/* A program of the driver's API: it loads PTX from a file and finds a function by its name, as
   libraries do. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned);
int cuGetErrorName(int, const char **);
int cuDeviceGetName(char *, int, int);
int cuModuleLoad(void **, const char *);
int cuModuleLoadData(void **, const void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuModuleGetGlobal_v2(uint64_t *, size_t *, void *, const char *);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemcpyHtoD_v2(uint64_t, const void *, size_t);
int cuMemcpyDtoH_v2(void *, uint64_t, size_t);
int cuMemsetD32_v2(uint64_t, unsigned, size_t);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void *, void **, void **);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

static int said(const char *what, int status) {
  const char *name;
  cuGetErrorName(status, &name);
  printf("%s %s\n", what, name);
  return status;
}

/* box(map, out, column, row) of tests/data/ptx/box.ptx: 16 rows of 32 of a 64×64 matrix */
static void box(const char *ptx) {
  struct { _Alignas(64) char bytes[128]; } map;
  static float host[64 * 64], out[512];
  uint64_t x, y, size[] = {64, 64}, stride[] = {256};
  uint32_t extent[] = {32, 16}, steps[] = {1, 1}, column = 32, row = 8;
  void *module, *kernel, *arguments[] = {&map, &y, &column, &row};
  int (*encode)(void *, int, uint32_t, uint64_t, const uint64_t *, const uint64_t *,
                const uint32_t *, const uint32_t *, int, int, int, int);
  for (int i = 0; i < 64 * 64; i++) host[i] = i;
  cuMemAlloc_v2(&x, sizeof host), cuMemcpyHtoD_v2(x, host, sizeof host);
  cuMemAlloc_v2(&y, sizeof out);
  said("entry", cuGetProcAddress_v2("cuTensorMapEncodeTiled", (void **)&encode, 13000, 0, 0));
  said("wrong map", encode(&map, 7, 2, x + 1, size, stride, extent, steps, 0, 0, 0, 0));
  said("map", encode(&map, 7, 2, x, size, stride, extent, steps, 0, 0, 0, 0));
  said("load", cuModuleLoad(&module, ptx));
  said("function", cuModuleGetFunction(&kernel, module, "box"));
  said("launch", cuLaunchKernel(kernel, 1, 1, 1, 512, 1, 1, 0, 0, arguments, 0));
  cuMemcpyDtoH_v2(out, y, sizeof out);
  printf("%g %g %g\n", out[0], out[31], out[511]);
}

/* By name: what is served in an older version alone, what is refused, what there is not. */
static void names(void) {
  int device = 7, (*call)(void *);
  cuGetProcAddress_v2("cuCtxGetDevice", (void **)&call, 13000, 0, 0);
  said("served", call(&device));
  cuGetProcAddress_v2("cuGraphCreate", (void **)&call, 13000, 0, 0);
  said("refused", call(&device));
  said("unknown", cuGetProcAddress_v2("cuNothing", (void **)&call, 13000, 0, 0));
}

int main(int count, char **words) {
  char name[64];
  void *module, *kernel;
  uint64_t at;
  size_t size;
  unsigned word;
  said("init", cuInit(0));
  cuDeviceGetName(name, sizeof name, 0);
  puts(name);
  said("no module", cuModuleLoad(&module, "/no/such/file"));
  said("no PTX", cuModuleLoadData(&module, "this is no PTX"));
  said("module", cuModuleLoad(&module, words[1]));
  said("no kernel", cuModuleGetFunction(&kernel, module, "nothing"));
  said("global", cuModuleGetGlobal_v2(&at, &size, module, "bias"));
  cuMemcpyDtoH_v2(&word, at, size);
  printf("%#x of %zu bytes\n", word, size);
  cuMemsetD32_v2(at, 0x12345678, 1);
  cuMemcpyDtoH_v2(&word, at, size);
  printf("%#x\n", word);
  names();
  if (count > 2) box(words[2]);
  return 0;
}
