/* Names of errors and of driver functions. */

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const struct { int number; const char *runtime, *driver, *text; } errors[] = {
    {SUCCESS, "cudaSuccess", "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "cudaErrorInitializationError", "CUDA_ERROR_NOT_INITIALIZED",
     "initialization error"},
    {INVALID_CONFIGURATION, "cudaErrorInvalidConfiguration", "CUDA_ERROR_UNKNOWN",
     "invalid configuration argument"},
    {12, "cudaErrorInvalidPitchValue", "CUDA_ERROR_UNKNOWN", "invalid pitch argument"},
    {INVALID_SYMBOL, "cudaErrorInvalidSymbol", "CUDA_ERROR_UNKNOWN", "invalid device symbol"},
    {INVALID_DIRECTION, "cudaErrorInvalidMemcpyDirection", "CUDA_ERROR_UNKNOWN",
     "invalid copy direction"},
    {52, "cudaErrorMissingConfiguration", "CUDA_ERROR_UNKNOWN", "launch without a configuration"},
    {INVALID_FUNCTION, "cudaErrorInvalidDeviceFunction", "CUDA_ERROR_UNKNOWN",
     "invalid device function"},
    {NO_DEVICE, "cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE", "no CUDA device"},
    {INVALID_DEVICE, "cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE",
     "invalid device ordinal"},
    {INVALID_CONTEXT, "cudaErrorDeviceUninitialized", "CUDA_ERROR_INVALID_CONTEXT",
     "invalid device context"},
    {209, "cudaErrorNoKernelImageForDevice", "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no PTX that the device runs"},
    {215, "cudaErrorUnsupportedLimit", "CUDA_ERROR_UNSUPPORTED_LIMIT", "unsupported limit"},
    {PEER_UNSUPPORTED, "cudaErrorPeerAccessUnsupported", "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "there is no other device"},
    {218, "cudaErrorInvalidPtx", "CUDA_ERROR_INVALID_PTX",
     "PTX that the virtual machine does not run"},
    {301, "cudaErrorFileNotFound", "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {304, "cudaErrorOperatingSystem", "CUDA_ERROR_OPERATING_SYSTEM",
     "a call of the operating system failed"},
    {400, "cudaErrorInvalidResourceHandle", "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "cudaErrorSymbolNotFound", "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "cudaErrorNotReady", "CUDA_ERROR_NOT_READY", "not ready"},
    {700, "cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {702, "cudaErrorLaunchTimeout", "CUDA_ERROR_LAUNCH_TIMEOUT",
     "a kernel ran out of its steps or came to a deadlock"},
    {710, "cudaErrorAssert", "CUDA_ERROR_ASSERT", "an assertion failed in a kernel"},
    {NOT_REGISTERED, "cudaErrorHostMemoryNotRegistered", "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "host memory is not registered"},
    {716, "cudaErrorMisalignedAddress", "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed"},
    {720, "cudaErrorCooperativeLaunchTooLarge", "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
     "more blocks than are resident at once"},
    {NOT_SUPPORTED, "cudaErrorNotSupported", "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {UNKNOWN, "cudaErrorUnknown", "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int row(status s) {
  int i = 0, last = sizeof errors / sizeof *errors - 1;
  while (i < last && errors[i].number != s) i++;
  return i;
}

API const char *cudaGetErrorName(status s) { return errors[row(s)].runtime; }

API const char *cudaGetErrorString(status s) { return errors[row(s)].text; }

API status cuGetErrorName(status s, const char **name) {
  *name = errors[row(s)].driver;
  return SUCCESS;
}

API status cuGetErrorString(status s, const char **text) {
  *text = errors[row(s)].text;
  return SUCCESS;
}

/* A driver function by its name without a version suffix: the newest version that is implemented and
   that the given version of CUDA has; else one that returns an error. */
void *entry_point(const char *name, int version) {
  static const struct { const char *text; int since; } endings[] = {
      {"_v4", 12050}, {"_v3", 11040}, {"_v2", 0}, {"", 0}};
  char versioned[128];
  void *last = 0;
  Dl_info own;
  if (strncmp(name, "cu", 2) || !dladdr((void *)entry_point, &own)) return 0;
  void *library = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  for (int i = 0; i < 4; i++) {
    if (version < endings[i].since) continue;
    snprintf(versioned, sizeof versioned, "%s%s", name, endings[i].text);
    void *found = dlsym(library, versioned);
    if (found && !is_refused(found)) return found;
    if (found) last = found;
  }
  return last;
}
