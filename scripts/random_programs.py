"""Random CUDA programs, of which a C compiler takes the same text: see ``check_programs.py``.

A thread reads four words and writes twenty, and updates shared counters by atomics that commute.
Between are statements of a grammar: integers of 32 and 64 bits, f32, local arrays with computed
indices, branches, loops, switches, jumps to the end, calls. Nothing in them is undefined. With
``warps``, which no C compiler takes, statements of whole warps and CTAs come between.
"""

from __future__ import annotations

import random
import re

WORDS_IN, WORDS_OUT, COUNTERS = 4, 20, 80  # of a thread, of a thread, of all
THREADS = 64  # of a CTA: the words of its shared memory
DEEPEST, LOOPS = 4, 3  # statements and loops around one
# u: a word, q: 64 bits, f: f32, c: a condition; U, Q and F: a variable; n: a number
GRAMMAR = {
    "u": (
        "({u} + {u})", "({u} - {u})", "({u} * {u})", "({u} & {u})", "({u} | {u})", "({u} ^ {u})",
        "({u} << ({u} & 31u))", "({u} >> ({u} & 31u))", "({u} / ({u} | 1u))", "({u} % ({u} | 1u))",
        "({c} ? {u} : {u})", "(unsigned)({q})", "(unsigned)({q} >> 32)", "(unsigned)({q} >> 7)",
        "POPC({u})", "CLZ({u})", "BREV({u})", "FFS({u})", "FUNNEL({u}, {u}, {u})",
        "MULHI({u}, {u})", "array[{u} & 7u]", "bytes[{u} & 15u]", "(unsigned)(int)(signed char){u}",
        "(unsigned)(int)(short){u}", "(unsigned)(unsigned char){u}", "(unsigned)((int){u} >> 9)",
        "((unsigned)((int)({u} & 0xffffu) - 32768))", "(BITS({f}) >> 3)", "{call}({u}, {u})",
    ),
    "q": (
        "({q} + {q})", "({q} - {q})", "({q} * {q})", "({q} & {q})", "({q} ^ {q})",
        "({q} << ({u} & 63u))", "({q} >> ({u} & 63u))", "({q} / ({q} | 1ull))",
        "({q} % ({q} | 1ull))", "(unsigned long long){u}", "({c} ? {q} : {q})",
        "(unsigned long long)((long long){q} >> 38)",
    ),
    "f": (
        "({f} + {f})", "({f} - {f})", "({f} * {f})", "({f} / ({f} * 0.5f + 3.0f))",
        "(float)({u} & 0xffffu)", "(float)(int){u}", "fabsf({f})", "({c} ? {f} : {f})", "3.25e3f",
        "-0.5f",
    ),
    "c": (
        "({u} {relation} {u})", "((int){u} {relation} (int){u})", "({f} {relation} {f})",
        "({q} {relation} {q})", "({c} && {c})", "({c} || {c})", "({u} & 4u)",
    ),
}  # fmt: skip
LEAVES = {"u": ("{U}", "{U}", "{U}", "{n}u"), "q": ("{Q}",), "f": ("{F}",), "c": ("({U} > {U})",)}
STATEMENTS = (
    "{U} {update} {u};", "{U} {update} {u};", "{Q} {update} {q};", "{F} = {f};",
    "array[{u} & 7u] {update} {u};", "bytes[{u} & 15u] = (unsigned char){u};",
    "out[{u} & 7u] {update} {u};", "ATOMIC_ADD(&counters[{u} & 15u], {u});",
    "ATOMIC_XOR(&counters[16 + ({u} & 15u)], {u});",
    "ATOMIC_MAX(&counters[32 + ({u} & 15u)], {u});",
    "ATOMIC_MIN(&counters[48 + ({u} & 15u)], {u});",
    "ATOMIC_OR(&counters[64 + ({u} & 15u)], {u});",
)  # fmt: skip
WARPS = (
    "{U} = __shfl_xor_sync(ALL, {u}, {lane}, {width});",
    "{U} += __shfl_sync(ALL, {u}, {u}, {width});",
    "{U} ^= __shfl_up_sync(ALL, {u}, {lane}, {width});",
    "{Q} ^= __shfl_xor_sync(ALL, {q}, {lane});", "{F} += __shfl_down_sync(ALL, {f}, {lane});",
    "{U} ^= __ballot_sync(ALL, {c});", "{U} += __all_sync(ALL, {c}) + 2 * __any_sync(ALL, {c});",
    "{U} ^= __match_any_sync(ALL, {u} & 3u);", "{U} ^= __reduce_{reduction}_sync(ALL, {u});",
    "{U} += __syncthreads_count({c});",
    "{U} = __dp4a({U}, {U}, {U}) ^ __byte_perm({u}, {u}, {u});",
    "__syncthreads(); shared[threadIdx.x] = {u}; __syncthreads(); {U} += shared[{u} & 63u];"
    " __syncthreads();",
    "__syncthreads(); atomicAdd(&shared[{u} & 63u], {u}); __syncthreads();"
    " {U} ^= shared[threadIdx.x]; __syncthreads();",
    "{{ unsigned m = __ballot_sync(ALL, {c}); if (m >> (threadIdx.x & 31u) & 1u) {U} ^="
    " __shfl_sync(m, {u}, __ffs(m) - 1) + __reduce_add_sync(m, {u}); __syncwarp(); }}",
)  # fmt: skip
CHOICES = {
    "U": "u0 u1 u2 u3 u4", "Q": "q0 q1", "F": "f0 f1", "update": "= += ^= -=",
    "relation": "< > <= >= == !=", "n": "0 1 2 7 31 32 255 65535 2147483648 4294967295 2654435769",
    "lane": "1 2 3 5 7 11 16 30", "width": "32 32 16 8 4", "reduction": "add min max and or xor",
}  # fmt: skip
DEVICE = r"""
#define DEVICE __device__
#define OUTLINED __device__ __noinline__
#define POPC(x) ((unsigned)__popc(x))
#define CLZ(x) ((unsigned)__clz(x))
#define BREV(x) __brev(x)
#define FFS(x) ((unsigned)__ffs(x))
#define FUNNEL(a, b, c) __funnelshift_l(a, b, c)
#define MULHI(a, b) __umulhi(a, b)
#define WORD(f) __float_as_uint(f)
#define ATOMIC_ADD(p, x) atomicAdd(p, x)
#define ATOMIC_XOR(p, x) atomicXor(p, x)
#define ATOMIC_MAX(p, x) atomicMax(p, x)
#define ATOMIC_MIN(p, x) atomicMin(p, x)
#define ATOMIC_OR(p, x) atomicOr(p, x)
#define ALL 0xffffffffu
"""
HOST = r"""
#include <math.h>
#include <stdint.h>
#include <string.h>
#define DEVICE static
#define OUTLINED static __attribute__((noinline))
#define POPC(x) ((unsigned)__builtin_popcount(x))
#define FFS(x) ((unsigned)__builtin_ffs((int)(x)))
#define MULHI(a, b) ((unsigned)(((uint64_t)(a) * (b)) >> 32))
static unsigned CLZ(unsigned x) { return x ? __builtin_clz(x) : 32; }
static unsigned BREV(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}
static unsigned FUNNEL(unsigned a, unsigned b, unsigned c) {
  return (unsigned)((((uint64_t)b << 32 | a) << (c & 31)) >> 32);
}
static unsigned WORD(float f) { unsigned x; memcpy(&x, &f, 4); return x; }
static void ATOMIC_ADD(unsigned *p, unsigned x) { *p += x; }
static void ATOMIC_XOR(unsigned *p, unsigned x) { *p ^= x; }
static void ATOMIC_MAX(unsigned *p, unsigned x) { if (x > *p) *p = x; }
static void ATOMIC_MIN(unsigned *p, unsigned x) { if (x < *p) *p = x; }
static void ATOMIC_OR(unsigned *p, unsigned x) { *p |= x; }
"""
# NaNs are canonical: hosts keep payloads and signs
COMMON = r"""
DEVICE unsigned CANONICAL(unsigned x) { return (x & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : x; }
#define BITS(f) CANONICAL(WORD(f))
"""
LOCALS = r"""
  unsigned array[8] = {u0, u1, 3, 4, 5, 1, 2, 3};
  unsigned char bytes[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
"""
BEGIN = r"""
DEVICE void thread(
    unsigned t, const unsigned *in, unsigned *out, unsigned *counters, unsigned *shared) {
  unsigned u0 = in[0], u1 = in[1], u2 = in[2], u3 = t, u4 = in[3] & 15u;
  unsigned long long q0 = (unsigned long long)u0 << 32 | u1, q1 = u2;
  float f0 = (float)(u1 & 1023u), f1 = (float)u4 * 0.25f;
"""
END = r"""
end:
  out[8] = u0; out[9] = u1; out[10] = u2; out[11] = u3; out[12] = u4; out[13] = (unsigned)q0;
  out[14] = (unsigned)(q0 >> 32); out[15] = (unsigned)q1; out[16] = BITS(f0); out[17] = BITS(f1);
  unsigned hash = 0;
  for (int i = 0; i < 8; ++i) hash = hash * 31u + array[i];
  out[18] = hash;
  for (int i = 0; i < 16; ++i) hash = hash * 31u + bytes[i];
  out[19] = hash;
}
"""
KERNEL = r"""
extern "C" __global__ void k(const unsigned *in, unsigned *out, unsigned *counters, unsigned n) {
  __shared__ unsigned shared[64];
  unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
  shared[threadIdx.x] = 0;
  __syncthreads();
  if (t < n) thread(t, in + 4 * t, out + 20 * t, counters, shared);
}
"""
LOOP = r"""
void k(const unsigned *in, unsigned *out, unsigned *counters, unsigned n) {
  for (unsigned t = 0; t < n; ++t) thread(t, in + 4 * t, out + 20 * t, counters, 0);
}
"""


class RandomProgram:
    """The program of a seed: its ``cuda`` text, and its ``host`` text in C."""

    def __init__(self, seed: int, warps: bool = False) -> None:
        self.rng = random.Random(seed)
        self.loops: list[str] = []  # variables of the loops around
        self.count = 0
        self.functions: list[str] = []
        functions = "".join(self._function() for _ in range(self.rng.randrange(3)))
        body = "".join(self._top_level(warps) for _ in range(self.rng.randrange(3, 10)))
        text = COMMON + functions + BEGIN + LOCALS + body + END
        self.cuda, self.host = DEVICE + text + KERNEL, HOST + text + LOOP

    def _top_level(self, warps: bool) -> str:
        if warps:
            return self.statement(1) + "".join(
                self.expand(self.rng.choice(WARPS), 2) + "\n" for _ in range(self.rng.randrange(3))
            )
        leave = self.expand("if ({c} && {c} && {c}) goto end;\n", 2)
        return self.statement(0) + leave * (self.rng.random() < 0.2)

    def _function(self) -> str:
        """A function of two words, which may call those before it. It has no side effects."""
        body = "".join(self.statement(2) for _ in range(2))
        body = re.sub(r"(ATOMIC_\w+\(|out\[).*?;\n", "u2 ^= u1;\n", body)
        name = f"function{len(self.functions)}"
        kind = self.rng.choice(("DEVICE", "OUTLINED"))
        self.functions.append(name)
        return (
            f"{kind} unsigned {name}(unsigned u0, unsigned u1) {{\n"
            "  unsigned u2 = u0 ^ 5u, u3 = 9, u4 = u1; unsigned long long q0 = u1, q1 = 77;\n"
            f"  float f0 = 1.5f, f1 = (float)(u0 & 255u);{LOCALS}{body}"
            "  return u0 + u1 * 3u + u2 + u3 + u4 + (unsigned)(q0 + (q1 >> 5)) + array[3]"
            " + bytes[7] + BITS(f0) + BITS(f1);\n}\n"
        )

    def statement(self, depth: int) -> str:
        """A statement; ``depth`` others are around it."""
        if depth > DEEPEST:
            return self._assignment(depth)
        kinds = [self._assignment] * (4 + 4 * depth) + [self._branch, self._switch] * 2
        kinds += [self._loop] * 2 * (len(self.loops) < LOOPS)
        return self.rng.choice(kinds)(depth)

    def _block(self, depth: int) -> str:
        return "".join(self.statement(depth + 1) for _ in range(self.rng.randrange(1, 4)))

    def _assignment(self, depth: int) -> str:
        return self.expand(self.rng.choice(STATEMENTS), 4) + "\n"

    def _branch(self, depth: int) -> str:
        otherwise = f"else {{\n{self._block(depth)}}}\n" if self.rng.random() < 0.5 else ""
        return self.expand("if ({c}) {{\n", 3) + self._block(depth) + "}\n" + otherwise

    def _loop(self, depth: int) -> str:
        name, self.count = f"i{self.count}", self.count + 1
        turns = self.expand(self.rng.choice(("4u", "({u} & 7u)", "({u} % 11u)")), 2)
        self.loops.append(name)
        body = self._block(depth)
        leave = self.expand("if ({c}) ", 2) + self.rng.choice(("break;\n", "continue;\n"))
        self.loops.pop()
        body += leave * (self.rng.random() < 0.4)
        return f"for (unsigned {name} = 0; {name} < {turns}; ++{name}) {{\n{body}}}\n"

    def _switch(self, depth: int) -> str:
        cases = self.rng.randrange(3, 9)
        text = self.expand("switch ({u}", 2) + f" % {cases + 1}u) {{\n"
        for number in range(cases):
            ends = "break;\n" * (self.rng.random() < 0.8)
            text += f"case {number}: {{\n{self._block(depth + 1)}}} {ends}"
        return text + "default: u1 ^= 977u;\n}\n"

    def expand(self, text: str, depth: int) -> str:
        """A template with its fields replaced; expressions are ``depth`` deep at most."""
        return re.sub(r"\{(\w+)\}", lambda m: self._field(m[1], depth), text).replace(
            "{{", "{").replace("}}", "}")  # fmt: skip

    def _field(self, name: str, depth: int) -> str:
        if name == "call":
            return self.rng.choice(self.functions) if self.functions else "MULHI"
        if name in CHOICES:
            return self.rng.choice(CHOICES[name].split())
        if name == "u" and self.loops and self.rng.random() < 0.15:
            return self.rng.choice(self.loops)
        deeper = depth > 0 and self.rng.random() < 0.75
        return self.expand(self.rng.choice((GRAMMAR if deeper else LEAVES)[name]), depth - 1)
