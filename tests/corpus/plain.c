// Plain C for nvptx64: what LLVM's clang makes of switches, tables, local arrays and long numbers.
// clang plain: --target=nvptx64-nvidia-cuda -march=sm_80 -O2
// clang plain_O0: --target=nvptx64-nvidia-cuda -march=sm_80 -O0

#define KERNEL __attribute__((nvptx_kernel)) void
#define GLOBAL __attribute__((address_space(1)))
#define SHARED static __attribute__((address_space(3)))
#define THREAD __nvvm_read_ptx_sreg_tid_x()
#define WHOLE (__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + THREAD)

typedef unsigned u32;
typedef unsigned long long u64;
typedef unsigned __int128 u128;

// A machine with a stack: one operation a byte, the highest bit a number to push.
KERNEL stack_machine(GLOBAL const unsigned char *code, int length, GLOBAL int *out) {
  int stack[16] = {0}, top = 0;
  for (int at = 0; at < length; at++) {
    int op = code[at], a = stack[top & 15], b = stack[(top - 1) & 15];
    if (op & 128) {
      stack[++top & 15] = op & 127;
      continue;
    }
    switch (op & 15) {
      case 0: stack[--top & 15] = a + b; break;
      case 1: stack[--top & 15] = b - a; break;
      case 2: stack[--top & 15] = a * b; break;
      case 3: stack[top & 15] = -a; break;
      case 4: stack[++top & 15] = THREAD; break;
      case 5: stack[++top & 15] = a; break;
      case 6: stack[top & 15] = b, stack[(top - 1) & 15] = a; break;
      case 7: stack[top & 15] = a ^ b << 3; break;
      case 8: if (a & 1) at++; break;
      case 9: stack[top & 15] = a > b ? a : b; break;
      case 10: stack[top & 15] = __builtin_popcount(a); break;
      default: stack[top & 15]++;
    }
  }
  out[WHOLE] = stack[top & 15];
}

struct Step { int by; short times[3]; };
struct Plan { double scale; struct Step steps[2]; char last; };

static int twice(int x, int y) { return 2 * x + y; }
static int apart(int x, int y) { return x > y ? x - y : y - x; }
static int mixed(int x, int y) { return x * 31 ^ y; }
static int (*const WAYS[])(int, int) = {twice, apart, mixed};

KERNEL by_table(GLOBAL const int *which, struct Plan plan, GLOBAL double *out) {
  int value = THREAD;
  for (int i = 0; i < 6; i++)
    value = WAYS[which[(i + THREAD) % 6]](value, plan.steps[i % 2].by * plan.steps[i % 2].times[i / 2]);
  out[WHOLE] = plan.scale * value + plan.last;
}

SHARED float rows[128];

KERNEL block_sums(GLOBAL const float *x, GLOBAL float *out, int n) {
  float sum = 0;
  for (int i = WHOLE; i < n; i += 2 * 128) sum += x[i];
  rows[THREAD] = sum;
  __nvvm_bar_sync(0);
  for (int step = 64; step >= 32; step /= 2) {
    if (THREAD < step) rows[THREAD] += rows[THREAD + step];
    __nvvm_bar_sync(0);
  }
  if (THREAD >= 32) return;
  sum = rows[THREAD];
  for (int step = 16; step; step /= 2)
    sum += __nvvm_shfl_sync_down_f32(-1, sum, step, 31);
  if (THREAD == 0) __nvvm_atom_add_gen_f((float *)out, sum);
}

// x to the x-th power modulo m, by products and remainders of 128 bits.
KERNEL powers(GLOBAL const u64 *x, GLOBAL const u64 *m, GLOBAL u64 *out) {
  u64 base = x[THREAD] % m[THREAD], result = 1, n = x[THREAD];
  for (; n; n >>= 1) {
    if (n & 1) result = (u128)result * base % m[THREAD];
    base = (u128)base * base % m[THREAD];
  }
  out[THREAD] = result;
}

static void sift(int *heap, int at, int n) {
  for (int child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && heap[child + 1] > heap[child]) child++;
    if (heap[at] >= heap[child]) return;
    int kept = heap[at];
    heap[at] = heap[child], heap[child] = kept;
  }
}

KERNEL heap_sort(GLOBAL const int *x, GLOBAL int *out) {
  int mine[20];
  for (int i = 0; i < 20; i++) mine[i] = x[THREAD * 20 + i];
  for (int i = 9; i >= 0; i--) sift(mine, i, 20);
  for (int n = 19; n > 0; n--) {
    int kept = mine[n];
    mine[n] = mine[0], mine[0] = kept;
    sift(mine, 0, n);
  }
  for (int i = 0; i < 20; i++) out[THREAD * 20 + i] = mine[i];
}

static __attribute__((address_space(4))) const char DIGITS[] = "0123456789abcdef";

// Numbers as text, in bytes that one thread puts together.
KERNEL as_text(GLOBAL const u64 *x, GLOBAL char *out) {
  char text[24];
  int n = 0;
  u64 value = x[THREAD], base = 2 + THREAD % 15;
  do text[n++] = DIGITS[value % base], value /= base; while (value && n < 24);
  for (int i = 0; i < 24; i++) out[THREAD * 24 + i] = i < n ? text[n - 1 - i] : ' ';
}

KERNEL exchanges(GLOBAL u32 *word, GLOBAL u64 *most, GLOBAL const u32 *x) {
  u32 mine = x[WHOLE];
  __atomic_fetch_xor((u32 *)word, mine, __ATOMIC_RELAXED);
  __atomic_fetch_add((u32 *)word + 1, mine, __ATOMIC_RELAXED);
  __atomic_fetch_nand((u32 *)word + 2, 0, __ATOMIC_RELAXED);
  u64 seen = *most, wanted = (u64)mine << 32 | WHOLE;
  while (seen < wanted && !__atomic_compare_exchange_n((u64 *)most, &seen, wanted, 0, __ATOMIC_RELAXED,
                                                       __ATOMIC_RELAXED)) {
  }
}

KERNEL halves(GLOBAL const _Float16 *x, GLOBAL const _Float16 *y, GLOBAL _Float16 *out, GLOBAL float *wide) {
  _Float16 a = x[WHOLE], b = y[WHOLE];
  out[WHOLE] = a * b - (a > b ? a : (_Float16)2);
  wide[WHOLE] = (float)a / (float)b + __builtin_fabsf((float)b) + __builtin_floorf((float)a);
}
