/* Memory. The virtual machine allocates; copies and fills happen in this process. A range of device
   addresses is checked to be in one allocation before it is accessed. Pinned host memory is device
   memory too, so that kernels can access it. */

#include "shim.h"

#include <stdlib.h>
#include <string.h>

enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, ANY, PITCH = 512 };

struct pitched { char *at; size_t pitch, width, height; };
struct extent { size_t width, height, depth; };
struct position { size_t x, y, z; };
struct copy3d {
  void *from_array;
  struct position from_at;
  struct pitched from;
  void *to_array;
  struct position to_at;
  struct pitched to;
  struct extent extent;
  int kind;
};

/* --- operations --- */

status allocate(void **out, size_t size, enum kind kind) {
  uint64_t query[2] = {size, kind};
  if (!out) return INVALID_VALUE;
  *out = 0;
  return size ? query_server(ALLOCATE, query, sizeof query, out, sizeof *out) : SUCCESS;
}

status release(void *address) {
  status s = sync_all();
  if (s || !address) return s;
  return call_server(RELEASE, &address, sizeof address, 0, 0);
}

/* Bytes from the first to the last byte of rows with a pitch. */
static size_t span(size_t pitch, size_t width, size_t rows) {
  return rows && width ? (rows - 1) * pitch + width : 0;
}

status copy(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
            size_t rows) {
  status s = sync_all();
  if (!s) s = check_range(to, span(to_pitch, width, rows));
  if (!s) s = check_range(from, span(from_pitch, width, rows));
  for (size_t i = 0; !s && i < rows; i++)
    memmove((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
  return s;
}

/* `width` counts elements of 1, 2 or 4 bytes. */
status fill(void *to, size_t pitch, unsigned value, int bytes, size_t width, size_t rows) {
  status s = sync_all();
  if (!s) s = on_device(to) ? check_range(to, span(pitch, width * bytes, rows)) : INVALID_VALUE;
  for (size_t i = 0; !s && i < rows; i++) {
    char *row = (char *)to + i * pitch;
    if (bytes == 1) memset(row, value, width);
    else
      for (size_t k = 0; k < width; k++) memcpy(row + k * bytes, &value, bytes);
  }
  return s;
}

/* Whether an address that the caller passed as a device address is one. */
static status copy_as(int kind, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                      size_t width, size_t rows) {
  if (kind < HOST_TO_HOST || kind > ANY) return INVALID_DIRECTION;
  if (!device_of()) return NO_DEVICE;
  int to_device = kind == HOST_TO_DEVICE || kind == DEVICE_TO_DEVICE;
  int from_device = kind == DEVICE_TO_HOST || kind == DEVICE_TO_DEVICE;
  if (width && rows && ((to_device && !on_device(to)) || (from_device && !on_device(from))))
    return INVALID_VALUE;
  return copy(to, to_pitch, from, from_pitch, width, rows);
}

static status copy_line(void *to, const void *from, size_t size) {
  return copy(to, 0, from, 0, size, 1);
}

/* --- allocation --- */

API status cudaMalloc(void **out, size_t size) {
  return set_last_error(allocate(out, size, DEVICE));
}

API status cudaMallocManaged(void **out, size_t size, unsigned flags) {
  (void)flags;
  return set_last_error(allocate(out, size, MANAGED));
}

API status cudaHostAlloc(void **out, size_t size, unsigned flags) {
  (void)flags;
  return set_last_error(allocate(out, size, HOST));
}

API status cudaMallocHost(void **out, size_t size) {
  return set_last_error(allocate(out, size, HOST));
}

API status cudaMallocAsync(void **out, size_t size, stream_t stream) {
  (void)stream;
  return cudaMalloc(out, size);
}
PTSZ(cudaMallocAsync);

API status cudaMallocFromPoolAsync(void **out, size_t size, void *pool, stream_t stream) {
  (void)pool, (void)stream;
  return cudaMalloc(out, size);
}
PTSZ(cudaMallocFromPoolAsync);

API status cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height) {
  *pitch = (width + PITCH - 1) / PITCH * PITCH;
  return cudaMalloc(out, *pitch * height);
}

API status cudaMalloc3D(struct pitched *out, struct extent e) {
  out->width = e.width, out->height = e.height;
  return cudaMallocPitch((void **)&out->at, &out->pitch, e.width, e.height * e.depth);
}

API status cudaFree(void *address) { return set_last_error(release(address)); }

API status cudaFreeHost(void *address) { return set_last_error(release(address)); }

API status cudaFreeAsync(void *address, stream_t stream) {
  (void)stream;
  return cudaFree(address);
}
PTSZ(cudaFreeAsync);

API status cudaMemGetInfo(size_t *available, size_t *total) {
  size_t both[2];
  status s = query_server(MEMORY, 0, 0, both, sizeof both);
  if (!s) *available = both[0], *total = both[1];
  return set_last_error(s);
}

/* Registered memory can be copied like any host memory; kernels can't access it. */
API status cudaHostRegister(void *address, size_t size, unsigned flags) {
  (void)address, (void)size, (void)flags;
  return SUCCESS;
}

API status cudaHostUnregister(void *address) {
  (void)address;
  return SUCCESS;
}

API status cudaHostGetDevicePointer(void **out, void *address, unsigned flags) {
  (void)flags;
  if (!device_of()) return set_last_error(NO_DEVICE);
  if (!on_device(address)) return refused("cudaHostGetDevicePointer of memory that is not CUDA's");
  *out = address;
  return SUCCESS;
}

API status cudaHostGetFlags(unsigned *flags, void *address) {
  (void)address;
  *flags = 2; /* cudaHostAllocMapped */
  return SUCCESS;
}

API status cudaPointerGetAttributes(void *out, const void *address) {
  struct { int type, device; const void *on_device, *on_host; long reserved[8]; } attributes = {0};
  uint64_t kind = 0;
  if (!device_of()) return set_last_error(NO_DEVICE);
  attributes.on_host = address;
  if (on_device(address)) {
    status s = query_server(POINTER, &address, sizeof address, &kind, sizeof kind);
    if (s) return set_last_error(s);
    attributes.on_device = address;
    if (kind == DEVICE) attributes.on_host = 0;
  }
  attributes.type = kind;
  memcpy(out, &attributes, sizeof attributes);
  return SUCCESS;
}

/* --- copies --- */

API status cudaMemcpy(void *to, const void *from, size_t size, int kind) {
  return set_last_error(copy_as(kind, to, 0, from, 0, size, 1));
}
PTDS(cudaMemcpy);

API status cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, stream_t stream) {
  (void)stream;
  return cudaMemcpy(to, from, size, kind);
}
PTSZ(cudaMemcpyAsync);

API status cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t size) {
  return set_last_error(to_device || from_device ? INVALID_DEVICE : copy_line(to, from, size));
}

API status cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                               size_t size, stream_t stream) {
  (void)stream;
  return cudaMemcpyPeer(to, to_device, from, from_device, size);
}

API status cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                        size_t width, size_t height, int kind) {
  if (width > to_pitch || width > from_pitch) return set_last_error(12); /* invalid pitch */
  return set_last_error(copy_as(kind, to, to_pitch, from, from_pitch, width, height));
}
PTDS(cudaMemcpy2D);

API status cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                             size_t width, size_t height, int kind, stream_t stream) {
  (void)stream;
  return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
PTSZ(cudaMemcpy2DAsync);

static char *plane(struct pitched p, struct position at, size_t z) {
  return p.at + ((at.z + z) * p.height + at.y) * p.pitch + at.x;
}

API status cudaMemcpy3D(const struct copy3d *c) {
  if (c->from_array || c->to_array) return refused("cudaMemcpy3D of arrays");
  status s = SUCCESS;
  for (size_t z = 0; !s && z < c->extent.depth; z++)
    s = copy_as(c->kind, plane(c->to, c->to_at, z), c->to.pitch, plane(c->from, c->from_at, z),
                c->from.pitch, c->extent.width, c->extent.height);
  return set_last_error(s);
}
PTDS(cudaMemcpy3D);

API status cudaMemcpy3DAsync(const struct copy3d *c, stream_t stream) {
  (void)stream;
  return cudaMemcpy3D(c);
}
PTSZ(cudaMemcpy3DAsync);

/* --- variables --- */

static status symbol(const void *host, size_t size, size_t offset, char **at) {
  size_t all;
  status s = find_variable(host, (void **)at, &all);
  if (s) return s;
  *at += offset;
  return size <= all && offset <= all - size ? SUCCESS : INVALID_VALUE;
}

API status cudaMemcpyToSymbol(const void *host, const void *from, size_t size, size_t offset,
                              int kind) {
  char *at;
  status s = symbol(host, size, offset, &at);
  (void)kind;
  return set_last_error(s ? s : copy_line(at, from, size));
}
PTDS(cudaMemcpyToSymbol);

API status cudaMemcpyFromSymbol(void *to, const void *host, size_t size, size_t offset, int kind) {
  char *at;
  status s = symbol(host, size, offset, &at);
  (void)kind;
  return set_last_error(s ? s : copy_line(to, at, size));
}
PTDS(cudaMemcpyFromSymbol);

API status cudaMemcpyToSymbolAsync(const void *host, const void *from, size_t size, size_t offset,
                                   int kind, stream_t stream) {
  (void)stream;
  return cudaMemcpyToSymbol(host, from, size, offset, kind);
}
PTSZ(cudaMemcpyToSymbolAsync);

API status cudaMemcpyFromSymbolAsync(void *to, const void *host, size_t size, size_t offset,
                                     int kind, stream_t stream) {
  (void)stream;
  return cudaMemcpyFromSymbol(to, host, size, offset, kind);
}
PTSZ(cudaMemcpyFromSymbolAsync);

/* --- fills --- */

API status cudaMemset(void *to, int value, size_t size) {
  return set_last_error(fill(to, 0, value, 1, size, 1));
}
PTDS(cudaMemset);

API status cudaMemsetAsync(void *to, int value, size_t size, stream_t stream) {
  (void)stream;
  return cudaMemset(to, value, size);
}
PTSZ(cudaMemsetAsync);

API status cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height) {
  return set_last_error(fill(to, pitch, value, 1, width, height));
}
PTDS(cudaMemset2D);

API status cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                             stream_t stream) {
  (void)stream;
  return cudaMemset2D(to, pitch, value, width, height);
}
PTSZ(cudaMemset2DAsync);

API status cudaMemset3D(struct pitched to, int value, struct extent e) {
  status s = SUCCESS;
  for (size_t z = 0; !s && z < e.depth; z++)
    s = fill(plane(to, (struct position){0}, z), to.pitch, value, 1, e.width, e.height);
  return set_last_error(s);
}
PTDS(cudaMemset3D);

API status cudaMemset3DAsync(struct pitched to, int value, struct extent e, stream_t stream) {
  (void)stream;
  return cudaMemset3D(to, value, e);
}
PTSZ(cudaMemset3DAsync);

/* --- advice --- */

#define ADVICE(name) \
  API status name(void) { return device_of() ? SUCCESS : set_last_error(NO_DEVICE); }
ADVICE(cudaMemAdvise)
ADVICE(cudaMemPrefetchAsync)
PTSZ(cudaMemPrefetchAsync);
ADVICE(cudaMemPrefetchAsync_v2)
PTSZ(cudaMemPrefetchAsync_v2);
ADVICE(cudaMemAdvise_v2)
ADVICE(cudaStreamAttachMemAsync)
PTSZ(cudaStreamAttachMemAsync);
ADVICE(cudaCtxResetPersistingL2Cache)
