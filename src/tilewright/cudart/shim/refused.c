/* Every function of the CUDA runtime (12 and 13) and of the driver. Weak: what another file here
   defines takes its place, and the rest is refused by name. They lie in a section of their own, by
   which `entry_point` knows them. */

#include "shim.h"

#define R(name) \
  __attribute__((weak, section("refusals"))) API status name(void) { return refused(#name); }
#include "names.h"

extern const char __start_refusals[], __stop_refusals[];

int is_refused(const void *function) {
  return (const char *)function >= __start_refusals && (const char *)function < __stop_refusals;
}
