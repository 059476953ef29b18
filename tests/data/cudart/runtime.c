/* A runtime that is linked in, as nvcc does by default, and that finds no driver. Nothing of it may
   be reached. */

#include <stdio.h>
#include <stdlib.h>

static int real(const char *name) {
  printf("the real %s ran\n", name);
  exit(99);
}

#define REAL(name) \
  int name(void) { return real(#name); }
REAL(__cudaRegisterFatBinary)
REAL(__cudaRegisterFatBinaryEnd)
REAL(__cudaRegisterFunction)
REAL(__cudaRegisterVar)
REAL(__cudaRegisterManagedVar)
REAL(__cudaInitModule)
REAL(cudaLaunchKernel)
REAL(cudaMalloc)
REAL(cudaMallocManaged)
REAL(cudaMemcpy)
REAL(cudaMemcpyToSymbol)
REAL(cudaMemset)
REAL(cudaFree)
REAL(cudaDeviceSynchronize)
REAL(cudaGetLastError)
REAL(cudaGraphCreate)
REAL(cudaDeviceGetAttribute)
REAL(cudaFuncGetAttributes)
REAL(cudaGetErrorName)
