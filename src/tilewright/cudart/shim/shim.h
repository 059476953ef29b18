/* Declarations of the library that replaces the CUDA runtime and driver.

   The library is loaded into an unmodified program. It sends requests over a socket to the process
   that owns the virtual machine (server.py). Device memory is a file that both processes map, here at
   the addresses that kernels use; so copies are memcpy, and managed and pinned memory need no
   migration. A launch returns after the kernel has ended. */

#ifndef TILEWRIGHT_SHIM_H
#define TILEWRIGHT_SHIM_H

#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define ALIAS(name, of) API __typeof__(of) name __attribute__((alias(#of)))
#define PTDS(name) ALIAS(name##_ptds, name) /* nvcc --default-stream per-thread */
#define PTSZ(name) ALIAS(name##_ptsz, name)

enum { /* cudaError; CUresult where the two agree */
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3,
  INVALID_CONFIGURATION = 9, INVALID_SYMBOL = 13, INVALID_DIRECTION = 21, INVALID_FUNCTION = 98,
  NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, PEER_UNSUPPORTED = 217,
  NOT_FOUND = 500, NOT_READY = 600, NOT_REGISTERED = 713, NOT_SUPPORTED = 801, UNKNOWN = 999,
};

enum request { /* as in guest_process.py */
  HELLO, MODULE, FUNCTION, VARIABLE, ALLOCATE, RELEASE, INSIDE, POINTER, MEMORY, LAUNCH, OCCUPANCY,
  TILED, IM2COL,
};

enum kind { HOST = 1, DEVICE = 2, MANAGED = 3 }; /* kind of memory: cudaMemoryType */
enum { ATTRIBUTES = 160, MAX_SHARED = 48 << 10, MAX_PARAMETERS = 32764 };

typedef int status;
typedef void *stream_t;
typedef struct { unsigned x, y, z; } dim3;

/* link.c: the virtual machine's process. */

struct device { /* the reply to HELLO */
  uint64_t base, size; /* of device memory */
  int32_t attributes[ATTRIBUTES]; /* by cudaDeviceAttr */
  unsigned char properties13[1008], properties12[1032]; /* cudaDeviceProp of CUDA 13 and 12 */
};

const struct device *device_of(void); /* prints a message and returns NULL if there is none */
status call_server(enum request what, const void *head, size_t head_size, const void *body,
           size_t body_size);
const void *server_reply(size_t *size); /* to this thread's last request, until its next one */
status query_server(enum request what, const void *head, size_t size, void *out, size_t out_size);
status check_range(const void *address, size_t size); /* whether the range is in one allocation */
int on_device(const void *address);
status sync_all(void); /* prints output of kernels; returns the first fault, which is sticky */
status set_last_error(status s); /* stores it for cudaGetLastError */
status refused(const char *name);
void print_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* code.c: modules, kernels, variables. */

struct module {
  const void **images; /* fatbinaries, or one PTX text; the last is NULL */
  uint32_t id;
  int loaded;
  status failed;
  struct module *next;
};

struct parameter { uint32_t offset, size; };

struct function {
  const void *host; /* the host stub that identifies it */
  const char *name;
  struct module *module;
  int ready;
  struct { /* the reply to FUNCTION, which the parameters follow */
    uint32_t id, shared, local, max_threads, max_dynamic, constant, ptx, binary, count;
  } info;
  struct parameter *parameters;
  uint32_t dynamic; /* cudaFuncAttributeMaxDynamicSharedMemorySize */
  uint32_t cluster[3];
  struct function *next;
};

struct launch {
  uint32_t id, grid[3], block[3], cluster[3], shared;
};

struct module *new_module(const void **images);
struct function *function_of(struct module *m, const char *name, const void *host);
status load(struct module *m);
status resolve(struct function *f); /* fills `info` */
status find_function(const void *host, struct function **out); /* a stub or a handle */
status find_variable(const void *host, void **address, size_t *size);
status variable_in(struct module *m, const char *name, void **address, size_t *size);
status start(struct function *f, dim3 grid, dim3 block, const uint32_t *cluster, uint32_t shared,
             void **arguments, const void *packed, size_t packed_size);
status set_function(struct function *f, int attribute, int value);
status occupancy(struct function *f, int threads, size_t shared, const uint32_t *cluster,
                 int *count);

/* memory.c */

status allocate(void **out, size_t size, enum kind kind);
status release(void *address);
status copy(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
            size_t rows);
status fill(void *to, size_t pitch, unsigned value, int bytes, size_t width, size_t rows);

/* stream.c */

status new_stream(stream_t *out, int flags, int priority);
status new_event(stream_t *out);
status record(stream_t event);
status elapsed(float *ms, stream_t from, stream_t to);

/* names.c */

void *entry_point(const char *name, int version); /* a function of the driver, or NULL */

/* refused.c */

int is_refused(const void *function);

#endif
