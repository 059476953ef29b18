/* The line to the virtual machine's process: a request is its code, its size and its bytes, and so
   is an answer. One at a time; every thread may ask. */

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
static int line = -1;
static pid_t owner;
static status broken; /* the first fault of a kernel */
static char *printed; /* by kernels, until the host waits for them */
static size_t printed_size;
static struct device here;
static __thread char *answer;
static __thread size_t answer_room, answer_size;
static __thread status last;

void say(const char *format, ...) {
  va_list list;
  va_start(list, format);
  fputs("tilewright: ", stderr);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
}

status refused(const char *name) {
  say("%s is not supported by the virtual machine's CUDA runtime", name);
  return done(NOT_SUPPORTED);
}

static int put(const void *bytes, size_t size) {
  for (const char *at = bytes; size;) {
    ssize_t n = send(line, at, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    at += n, size -= n;
  }
  return 1;
}

static int get(void *bytes, size_t size) {
  for (char *at = bytes; size;) {
    ssize_t n = recv(line, at, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    at += n, size -= n;
  }
  return 1;
}

/* A request and its answer; the line is ours. */
static status exchange(enum request what, const void *head, size_t head_size, const void *body,
                       size_t body_size) {
  struct header h = {what, head_size + body_size};
  answer_size = 0;
  if (!put(&h, sizeof h) || !put(head, head_size) || !put(body, body_size) || !get(&h, sizeof h)) {
    say("the virtual machine is gone");
    return UNKNOWN;
  }
  if (h.size > answer_room) {
    char *more = realloc(answer, h.size);
    if (!more) return OUT_OF_MEMORY;
    answer = more, answer_room = h.size;
  }
  answer_size = h.size;
  return get(answer, h.size) ? (status)h.code : UNKNOWN;
}

/* The descriptor of the file of device memory comes before all else. */
static int receive_memory(void) {
  char byte, control[CMSG_SPACE(sizeof(int))];
  struct iovec io = {&byte, 1};
  struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control,
                     .msg_controllen = sizeof control};
  int file = -1;
  if (recvmsg(line, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m))
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof file);
  return file;
}

static void map_memory(int file) {
  void *wanted = (void *)here.base;
  int flags = MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE;
  void *got = mmap(wanted, here.size, PROT_READ | PROT_WRITE, flags, file, 0);
  if (got != wanted) {
    say("the addresses from %p on are taken: %s", wanted, strerror(errno));
    here.size = 0;
  }
  close(file);
}

static void connect_once(void) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  const char *path = getenv("TILEWRIGHT_CUDART");
  owner = getpid();
  snprintf(to.sun_path, sizeof to.sun_path, "%s", path ? path : "");
  line = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (line < 0 || connect(line, (struct sockaddr *)&to, sizeof to)) {
    say("no virtual machine at TILEWRIGHT_CUDART=%s: %s", to.sun_path, strerror(errno));
    return;
  }
  int file = receive_memory();
  if (file < 0 || exchange(HELLO, 0, 0, 0, 0) || answer_size != sizeof here) {
    say("the virtual machine at %s speaks otherwise", to.sun_path);
    return;
  }
  memcpy(&here, answer, sizeof here);
  map_memory(file);
}

const struct device *device_of(void) {
  pthread_once(&once, connect_once);
  return here.size ? &here : 0;
}

status ask(enum request what, const void *head, size_t head_size, const void *body,
           size_t body_size) {
  if (!device_of()) return NO_DEVICE;
  if (getpid() != owner) return NOT_INITIALIZED; /* forked after the first call, as with CUDA */
  pthread_mutex_lock(&lock);
  status s = broken ? broken : exchange(what, head, head_size, body, body_size);
  if (!broken && what == LAUNCH && answer_size) { /* status that stays, then what was printed */
    memcpy(&broken, answer, sizeof broken);
    size_t more = answer_size - sizeof broken;
    char *grown = realloc(printed, printed_size + more + 1);
    if (grown) {
      memcpy(grown + printed_size, answer + sizeof broken, more);
      printed = grown, printed_size += more;
    }
  }
  pthread_mutex_unlock(&lock);
  return s;
}

const void *answered(size_t *size) {
  if (size) *size = answer_size;
  return answer;
}

status ask_for(enum request what, const void *head, size_t size, void *out, size_t out_size) {
  status s = ask(what, head, size, 0, 0);
  if (!s && answer_size == out_size) memcpy(out, answer, out_size);
  return s ? s : answer_size == out_size ? SUCCESS : UNKNOWN;
}

int on_device(const void *address) {
  return (uint64_t)address - here.base < here.size;
}

status inside(const void *address, size_t size) {
  uint64_t range[2] = {(uint64_t)address, size};
  return size && on_device(address) ? ask(INSIDE, range, sizeof range, 0, 0) : SUCCESS;
}

status sync_all(void) {
  pthread_mutex_lock(&lock);
  if (printed_size) fwrite(printed, 1, printed_size, stdout);
  printed_size = 0;
  pthread_mutex_unlock(&lock);
  return broken;
}

static void __attribute__((destructor)) end(void) {
  if (getpid() == owner) sync_all(), fflush(stdout);
}

status done(status s) {
  if (s && s != NOT_READY) last = s;
  return s;
}

API status cudaPeekAtLastError(void) { return broken ? broken : last; }

API status cudaGetLastError(void) {
  status s = cudaPeekAtLastError();
  last = SUCCESS;
  return s;
}
