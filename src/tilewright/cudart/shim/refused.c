/* Every function of the CUDA runtime (12 and 13) and of the driver. Weak: what another file here
   defines takes its place, and the rest is refused by name. */

#include "shim.h"

#define R(name) \
  __attribute__((weak)) API status name(void) { return refused(#name); }
#include "names.h"
