/* The connection to the virtual machine's process. A request is a code, a size and a payload; a
   reply has the same form. Any thread may send a request; they are processed one at a time. */

#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct header { uint32_t code, size; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int connection = -1;
static pid_t owner;
static status first_fault; /* the first fault of a kernel */
static char *printed; /* output of printf in kernels, until the host synchronizes */
static size_t printed_size;
static struct device properties;
static __thread char *reply;
static __thread size_t reply_capacity, reply_size;
static __thread status last;

void print_error(const char *format, ...) {
  va_list list;
  va_start(list, format);
  fputs("tilewright: ", stderr);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
}

status refused(const char *name) {
  print_error("%s is not supported by the virtual machine's CUDA runtime", name);
  return set_last_error(NOT_SUPPORTED);
}

static int send_all(const void *bytes, size_t size) {
  for (const char *at = bytes; size;) {
    ssize_t n = send(connection, at, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    at += n, size -= n;
  }
  return 1;
}

static int receive_all(void *bytes, size_t size) {
  for (char *at = bytes; size;) {
    ssize_t n = recv(connection, at, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    at += n, size -= n;
  }
  return 1;
}

/* Sends a request and receives its reply. The caller holds `lock`. */
static status exchange(enum request what, const void *head, size_t head_size, const void *body,
                       size_t body_size) {
  struct header h = {what, head_size + body_size};
  reply_size = 0;
  if (!send_all(&h, sizeof h) || !send_all(head, head_size) || !send_all(body, body_size) ||
      !receive_all(&h, sizeof h)) {
    print_error("the connection to the virtual machine is closed");
    return UNKNOWN;
  }
  if (h.size > reply_capacity) {
    char *more = realloc(reply, h.size);
    if (!more) return OUT_OF_MEMORY;
    reply = more, reply_capacity = h.size;
  }
  reply_size = h.size;
  return receive_all(reply, h.size) ? (status)h.code : UNKNOWN;
}

/* Receives the file descriptor of device memory, which the server sends first. */
static int receive_memory(void) {
  char byte, control[CMSG_SPACE(sizeof(int))];
  struct iovec io = {&byte, 1};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control,
                     .msg_controllen = sizeof control};
  int file = -1;
  if (recvmsg(connection, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m))
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof file);
  return file;
}

static void map_memory(int file) {
  void *base = (void *)properties.base;
  int flags = MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
  void *got = mmap(base, properties.size, PROT_READ | PROT_WRITE, flags, file, 0);
  if (got != base) {
    print_error("device memory can't be mapped at %p: %s", base, strerror(errno));
    properties.size = 0;
  }
  close(file);
}

static void connect_once(void) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  const char *path = getenv("TILEWRIGHT_CUDART");
  owner = getpid();
  snprintf(to.sun_path, sizeof to.sun_path, "%s", path ? path : "");
  connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection < 0 || connect(connection, (struct sockaddr *)&to, sizeof to)) {
    print_error("no virtual machine at TILEWRIGHT_CUDART=%s: %s", to.sun_path, strerror(errno));
    return;
  }
  int file = receive_memory();
  if (file < 0 || exchange(HELLO, 0, 0, 0, 0) || reply_size != sizeof properties) {
    print_error("the virtual machine at %s is of another version of tilewright", to.sun_path);
    return;
  }
  memcpy(&properties, reply, sizeof properties);
  map_memory(file);
}

const struct device *device_of(void) {
  pthread_once(&once, connect_once);
  return properties.size ? &properties : 0;
}

status call_server(enum request what, const void *head, size_t head_size, const void *body,
           size_t body_size) {
  if (!device_of()) return NO_DEVICE;
  if (getpid() != owner) return NOT_INITIALIZED; /* forked after the first call, as with CUDA */
  pthread_mutex_lock(&lock);
  status s = first_fault ? first_fault : exchange(what, head, head_size, body, body_size);
  if (!first_fault && what == LAUNCH && reply_size) { /* sticky status, then printf's output */
    memcpy(&first_fault, reply, sizeof first_fault);
    size_t more = reply_size - sizeof first_fault;
    char *grown = realloc(printed, printed_size + more + 1);
    if (grown) {
      memcpy(grown + printed_size, reply + sizeof first_fault, more);
      printed = grown, printed_size += more;
    }
  }
  pthread_mutex_unlock(&lock);
  return s;
}

const void *server_reply(size_t *size) {
  if (size) *size = reply_size;
  return reply;
}

status query_server(enum request what, const void *head, size_t size, void *out, size_t out_size) {
  status s = call_server(what, head, size, 0, 0);
  if (!s && reply_size == out_size) memcpy(out, reply, out_size);
  return s ? s : reply_size == out_size ? SUCCESS : UNKNOWN;
}

int on_device(const void *address) {
  return (uint64_t)address - properties.base < properties.size;
}

status check_range(const void *address, size_t size) {
  uint64_t range[2] = {(uint64_t)address, size};
  return size && on_device(address) ? call_server(INSIDE, range, sizeof range, 0, 0) : SUCCESS;
}

status sync_all(void) {
  pthread_mutex_lock(&lock);
  if (printed_size) fwrite(printed, 1, printed_size, stdout);
  printed_size = 0;
  pthread_mutex_unlock(&lock);
  return first_fault;
}

static void __attribute__((destructor)) end(void) {
  if (getpid() == owner) sync_all(), fflush(stdout);
}

status set_last_error(status s) {
  if (s && s != NOT_READY) last = s;
  return s;
}

API status cudaPeekAtLastError(void) { return first_fault ? first_fault : last; }

API status cudaGetLastError(void) {
  status s = cudaPeekAtLastError();
  last = SUCCESS;
  return s;
}
