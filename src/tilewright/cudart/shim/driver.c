/* The driver API: one device, one context, modules of PTX or fatbinaries. */

#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t address_t;

enum { VERSION = 13000, NAME_SIZE = 256 };

static char context; /* its address is the handle */

API status cuInit(unsigned flags) {
  (void)flags;
  return device_of() ? SUCCESS : NO_DEVICE;
}

API status cuDriverGetVersion(int *version) {
  *version = VERSION;
  return SUCCESS;
}

API status cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
                               int *found) {
  (void)flags;
  *out = entry_point(name, version);
  if (found) *found = *out ? 0 : 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
  return *out ? SUCCESS : NOT_FOUND;
}

API status cuGetProcAddress(const char *name, void **out, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, out, version, flags, 0);
}

/* --- device --- */

API status cuDeviceGetCount(int *count) {
  *count = device_of() ? 1 : 0;
  return *count ? SUCCESS : NO_DEVICE;
}

API status cuDeviceGet(int *device, int ordinal) {
  *device = 0;
  return ordinal ? INVALID_DEVICE : SUCCESS;
}

API status cuDeviceGetName(char *name, int size, int device) {
  if (device || !device_of()) return INVALID_DEVICE;
  snprintf(name, size, "%.*s", NAME_SIZE, (const char *)device_of()->properties13);
  return SUCCESS;
}

API status cuDeviceGetUuid_v2(char *uuid, int device) {
  memset(uuid, 0, 16);
  return device ? INVALID_DEVICE : SUCCESS;
}
ALIAS(cuDeviceGetUuid, cuDeviceGetUuid_v2);

API status cuDeviceGetAttribute(int *out, int attribute, int device) {
  if (device || !device_of()) return INVALID_DEVICE;
  if (attribute <= 0 || attribute >= ATTRIBUTES) return INVALID_VALUE;
  *out = device_of()->attributes[attribute];
  return SUCCESS;
}

API status cuDeviceComputeCapability(int *major, int *minor, int device) {
  status s = cuDeviceGetAttribute(major, 75, device);
  return s ? s : cuDeviceGetAttribute(minor, 76, device);
}

API status cuDeviceTotalMem_v2(size_t *bytes, int device) {
  if (device || !device_of()) return INVALID_DEVICE;
  *bytes = device_of()->size;
  return SUCCESS;
}

API status cuDeviceCanAccessPeer(int *can, int device, int peer) {
  (void)device, (void)peer;
  *can = 0;
  return SUCCESS;
}

API status cuMemGetInfo_v2(size_t *available, size_t *total) {
  size_t both[2];
  status s = query_server(MEMORY, 0, 0, both, sizeof both);
  if (!s) *available = both[0], *total = both[1];
  return s;
}

/* --- contexts: there is one, which is always current --- */

API status cuDevicePrimaryCtxRetain(void **out, int device) {
  *out = &context;
  return device ? INVALID_DEVICE : device_of() ? SUCCESS : NO_DEVICE;
}

API status cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0, *active = 1;
  return device ? INVALID_DEVICE : SUCCESS;
}

API status cuDevicePrimaryCtxRelease_v2(int device) { return device ? INVALID_DEVICE : SUCCESS; }
ALIAS(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2);
ALIAS(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxRelease_v2);

API status cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
  (void)flags;
  return device ? INVALID_DEVICE : SUCCESS;
}

API status cuCtxCreate_v2(void **out, unsigned flags, int device) {
  (void)flags;
  return cuDevicePrimaryCtxRetain(out, device);
}

API status cuCtxCreate_v3(void **out, void *affinity, int count, unsigned flags, int device) {
  (void)affinity, (void)count, (void)flags;
  return cuDevicePrimaryCtxRetain(out, device);
}

API status cuCtxCreate_v4(void **out, void *parameters, unsigned flags, int device) {
  (void)parameters, (void)flags;
  return cuDevicePrimaryCtxRetain(out, device);
}

API status cuCtxGetCurrent(void **out) {
  if (out) *out = &context; /* the caller may pass NULL */
  return SUCCESS;
}
ALIAS(cuCtxPopCurrent_v2, cuCtxGetCurrent);

API status cuCtxSetCurrent(void *given) {
  (void)given;
  return SUCCESS;
}
ALIAS(cuCtxPushCurrent_v2, cuCtxSetCurrent);
ALIAS(cuCtxDestroy_v2, cuCtxSetCurrent);

API status cuCtxGetDevice(int *device) {
  *device = 0;
  return SUCCESS;
}

API status cuCtxGetApiVersion(void *given, unsigned *version) {
  (void)given;
  *version = VERSION;
  return SUCCESS;
}

API status cuCtxGetFlags(unsigned *flags) {
  *flags = 0;
  return SUCCESS;
}

API status cuCtxSynchronize(void) { return sync_all(); }

API status cuCtxSetLimit(int limit, size_t value) {
  (void)limit, (void)value;
  return SUCCESS;
}

API status cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return SUCCESS;
}

/* --- modules --- */

/* Sent immediately, because the caller may free the image. */
API status cuModuleLoadData(struct module **out, const void *image) {
  const void **one = calloc(2, sizeof *one);
  if (!one) return OUT_OF_MEMORY;
  one[0] = image;
  *out = new_module(one);
  status s = load(*out);
  one[0] = 0;
  return s;
}

API status cuModuleLoadDataEx(struct module **out, const void *image, unsigned count, int *options,
                              void **values) {
  (void)count, (void)options, (void)values;
  return cuModuleLoadData(out, image);
}
ALIAS(cuModuleLoadFatBinary, cuModuleLoadData);

API status cuModuleLoad(struct module **out, const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return 301; /* CUDA_ERROR_FILE_NOT_FOUND */
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  char *text = calloc(1, size + 1);
  status s = text && fread(text, 1, size, file) == (size_t)size ? SUCCESS : 304;
  fclose(file);
  if (!s) s = cuModuleLoadData(out, text);
  free(text);
  return s;
}

API status cuModuleUnload(struct module *m) {
  (void)m;
  return sync_all();
}

API status cuLibraryLoadData(struct module **out, const void *image) {
  return cuModuleLoadData(out, image);
}

API status cuLibraryUnload(struct module *m) { return cuModuleUnload(m); }

API status cuModuleGetFunction(struct function **out, struct module *m, const char *name) {
  struct function *f = function_of(m, strdup(name), 0);
  status s = f ? resolve(f) : OUT_OF_MEMORY;
  *out = f;
  return s == INVALID_FUNCTION ? NOT_FOUND : s;
}
ALIAS(cuLibraryGetKernel, cuModuleGetFunction);

API status cuKernelGetFunction(struct function **out, struct function *kernel) {
  *out = kernel;
  return SUCCESS;
}

API status cuModuleGetGlobal_v2(address_t *out, size_t *size, struct module *m, const char *name) {
  status s = variable_in(m, name, (void **)out, size);
  return s == INVALID_SYMBOL ? NOT_FOUND : s;
}

API status cuModuleGetLoadingMode(int *mode) {
  *mode = 2; /* lazy */
  return SUCCESS;
}

/* --- kernels --- */

API status cuFuncGetAttribute(int *out, int attribute, struct function *f) {
  int values[] = {f->info.max_threads, f->info.shared, f->info.constant, f->info.local, 0,
                  f->info.ptx, f->info.binary, 0, f->dynamic, -1};
  if (attribute < 0 || attribute >= (int)(sizeof values / sizeof *values)) return INVALID_VALUE;
  *out = values[attribute];
  return SUCCESS;
}

API status cuFuncSetAttribute(struct function *f, int attribute, int value) {
  return set_function(f, attribute, value);
}

API status cuKernelSetAttribute(int attribute, int value, struct function *f, int device) {
  return device ? INVALID_DEVICE : set_function(f, attribute, value);
}

API status cuFuncSetCacheConfig(struct function *f, int config) {
  (void)f, (void)config;
  return SUCCESS;
}

/* `extra` (CU_LAUNCH_PARAM_…): 1, pointer to the packed parameters, 2, pointer to their size, 0. */
static status launch(struct function *f, dim3 grid, dim3 block, const uint32_t *cluster,
                     unsigned shared, void **arguments, void **extra) {
  const void *packed = 0;
  size_t size = 0;
  for (; extra && *extra; extra += 2) {
    if (*extra == (void *)1) packed = extra[1];
    if (*extra == (void *)2) size = *(size_t *)extra[1];
  }
  if (!f) return INVALID_VALUE;
  status s = resolve(f);
  return s ? s : start(f, grid, block, cluster, shared, arguments, packed, size);
}

API status cuLaunchKernel(struct function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, stream_t stream,
                          void **arguments, void **extra) {
  (void)stream;
  return launch(f, (dim3){gx, gy, gz}, (dim3){bx, by, bz}, 0, shared, arguments, extra);
}
PTSZ(cuLaunchKernel);

API status cuLaunchCooperativeKernel(struct function *f, unsigned gx, unsigned gy, unsigned gz,
                                     unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                     stream_t stream, void **arguments) {
  (void)stream;
  return launch(f, (dim3){gx, gy, gz}, (dim3){bx, by, bz}, 0, shared, arguments, 0);
}
PTSZ(cuLaunchCooperativeKernel);

struct attribute { int id, pad; char value[64]; };
struct extended {
  dim3 grid, block;
  unsigned shared;
  stream_t stream;
  struct attribute *attributes;
  unsigned count;
};

static void cluster_of(const struct extended *how, uint32_t *cluster) {
  enum { CLUSTER = 4 };
  for (unsigned i = 0; i < how->count; i++)
    if (how->attributes[i].id == CLUSTER)
      memcpy(cluster, how->attributes[i].value, 3 * sizeof *cluster);
}

API status cuLaunchKernelEx(const struct extended *how, struct function *f, void **arguments,
                            void **extra) {
  uint32_t cluster[3] = {0};
  cluster_of(how, cluster);
  return launch(f, how->grid, how->block, cluster, how->shared, arguments, extra);
}
PTSZ(cuLaunchKernelEx);

API status cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, struct function *f, int threads,
                                                       size_t shared) {
  return occupancy(f, threads, shared, 0, count);
}

API status cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, struct function *f,
                                                                int threads, size_t shared,
                                                                unsigned flags) {
  (void)flags;
  return occupancy(f, threads, shared, 0, count);
}

/* The largest block size with the most resident threads. `shared_of` returns the dynamic shared
   memory for a block size. */
API status cuOccupancyMaxPotentialBlockSize(int *grid, int *block, struct function *f,
                                            size_t (*shared_of)(int), size_t shared, int limit) {
  enum { WARP = 32 };
  int most = f->info.max_threads, best = 0, count;
  if (limit > 0 && limit < most) most = limit;
  for (int threads = most; threads > 0; threads = (threads - 1) / WARP * WARP) {
    status s = occupancy(f, threads, shared_of ? shared_of(threads) : shared, 0, &count);
    if (s) return s;
    if (count * threads <= best) continue;
    best = count * threads, *block = threads;
    *grid = count * device_of()->attributes[16]; /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
  }
  return best ? SUCCESS : INVALID_VALUE;
}

API status cuOccupancyMaxActiveClusters(int *count, struct function *f,
                                        const struct extended *how) {
  uint32_t cluster[3] = {1, 1, 1};
  cluster_of(how, cluster);
  return occupancy(f, how->block.x * how->block.y * how->block.z, how->shared, cluster, count);
}

/* --- memory --- */

API status cuMemAlloc_v2(address_t *out, size_t size) {
  return size ? allocate((void **)out, size, DEVICE) : INVALID_VALUE;
}

API status cuMemAllocManaged(address_t *out, size_t size, unsigned flags) {
  (void)flags;
  return allocate((void **)out, size, MANAGED);
}

API status cuMemAllocHost_v2(void **out, size_t size) { return allocate(out, size, HOST); }

API status cuMemHostAlloc(void **out, size_t size, unsigned flags) {
  (void)flags;
  return allocate(out, size, HOST);
}

API status cuMemAllocAsync(address_t *out, size_t size, stream_t stream) {
  (void)stream;
  return cuMemAlloc_v2(out, size);
}
PTSZ(cuMemAllocAsync);

API status cuMemFree_v2(address_t address) { return release((void *)address); }

API status cuMemFreeHost(void *address) { return release(address); }

API status cuMemFreeAsync(address_t address, stream_t stream) {
  (void)stream;
  return cuMemFree_v2(address);
}
PTSZ(cuMemFreeAsync);

API status cuMemHostGetDevicePointer_v2(address_t *out, void *address, unsigned flags) {
  (void)flags;
  *out = (address_t)address;
  return on_device(address) ? SUCCESS : NOT_REGISTERED;
}

API status cuMemcpyHtoD_v2(address_t to, const void *from, size_t size) {
  return copy((void *)to, 0, from, 0, size, 1);
}
PTDS(cuMemcpyHtoD_v2);

API status cuMemcpyDtoH_v2(void *to, address_t from, size_t size) {
  return copy(to, 0, (void *)from, 0, size, 1);
}
PTDS(cuMemcpyDtoH_v2);

API status cuMemcpy(address_t to, address_t from, size_t size) {
  return copy((void *)to, 0, (void *)from, 0, size, 1);
}
PTDS(cuMemcpy);
ALIAS(cuMemcpyDtoD_v2, cuMemcpy);
PTDS(cuMemcpyDtoD_v2);

API status cuMemcpyHtoDAsync_v2(address_t to, const void *from, size_t size, stream_t stream) {
  (void)stream;
  return cuMemcpyHtoD_v2(to, from, size);
}
PTSZ(cuMemcpyHtoDAsync_v2);

API status cuMemcpyDtoHAsync_v2(void *to, address_t from, size_t size, stream_t stream) {
  (void)stream;
  return cuMemcpyDtoH_v2(to, from, size);
}
PTSZ(cuMemcpyDtoHAsync_v2);

API status cuMemcpyAsync(address_t to, address_t from, size_t size, stream_t stream) {
  (void)stream;
  return cuMemcpy(to, from, size);
}
PTSZ(cuMemcpyAsync);
ALIAS(cuMemcpyDtoDAsync_v2, cuMemcpyAsync);
PTSZ(cuMemcpyDtoDAsync_v2);

#define FILL(bits, type)                                                                \
  API status cuMemsetD##bits##_v2(address_t to, type value, size_t count) {             \
    return fill((void *)to, 0, value, bits / 8, count, 1);                              \
  }                                                                                     \
  PTDS(cuMemsetD##bits##_v2);                                                           \
  API status cuMemsetD##bits##Async(address_t to, type value, size_t count, stream_t stream) { \
    (void)stream;                                                                       \
    return cuMemsetD##bits##_v2(to, value, count);                                      \
  }                                                                                     \
  PTSZ(cuMemsetD##bits##Async);
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned)

API status cuPointerGetAttribute(void *out, int attribute, address_t address) {
  enum { CONTEXT = 1, MEMORY_TYPE = 2, DEVICE_POINTER = 3, HOST_POINTER = 4, IS_MANAGED = 8,
         ORDINAL = 9 };
  uint64_t kind;
  if (!on_device((void *)address)) return INVALID_VALUE;
  status s = query_server(POINTER, &address, sizeof address, &kind, sizeof kind);
  if (s) return s;
  void *handle = &context;
  uint32_t small = attribute == MEMORY_TYPE ? (kind == HOST ? 1 : 2)
                   : attribute == IS_MANAGED ? kind == MANAGED : 0;
  if (attribute == CONTEXT) memcpy(out, &handle, sizeof handle);
  else if (attribute == DEVICE_POINTER || attribute == HOST_POINTER) memcpy(out, &address, 8);
  else if (attribute == MEMORY_TYPE || attribute == ORDINAL) memcpy(out, &small, sizeof small);
  else if (attribute == IS_MANAGED) memcpy(out, &small, 1);
  else return refused("this attribute of cuPointerGetAttribute");
  return SUCCESS;
}

/* --- streams and events --- */

API status cuStreamCreate(stream_t *out, unsigned flags) { return new_stream(out, flags, 0); }

API status cuStreamCreateWithPriority(stream_t *out, unsigned flags, int priority) {
  return new_stream(out, flags, priority);
}

API status cuStreamDestroy_v2(stream_t stream) {
  if ((uintptr_t)stream > 2) free(stream);
  return sync_all();
}

API status cuStreamSynchronize(stream_t stream) {
  (void)stream;
  return sync_all();
}
PTSZ(cuStreamSynchronize);
ALIAS(cuStreamQuery, cuStreamSynchronize);
PTSZ(cuStreamQuery);

API status cuStreamWaitEvent(stream_t stream, stream_t event, unsigned flags) {
  (void)stream, (void)event, (void)flags;
  return SUCCESS;
}
PTSZ(cuStreamWaitEvent);

API status cuStreamGetCtx(stream_t stream, void **out) {
  (void)stream;
  return cuCtxGetCurrent(out);
}
PTSZ(cuStreamGetCtx);

API status cuStreamIsCapturing(stream_t stream, int *capturing) {
  (void)stream;
  *capturing = 0;
  return SUCCESS;
}
PTSZ(cuStreamIsCapturing);

API status cuEventCreate(stream_t *out, unsigned flags) {
  (void)flags;
  return new_event(out);
}

API status cuEventDestroy_v2(stream_t event) {
  free(event);
  return SUCCESS;
}

API status cuEventRecord(stream_t event, stream_t stream) {
  (void)stream;
  return record(event);
}
PTSZ(cuEventRecord);

API status cuEventSynchronize(stream_t event) {
  (void)event;
  return sync_all();
}
ALIAS(cuEventQuery, cuEventSynchronize);

API status cuEventElapsedTime(float *ms, stream_t from, stream_t to) {
  return elapsed(ms, from, to);
}
ALIAS(cuEventElapsedTime_v2, cuEventElapsedTime);

/* --- tensor maps: encoded by the virtual machine --- */

struct map { /* as guest_process.py unpacks it */
  uint32_t type, rank;
  uint64_t address, dims[5], strides[5];
  uint32_t box[5], steps[5]; /* im2col: channels and pixels in `box` */
  int32_t lower[3], upper[3];
  uint32_t interleave, swizzle, promotion, filling;
};

static struct map map_of(int type, uint32_t rank, void *address, const uint64_t *dims,
                         const uint64_t *strides, const uint32_t *steps) {
  struct map m = {.type = type, .rank = rank, .address = (uint64_t)address};
  for (uint32_t i = 0; i < rank && i < 5; i++) m.dims[i] = dims[i], m.steps[i] = steps[i];
  for (uint32_t i = 0; i + 1 < rank && i < 5; i++) m.strides[i] = strides[i];
  return m;
}

API status cuTensorMapEncodeTiled(void *out, int type, uint32_t rank, void *address,
                                  const uint64_t *dims, const uint64_t *strides,
                                  const uint32_t *box, const uint32_t *steps, int interleave,
                                  int swizzle, int promotion, int filling) {
  struct map m = map_of(type, rank, address, dims, strides, steps);
  for (uint32_t i = 0; i < rank && i < 5; i++) m.box[i] = box[i];
  m.interleave = interleave, m.swizzle = swizzle, m.promotion = promotion, m.filling = filling;
  return query_server(TILED, &m, sizeof m, out, 128);
}

API status cuTensorMapEncodeIm2col(void *out, int type, uint32_t rank, void *address,
                                   const uint64_t *dims, const uint64_t *strides, const int *lower,
                                   const int *upper, uint32_t channels, uint32_t pixels,
                                   const uint32_t *steps, int interleave, int swizzle,
                                   int promotion, int filling) {
  struct map m = map_of(type, rank, address, dims, strides, steps);
  for (uint32_t i = 0; i + 2 < rank && i < 3; i++) m.lower[i] = lower[i], m.upper[i] = upper[i];
  m.box[0] = channels, m.box[1] = pixels;
  m.interleave = interleave, m.swizzle = swizzle, m.promotion = promotion, m.filling = filling;
  return query_server(IM2COL, &m, sizeof m, out, 128);
}

API status cuTensorMapReplaceAddress(void *map, void *address) {
  if (!address || (uint64_t)address % 16) return INVALID_VALUE;
  memcpy(map, &address, sizeof address);
  return SUCCESS;
}
