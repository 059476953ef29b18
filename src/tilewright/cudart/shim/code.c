/* Modules, kernels and variables, as nvcc's host code registers them, and launches. Registration
   only stores pointers; a module is sent to the virtual machine when one of its symbols is used. */

#include "shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct variable {
  const void *host; /* the host symbol that identifies it */
  const char *name;
  struct module *module;
  void **pointer; /* of a managed variable: where host code reads its address */
  struct variable *next;
};

struct configuration { dim3 grid, block; size_t shared; stream_t stream; };

enum { FATBIN = 0xBA55ED50, LINKED = 2, DEPTH = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct function *functions;
static struct variable *variables;
static __thread struct configuration configurations[DEPTH];
static __thread int depth;

/* --- modules --- */

struct module *new_module(const void **images) {
  struct module *m = calloc(1, sizeof *m);
  if (m) m->images = images;
  return m;
}

static size_t size_of(const void *image) {
  struct { uint32_t magic; uint16_t version, header; uint64_t size; } h;
  memcpy(&h.magic, image, sizeof h.magic);
  if (h.magic != FATBIN) return strlen(image); /* PTX */
  memcpy(&h, image, sizeof h);
  return h.header + h.size;
}

/* Sends all images as one byte string, which the virtual machine splits. */
static status send_module(struct module *m) {
  size_t size = 0;
  for (const void **i = m->images; *i; i++) size += size_of(*i);
  char *all = malloc(size + 1), *at = all;
  if (!all) return OUT_OF_MEMORY;
  for (const void **i = m->images; *i; i++) at = (char *)memcpy(at, *i, size_of(*i)) + size_of(*i);
  status s = call_server(MODULE, 0, 0, all, size);
  if (!s) memcpy(&m->id, server_reply(0), sizeof m->id);
  free(all);
  return s;
}

status load(struct module *m) {
  pthread_mutex_lock(&lock);
  if (!m->loaded) m->failed = send_module(m), m->loaded = 1;
  pthread_mutex_unlock(&lock);
  return m->failed;
}

API void **__cudaRegisterFatBinary(void *wrapper) {
  struct { int magic, version; const void *data; const void **linked; } *w = wrapper;
  const void **query_lock = calloc(2, sizeof *query_lock);
  if (query_lock) *query_lock = w->data;
  return (void **)new_module(w->version == LINKED ? w->linked : query_lock);
}

API void __cudaRegisterFatBinaryEnd(void **module) { (void)module; }

API void __cudaUnregisterFatBinary(void **module) { (void)module; }

/* --- kernels --- */

struct function *function_of(struct module *m, const char *name, const void *host) {
  struct function *f = calloc(1, sizeof *f);
  if (!f) return 0;
  f->module = m, f->name = name, f->host = host, f->dynamic = ~0u;
  pthread_mutex_lock(&lock);
  f->next = functions, functions = f;
  pthread_mutex_unlock(&lock);
  return f;
}

API void __cudaRegisterFunction(void **module, const char *host, char *device, const char *name,
                                int limit, void *tid, void *bid, void *block, void *grid,
                                int *warp) {
  (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
  function_of((struct module *)module, name, host);
}

static status ask_named(enum request what, struct module *m, const char *name) {
  status s = load(m);
  return s ? s : call_server(what, &m->id, sizeof m->id, name, strlen(name));
}

static status query_function(struct function *f) {
  status s = ask_named(FUNCTION, f->module, f->name);
  if (s) return s;
  const char *reply = server_reply(0);
  memcpy(&f->info, reply, sizeof f->info);
  size_t size = f->info.count * sizeof *f->parameters;
  f->parameters = malloc(size + 1);
  if (!f->parameters) return OUT_OF_MEMORY;
  memcpy(f->parameters, reply + sizeof f->info, size);
  if (f->dynamic == ~0u) f->dynamic = MAX_SHARED > f->info.shared ? MAX_SHARED - f->info.shared : 0;
  f->ready = 1;
  return SUCCESS;
}

status resolve(struct function *f) {
  static pthread_mutex_t query_lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&query_lock);
  status s = f->ready ? SUCCESS : query_function(f);
  pthread_mutex_unlock(&query_lock);
  return s;
}

status find_function(const void *host, struct function **out) {
  struct function *f = functions;
  while (f && f->host != host && f != host) f = f->next;
  if (!host) f = 0; /* functions of the driver API have no stub */
  *out = f;
  return f ? resolve(f) : INVALID_FUNCTION;
}

status set_function(struct function *f, int attribute, int value) {
  enum { DYNAMIC = 8, WIDTH = 11, DEPTH = 13 };
  if (attribute == DYNAMIC) {
    if (value < 0 || (uint32_t)value > f->info.max_dynamic) return INVALID_VALUE;
    f->dynamic = value;
  } else if (attribute >= WIDTH && attribute <= DEPTH) {
    f->cluster[attribute - WIDTH] = value;
  }
  return SUCCESS; /* the other attributes have no effect here */
}

/* --- variables --- */

static void variable_of(void **module, const void *host, const char *name, void **pointer) {
  struct variable *v = calloc(1, sizeof *v);
  if (!v) return;
  v->module = (struct module *)module, v->host = host, v->name = name, v->pointer = pointer;
  pthread_mutex_lock(&lock);
  v->next = variables, variables = v;
  pthread_mutex_unlock(&lock);
}

API void __cudaRegisterVar(void **module, char *host, char *device, const char *name, int external,
                           size_t size, int constant, int global) {
  (void)device, (void)external, (void)size, (void)constant, (void)global;
  variable_of(module, host, name, 0);
}

API void __cudaRegisterManagedVar(void **module, void **pointer, char *device, const char *name,
                                  int external, size_t size, int constant, int global) {
  (void)device, (void)external, (void)size, (void)constant, (void)global;
  variable_of(module, pointer, name, pointer);
}

status variable_in(struct module *m, const char *name, void **address, size_t *size) {
  status s = ask_named(VARIABLE, m, name);
  if (s) return s;
  uint64_t found[2];
  memcpy(found, server_reply(0), sizeof found);
  if (address) *address = (void *)found[0];
  if (size) *size = found[1];
  return SUCCESS;
}

status find_variable(const void *host, void **address, size_t *size) {
  struct variable *v = variables;
  while (v && v->host != host && !(v->pointer && *v->pointer == host)) v = v->next;
  return v && host ? variable_in(v->module, v->name, address, size) : INVALID_SYMBOL;
}

API char __cudaInitModule(void **module) {
  for (struct variable *v = variables; v; v = v->next)
    if (v->pointer && (void **)v->module == module) variable_in(v->module, v->name, v->pointer, 0);
  return 1;
}

/* --- launches --- */

static int any(const uint32_t *c) { return c && c[0] | c[1] | c[2]; }

status start(struct function *f, dim3 grid, dim3 block, const uint32_t *cluster, uint32_t shared,
             void **arguments, const void *packed, size_t packed_size) {
  char own[MAX_PARAMETERS] = {0};
  if (!packed) {
    packed_size = 0;
    for (uint32_t i = 0; i < f->info.count; i++) {
      struct parameter p = f->parameters[i];
      if (p.offset + p.size > sizeof own || !arguments) return INVALID_VALUE;
      memcpy(own + p.offset, arguments[i], p.size);
      packed_size = p.offset + p.size;
    }
    packed = own;
  }
  if (shared > f->dynamic) {
    print_error("kernel %s can have %u bytes of dynamic shared memory, got %u; "
                "cudaFuncSetAttribute raises the limit", f->name, f->dynamic, shared);
    return INVALID_VALUE;
  }
  const uint32_t *c = any(cluster) ? cluster : f->cluster;
  struct launch l = {f->info.id, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z},
                     {c[0], c[1], c[2]}, shared};
  return call_server(LAUNCH, &l, sizeof l, packed, packed_size);
}

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, stream_t stream) {
  if (depth == DEPTH) return INVALID_CONFIGURATION;
  configurations[depth++] = (struct configuration){grid, block, shared, stream};
  return SUCCESS;
}

API status __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  if (!depth) return set_last_error(52); /* cudaErrorMissingConfiguration */
  struct configuration c = configurations[--depth];
  *grid = c.grid, *block = c.block, *shared = c.shared, *(stream_t *)stream = c.stream;
  return SUCCESS;
}

API status cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments,
                            size_t shared, stream_t stream) {
  struct function *f;
  status s = find_function(host, &f);
  (void)stream;
  return set_last_error(s ? s : start(f, grid, block, 0, shared, arguments, 0, 0));
}
PTSZ(cudaLaunchKernel);
ALIAS(__cudaLaunchKernel, cudaLaunchKernel);
ALIAS(__cudaLaunchKernel_ptsz, cudaLaunchKernel);
ALIAS(cudaLaunchCooperativeKernel, cudaLaunchKernel);
PTSZ(cudaLaunchCooperativeKernel);

struct attribute { int id, pad; union { dim3 dim; int value; char bytes[64]; } val; };

struct extended {
  dim3 grid, block;
  size_t shared;
  stream_t stream;
  struct attribute *attributes;
  unsigned count;
};

API status cudaLaunchKernelExC(const struct extended *how, const void *host, void **arguments) {
  enum { CLUSTER = 4 };
  uint32_t cluster[3] = {0};
  for (unsigned i = 0; i < how->count; i++)
    if (how->attributes[i].id == CLUSTER) memcpy(cluster, &how->attributes[i].val, sizeof cluster);
  struct function *f;
  status s = find_function(host, &f);
  if (!s) s = start(f, how->grid, how->block, cluster, how->shared, arguments, 0, 0);
  return set_last_error(s);
}
PTSZ(cudaLaunchKernelExC);

API status __cudaGetKernel(void **out, const void *host) {
  struct function *f = functions;
  while (f && f->host != host) f = f->next;
  *out = f;
  return f ? SUCCESS : set_last_error(INVALID_FUNCTION);
}
ALIAS(cudaGetKernel, __cudaGetKernel);

API status cudaGetFuncBySymbol(void **out, const void *host) {
  return set_last_error(find_function(host, (struct function **)out));
}

/* --- attributes of a kernel --- */

struct function_attributes {
  size_t shared, constant, local;
  int max_threads, registers, ptx, binary, cache, dynamic, carveout, cluster_needed, cluster[3];
  int scheduling, large_clusters, reserved[16];
};

API status cudaFuncGetAttributes(struct function_attributes *out, const void *host) {
  struct function *f;
  status s = find_function(host, &f);
  if (s) return set_last_error(s);
  *out = (struct function_attributes){
      .shared = f->info.shared, .constant = f->info.constant, .local = f->info.local,
      .max_threads = f->info.max_threads, .ptx = f->info.ptx, .binary = f->info.binary,
      .dynamic = f->dynamic, .carveout = -1};
  return SUCCESS;
}

API status cudaFuncSetAttribute(const void *host, int attribute, int value) {
  struct function *f;
  status s = find_function(host, &f);
  return set_last_error(s ? s : set_function(f, attribute, value));
}

API status cudaKernelSetAttributeForDevice(void *f, int attribute, int value, int device) {
  return device ? set_last_error(INVALID_DEVICE) : cudaFuncSetAttribute(f, attribute, value);
}

API status cudaFuncGetName(const char **name, const void *host) {
  struct function *f;
  status s = find_function(host, &f);
  if (!s) *name = f->name;
  return set_last_error(s);
}

API status cudaFuncGetParamInfo(const void *host, size_t index, size_t *offset, size_t *size) {
  struct function *f;
  status s = find_function(host, &f);
  if (!s && index >= f->info.count) s = INVALID_VALUE;
  if (s) return set_last_error(s);
  *offset = f->parameters[index].offset;
  if (size) *size = f->parameters[index].size;
  return SUCCESS;
}

API status cudaFuncSetCacheConfig(const void *host, int config) {
  struct function *f;
  (void)config;
  return set_last_error(find_function(host, &f));
}
ALIAS(cudaFuncSetSharedMemConfig, cudaFuncSetCacheConfig);

/* Resident CTAs per SM, or with `cluster` resident clusters on the GPU. */
status occupancy(struct function *f, int threads, size_t shared, const uint32_t *cluster,
                 int *count) {
  uint32_t query[6] = {f->info.id, threads, shared, 0, 0, 0};
  if (cluster) memcpy(query + 3, cluster, 3 * sizeof *cluster);
  return query_server(OCCUPANCY, query, sizeof query, count, sizeof *count);
}

API status cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, const void *host,
                                                                  int threads, size_t shared,
                                                                  unsigned flags) {
  struct function *f;
  status s = find_function(host, &f);
  (void)flags;
  return set_last_error(s ? s : occupancy(f, threads, shared, 0, count));
}

API status cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *count, const void *host, int threads,
                                                         size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count, host, threads, shared, 0);
}

API status cudaOccupancyMaxActiveClusters(int *count, const void *host,
                                          const struct extended *how) {
  enum { CLUSTER = 4 };
  struct function *f;
  status s = find_function(host, &f);
  uint32_t cluster[3] = {1, 1, 1};
  for (unsigned i = 0; i < how->count; i++)
    if (how->attributes[i].id == CLUSTER) memcpy(cluster, &how->attributes[i].val, sizeof cluster);
  int threads = how->block.x * how->block.y * how->block.z;
  return set_last_error(s ? s : occupancy(f, threads, how->shared, cluster, count));
}

API status cudaOccupancyMaxPotentialClusterSize(int *size, const void *host,
                                                const struct extended *how) {
  struct function *f;
  status s = find_function(host, &f);
  (void)how;
  if (!s) *size = device_of()->attributes[120] ? 8 : 1; /* cudaDevAttrClusterLaunch */
  return set_last_error(s);
}

API status cudaGetSymbolAddress(void **address, const void *host) {
  return set_last_error(find_variable(host, address, 0));
}

API status cudaGetSymbolSize(size_t *size, const void *host) {
  return set_last_error(find_variable(host, 0, size));
}
