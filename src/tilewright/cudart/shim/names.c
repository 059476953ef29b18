/* Names: of errors, and of what the driver has. */

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const struct { int number; const char *name, *text; } errors[] = {
    {SUCCESS, "cudaSuccess", "no error"},
    {INVALID_VALUE, "cudaErrorInvalidValue", "invalid argument"},
    {OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory"},
    {NOT_INITIALIZED, "cudaErrorInitializationError", "initialization error"},
    {INVALID_CONFIGURATION, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {12, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {INVALID_SYMBOL, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {INVALID_DIRECTION, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {52, "cudaErrorMissingConfiguration", "launch without a configuration"},
    {INVALID_FUNCTION, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {NO_DEVICE, "cudaErrorNoDevice", "no CUDA-capable device"},
    {INVALID_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {INVALID_CONTEXT, "cudaErrorDeviceUninitialized", "invalid device context"},
    {209, "cudaErrorNoKernelImageForDevice", "no PTX that the device could run"},
    {215, "cudaErrorUnsupportedLimit", "limit is not supported"},
    {PEER_UNSUPPORTED, "cudaErrorPeerAccessUnsupported", "there is no other device"},
    {218, "cudaErrorInvalidPtx", "PTX that the virtual machine does not run"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {NOT_FOUND, "cudaErrorSymbolNotFound", "named symbol not found"},
    {NOT_READY, "cudaErrorNotReady", "device not ready"},
    {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {701, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {702, "cudaErrorLaunchTimeout", "the launch ran out of its steps or came to a deadlock"},
    {710, "cudaErrorAssert", "device-side assert triggered"},
    {NOT_REGISTERED, "cudaErrorHostMemoryNotRegistered", "host memory is not registered"},
    {715, "cudaErrorIllegalInstruction", "an illegal instruction was encountered"},
    {716, "cudaErrorMisalignedAddress", "misaligned address"},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {NOT_SUPPORTED, "cudaErrorNotSupported", "operation not supported"},
    {912, "cudaErrorInvalidClusterSize", "cluster size is not supported"},
    {UNKNOWN, "cudaErrorUnknown", "unknown error"},
};

static int row(int s) {
  int i = 0, last = sizeof errors / sizeof *errors - 1;
  while (i < last && errors[i].number != s) i++;
  return i;
}

const char *error_name(int s) { return errors[row(s)].name; }

const char *error_text(int s) { return errors[row(s)].text; }

API const char *cudaGetErrorName(status s) { return error_name(s); }

API const char *cudaGetErrorString(status s) { return error_text(s); }

/* A function of this library by the name without its version: the newest that is served. */
void *entry_point(const char *name) {
  static const char *endings[] = {"_v4", "_v3", "_v2", ""};
  char versioned[128];
  Dl_info own;
  if (strncmp(name, "cu", 2) || !dladdr((void *)entry_point, &own)) return 0;
  void *library = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  for (int i = 0; i < 4; i++) {
    snprintf(versioned, sizeof versioned, "%s%s", name, endings[i]);
    void *found = dlsym(library, versioned);
    if (found) return found;
  }
  return 0;
}
