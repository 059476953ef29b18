/* Streams, events and the device. All work is complete when the call that submits it returns, so a
   stream has only its flags, and an event only the time at which it was recorded. */

#define _GNU_SOURCE
#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct stream { int flags, priority; };
struct event { struct timespec at; int recorded; };

enum { VERSION = 13000, LIMITS = 16, FIRST_OWN = 3 };

static size_t limits[LIMITS] = {1024, 1 << 20, 8 << 20}; /* stack, printf, heap */

status new_stream(stream_t *out, int flags, int priority) {
  struct stream *s = calloc(1, sizeof *s);
  if (!device_of()) return NO_DEVICE;
  if (!s) return OUT_OF_MEMORY;
  s->flags = flags, s->priority = priority;
  *out = s;
  return SUCCESS;
}

/* The null stream, cudaStreamLegacy and cudaStreamPerThread have no structure. */
static struct stream of(stream_t stream) {
  return (uintptr_t)stream < FIRST_OWN ? (struct stream){0, 0} : *(struct stream *)stream;
}

status new_event(stream_t *out) {
  *out = calloc(1, sizeof(struct event));
  return *out ? device_of() ? SUCCESS : NO_DEVICE : OUT_OF_MEMORY;
}

status record(stream_t event) {
  struct event *e = event;
  clock_gettime(CLOCK_MONOTONIC, &e->at);
  e->recorded = 1;
  return SUCCESS;
}

status elapsed(float *ms, stream_t from, stream_t to) {
  struct event *a = from, *b = to;
  if (!a->recorded || !b->recorded) return 400; /* cudaErrorInvalidResourceHandle */
  *ms = (b->at.tv_sec - a->at.tv_sec) * 1e3 + (b->at.tv_nsec - a->at.tv_nsec) * 1e-6;
  return SUCCESS;
}

/* --- streams --- */

API status cudaStreamCreate(stream_t *out) { return set_last_error(new_stream(out, 0, 0)); }

API status cudaStreamCreateWithFlags(stream_t *out, unsigned flags) {
  return set_last_error(new_stream(out, flags, 0));
}

API status cudaStreamCreateWithPriority(stream_t *out, unsigned flags, int priority) {
  return set_last_error(new_stream(out, flags, priority));
}

API status cudaStreamDestroy(stream_t stream) {
  if ((uintptr_t)stream >= FIRST_OWN) free(stream);
  return set_last_error(sync_all());
}

API status cudaStreamSynchronize(stream_t stream) {
  (void)stream;
  return set_last_error(sync_all());
}
PTSZ(cudaStreamSynchronize);
ALIAS(cudaStreamQuery, cudaStreamSynchronize);
PTSZ(cudaStreamQuery);

API status cudaStreamWaitEvent(stream_t stream, stream_t event, unsigned flags) {
  (void)stream, (void)event, (void)flags;
  return SUCCESS;
}
PTSZ(cudaStreamWaitEvent);

API status cudaStreamGetFlags(stream_t stream, unsigned *flags) {
  *flags = of(stream).flags;
  return SUCCESS;
}
PTSZ(cudaStreamGetFlags);

API status cudaStreamGetPriority(stream_t stream, int *priority) {
  *priority = of(stream).priority;
  return SUCCESS;
}
PTSZ(cudaStreamGetPriority);

API status cudaStreamGetId(stream_t stream, unsigned long long *id) {
  *id = (uintptr_t)stream;
  return SUCCESS;
}
PTSZ(cudaStreamGetId);

API status cudaStreamGetDevice(stream_t stream, int *device) {
  (void)stream;
  *device = 0;
  return SUCCESS;
}
PTSZ(cudaStreamGetDevice);

API status cudaStreamIsCapturing(stream_t stream, int *capturing) {
  (void)stream;
  *capturing = 0;
  return SUCCESS;
}
PTSZ(cudaStreamIsCapturing);

API status cudaStreamAddCallback(stream_t stream, void (*call)(stream_t, status, void *),
                                 void *data, unsigned flags) {
  (void)flags;
  call(stream, sync_all(), data);
  return SUCCESS;
}
PTSZ(cudaStreamAddCallback);

API status cudaLaunchHostFunc(stream_t stream, void (*call)(void *), void *data) {
  (void)stream;
  status s = sync_all();
  if (!s) call(data);
  return set_last_error(s);
}
PTSZ(cudaLaunchHostFunc);

API status cudaStreamSetAttribute(stream_t stream, int attribute, const void *value) {
  (void)stream, (void)attribute, (void)value;
  return SUCCESS; /* windows of the L2 cache, priorities */
}
PTSZ(cudaStreamSetAttribute);

/* --- events --- */

API status cudaEventCreate(stream_t *out) { return set_last_error(new_event(out)); }

API status cudaEventCreateWithFlags(stream_t *out, unsigned flags) {
  (void)flags;
  return set_last_error(new_event(out));
}

API status cudaEventDestroy(stream_t event) {
  free(event);
  return SUCCESS;
}

API status cudaEventRecord(stream_t event, stream_t stream) {
  (void)stream;
  return set_last_error(record(event));
}
PTSZ(cudaEventRecord);

API status cudaEventRecordWithFlags(stream_t event, stream_t stream, unsigned flags) {
  (void)flags;
  return cudaEventRecord(event, stream);
}
PTSZ(cudaEventRecordWithFlags);

API status cudaEventSynchronize(stream_t event) {
  (void)event;
  return set_last_error(sync_all());
}
ALIAS(cudaEventQuery, cudaEventSynchronize);

API status cudaEventElapsedTime(float *ms, stream_t from, stream_t to) {
  return set_last_error(elapsed(ms, from, to));
}

/* --- the device --- */

API status cudaDeviceSynchronize(void) { return set_last_error(sync_all()); }
ALIAS(cudaThreadSynchronize, cudaDeviceSynchronize);
ALIAS(cudaDeviceReset, cudaDeviceSynchronize);
ALIAS(cudaThreadExit, cudaDeviceSynchronize);

API status cudaGetDeviceCount(int *count) {
  *count = device_of() ? 1 : 0;
  return set_last_error(*count ? SUCCESS : NO_DEVICE);
}

API status cudaSetDevice(int device) { return set_last_error(device ? INVALID_DEVICE : SUCCESS); }

API status cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
  (void)device_flags, (void)flags;
  return cudaSetDevice(device);
}

API status cudaGetDevice(int *device) {
  *device = 0;
  return SUCCESS;
}

API status cudaChooseDevice(int *device, const void *properties) {
  (void)properties;
  return cudaGetDevice(device);
}

API status cudaSetValidDevices(int *devices, int count) {
  return set_last_error(count == 1 && !*devices ? SUCCESS : INVALID_DEVICE);
}

API status cudaSetDeviceFlags(unsigned flags) {
  (void)flags;
  return SUCCESS;
}

API status cudaGetDeviceFlags(unsigned *flags) {
  *flags = 0;
  return SUCCESS;
}

API status cudaGetDeviceProperties(void *out, int device) {
  if (device || !device_of()) return set_last_error(INVALID_DEVICE);
  memcpy(out, device_of()->properties13, sizeof device_of()->properties13);
  return SUCCESS;
}

API status cudaGetDeviceProperties_v2(void *out, int device) {
  if (device || !device_of()) return set_last_error(INVALID_DEVICE);
  memcpy(out, device_of()->properties12, sizeof device_of()->properties12);
  return SUCCESS;
}

API status cudaDeviceGetAttribute(int *out, int attribute, int device) {
  if (device || !device_of()) return set_last_error(INVALID_DEVICE);
  if (attribute <= 0 || attribute >= ATTRIBUTES) return set_last_error(INVALID_VALUE);
  *out = device_of()->attributes[attribute];
  return SUCCESS;
}

API status cudaDeviceSetLimit(int limit, size_t value) {
  if (limit < 0 || limit >= LIMITS) return set_last_error(215); /* cudaErrorUnsupportedLimit */
  limits[limit] = value;
  return SUCCESS;
}

API status cudaDeviceGetLimit(size_t *value, int limit) {
  if (limit < 0 || limit >= LIMITS) return set_last_error(215);
  *value = limits[limit];
  return SUCCESS;
}

API status cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return SUCCESS;
}

API status cudaDeviceGetPCIBusId(char *text, int size, int device) {
  if (device) return set_last_error(INVALID_DEVICE);
  snprintf(text, size, "0000:00:00.0");
  return SUCCESS;
}

API status cudaDeviceSetCacheConfig(int config) {
  (void)config;
  return SUCCESS;
}
ALIAS(cudaDeviceSetSharedMemConfig, cudaDeviceSetCacheConfig);

API status cudaDeviceGetCacheConfig(int *config) {
  *config = 0;
  return SUCCESS;
}

API status cudaDeviceGetSharedMemConfig(int *config) {
  *config = 1; /* banks of four bytes */
  return SUCCESS;
}

API status cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  (void)device, (void)peer;
  *can = 0;
  return SUCCESS;
}

API status cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  (void)peer, (void)flags;
  return set_last_error(PEER_UNSUPPORTED);
}

API status cudaDriverGetVersion(int *version) {
  *version = VERSION;
  return SUCCESS;
}
ALIAS(cudaRuntimeGetVersion, cudaDriverGetVersion);

API status cudaProfilerStart(void) { return SUCCESS; }

API status cudaProfilerStop(void) { return SUCCESS; }

/* --- memory pools: there is one, which releases memory immediately --- */

API status cudaDeviceGetDefaultMemPool(void **pool, int device) {
  static char only;
  *pool = &only;
  return set_last_error(device ? INVALID_DEVICE : SUCCESS);
}
ALIAS(cudaDeviceGetMemPool, cudaDeviceGetDefaultMemPool);

API status cudaMemPoolSetAttribute(void *pool, int attribute, void *value) {
  (void)pool, (void)attribute, (void)value;
  return SUCCESS;
}

API status cudaMemPoolTrimTo(void *pool, size_t kept) {
  (void)pool, (void)kept;
  return SUCCESS;
}

/* --- entry points of the driver --- */

API status cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version,
                                            unsigned long long flags, int *found) {
  (void)flags;
  *out = entry_point(name, version);
  if (found) *found = *out ? 0 : 1; /* cudaDriverEntryPointSymbolNotFound */
  return set_last_error(*out || found ? SUCCESS : NOT_FOUND);
}
PTSZ(cudaGetDriverEntryPointByVersion);

API status cudaGetDriverEntryPoint(const char *name, void **out, unsigned long long flags,
                                   int *found) {
  return cudaGetDriverEntryPointByVersion(name, out, VERSION, flags, found);
}
PTSZ(cudaGetDriverEntryPoint);
