/* Every function of the CUDA runtime (12 and 13) and of the driver, as a weak symbol that reports an
   unsupported function. A definition in another file replaces it. The weak functions are in a section
   of their own, by which `entry_point` recognizes them. */

#include "shim.h"

#define R(name) \
  __attribute__((weak, section("refusals"))) API status name(void) { return refused(#name); }
#include "names.h"

extern const char __start_refusals[], __stop_refusals[];

int is_refused(const void *function) {
  return (const char *)function >= __start_refusals && (const char *)function < __stop_refusals;
}
