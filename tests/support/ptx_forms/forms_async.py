"""Asynchronous instructions and what goes with them, legal and not: what a judge of forms is asked.

mbarriers, bulk and tensor copies, fences, barriers, clusters, hints to the caches, and loads and
stores of a cluster's shared memory. ``POSITIONS`` are their modifiers, ``operands`` what a form
would take. Registers are named by their declared type, as in ``forms.DECLARATIONS``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from ptx_forms.opcode_mutations import Grammar, moved
from ptx_forms.verdicts import Family

NUMBERS = "u8 s8 b8 u16 s16 b16 u32 s32 b32 u64 s64 b64 b128 f32 f64".split()
FLOATS = "f16 f16x2 bf16 bf16x2 e4m3 e4m3x2 e4m3x4 e5m2 e5m2x2 e5m2x4".split()
ALL = [*NUMBERS, *FLOATS, "b1024"]
SPACES = "global shared shared::cta shared::cluster local param param::entry const".split()
SCOPES = "cta cluster gpu sys gl".split()
ORDERS = "weak relaxed acquire release acq_rel sc volatile".split()
OPERATIONS = "add min max inc dec and or xor exch cas popc".split()
DONE = "mbarrier::complete_tx::bytes bulk_group".split()
HINTS = ["L2::cache_hint"]
PRIORITIES = [
    f"{cache}::evict_{word}" for cache in ("L1", "L2")
    for word in "normal unchanged first last".split()
]  # fmt: skip
MODES = ("tile tile::gather4 tile::scatter4 im2col im2col::w im2col::w::128 im2col_no_offs").split()
STRAY = "aligned sync noftz ftz read".split()
VECTORS = "v2 v4 v8".split()
RESTRICTIONS = ["sync_restrict::shared::cta", "sync_restrict::shared::cluster"]
PROXIES = "alias async tensormap tensormap::generic async::generic".split()
FIELDS = (
    "global_address rank box_dim global_dim global_stride element_stride elemtype "
    "interleave_layout swizzle_mode swizzle_atomicity fill_mode"
).split()
ACCESS = [
    ["async"], ["mmio"], ORDERS, SCOPES, SPACES, ["nc"], "ca cg cs lu cv wb wt".split(),
    PRIORITIES, HINTS, DONE, OPERATIONS, ["noftz"], VECTORS, ALL, STRAY,
]  # fmt: skip
BARRIER = [
    ["cta", "cluster", "warp"], "sync arrive red wait".split(), "release relaxed acquire".split(),
    OPERATIONS, ["aligned"], "u32 s32 b32 pred".split(), STRAY,
]  # fmt: skip

#: The modifiers of each mnemonic: a vocabulary for each position, in the manual's order.
POSITIONS: dict[str, list[list[str]]] = {
    "mbarrier": [
        "init inval expect_tx complete_tx arrive arrive_drop test_wait try_wait "
        "pending_count".split(),
        "expect_tx noComplete parity".split(), ORDERS, SCOPES, SPACES, ["b64", "b32", "u64"], STRAY,
    ],
    "cp": [
        ["reduce"], ["async"], ["bulk", "mbarrier"], ["prefetch"], ["tensor"],
        "commit_group wait_group wait_all arrive".split(), ["noinc", "read"], ["ca", "cg"],
        "1d 2d 3d 4d 5d".split(), ["L2", "L1"], SPACES, SPACES, MODES, DONE, ["multicast::cluster"],
        ["cta_group::1", "cta_group::2"], HINTS, ["cp_mask"], OPERATIONS, ["noftz"],
        ["L2::64B", "L2::128B", "L2::256B"], ALL, STRAY,
    ],
    "tensormap": [
        ["replace", "cp_fenceproxy"], ["tile", "im2col"], FIELDS, SPACES, SPACES, PROXIES[3:],
        ORDERS, SCOPES, ["sync"], ["aligned"], ["b1024", "b32", "b64", "u32", "u64"], STRAY,
    ],
    "fence": [["proxy", "mbarrier_init"], PROXIES, ORDERS, RESTRICTIONS, SPACES, SCOPES, STRAY],
    "membar": [["proxy"], PROXIES, ORDERS, [*SCOPES, "gl"], STRAY],
    "bar": BARRIER, "barrier": BARRIER,
    "mapa": [SPACES, ALL, STRAY], "getctarank": [SPACES, ALL, STRAY],
    "isspacep": [SPACES, STRAY], "cvta": [["to"], SPACES, ALL, STRAY],
    "ld": ACCESS, "st": ACCESS, "atom": ACCESS, "red": ACCESS,
    "multimem": [["ld_reduce", "st", "red"], *ACCESS[2:5], OPERATIONS, ["acc::f32", "acc::f16"],
                 ["noftz"], VECTORS, ALL, STRAY],
    "setmaxnreg": [["inc", "dec"], ["sync"], ["aligned"], ALL, STRAY],
    "griddepcontrol": [["launch_dependents", "wait"], STRAY],
    "elect": [["sync"], ["aligned"], ["b32"]],
    "activemask": [ALL, STRAY], "nanosleep": [ALL, STRAY],
    "prefetch": [SPACES, ["L1", "L2", "tensormap"], PRIORITIES, STRAY],
    "prefetchu": [SPACES, ["L1", "L2", "tensormap"], PRIORITIES, STRAY],
    "applypriority": [SPACES, PRIORITIES, STRAY], "discard": [SPACES, ["L1", "L2"], STRAY],
    "createpolicy": [["fractional", "range", "cvt"], SPACES, PRIORITIES, PRIORITIES, ["L2"],
                     ["b64", "b32", "u64"], STRAY],
}  # fmt: skip
GRAMMAR = Grammar(POSITIONS, ALL)
SHARES = "mbarrier cp cp cp tensormap fence bar barrier ld st atom red multimem cvta".split()
RANDOM = 30_000
#: Of these have each kind of form its neighbours asked, not each form.
MANY = ("ld", "st", "atom", "red", "multimem")

#: Special registers of clusters, as lines.
REGISTERS = [
    *(f"mov.u32 %r1, %{name}.{axis};" for name, axis in product(
        "clusterid nclusterid cluster_ctaid cluster_nctaid tid".split(), "xyz")),
    *(f"mov.u32 %r1, %{name};" for name in
      "cluster_ctarank cluster_nctarank is_explicit_cluster clusterid aggr_smem_size".split()),
    "mov.pred %p1, %is_explicit_cluster;",
]  # fmt: skip


@lru_cache(maxsize=1)
def cases(legal: tuple[str, ...]) -> tuple[str, ...]:
    """Every line to judge, once: those of legal opcodes first."""
    kinds = GRAMMAR.kinds(legal)
    few = [o for o in legal if o.split(".")[0] not in MANY]
    found = dict.fromkeys(legal)
    for opcode in dict.fromkeys((*few, *kinds)):
        found.update(dict.fromkeys(GRAMMAR.neighbours(opcode)))
    for opcode in kinds:
        found.update(dict.fromkeys(moved(opcode)))
    found.update(dict.fromkeys(GRAMMAR.mixed(legal, RANDOM, SHARES)))
    return (*(line for opcode in found for line in lines(opcode)), *REGISTERS)


# --- operands ---------------------------------------------------------------------------------

_LETTER = {"8": "%c", "16": "%h", "32": "%r", "64": "%l", "128": "%l"}
_PACKED = {"f16x2": "%r", "bf16x2": "%r", "e4m3": "%c", "e5m2": "%c", "e4m3x2": "%h",
           "e5m2x2": "%h", "e4m3x4": "%r", "e5m2x4": "%r", "f32": "%f", "f64": "%d"}  # fmt: skip


def lines(opcode: str) -> Iterator[str]:
    """The opcode with each list of operands that it may take; a guess where it is odd."""
    words = opcode.split(".")
    for given in operands(words[0], words[1:]):
        yield f"{opcode} {given};".replace(" ;", ";")


def operands(mnemonic: str, words: list[str]) -> list[str]:
    if mnemonic in _SIMPLE:
        return _SIMPLE[mnemonic]
    return _OPERANDS[mnemonic](words)


def register(type_: str, number: int) -> str:
    """A register of a type's own kind, or one that may hold it."""
    bits = re.sub(r"\D", "", type_.partition("x")[0])
    return f"{_PACKED.get(type_) or _LETTER.get(bits, '%r')}{number}"


def _type(words: list[str]) -> str:
    return next((w for w in reversed(words) if w in ALL), "u32")


def _data(words: list[str], number: int) -> str:
    """A register, or as many as the vector has."""
    length = next((int(w[1]) for w in words if w in VECTORS), 0)
    names = [register(_type(words), number + i) for i in range(length or 1)]
    return f"{{{', '.join(names)}}}" if length else names[0]


def _mbarrier(words: list[str]) -> list[str]:
    verb = next(iter(words), "")
    if verb in ("init", "expect_tx", "complete_tx"):
        return ["[%l1], %r1"]
    if verb == "inval":
        return ["[%l1]"]
    if verb == "pending_count":
        return ["%r1, %l1"]
    if verb in ("test_wait", "try_wait"):
        phase = "%p1, [%l1], " + ("%r2" if "parity" in words else "%l2")
        return [phase] + [f"{phase}, %r3"] * (verb == "try_wait")
    to = "_" if "shared::cluster" in words else "%l2"
    one = [f"{to}, [%l1]"] if "expect_tx" not in words and "noComplete" not in words else []
    return [*one, f"{to}, [%l1], %r1"]


def _cp(words: list[str]) -> list[str]:
    if "mbarrier" in words:
        return ["[%l1]"]
    if {"commit_group", "wait_all"} & {*words}:
        return [""]
    if "wait_group" in words:
        return ["0"]
    hint = ", %l4" * ("L2::cache_hint" in words)
    if "bulk" not in words:
        base = "[%l1], [%l2], 16"
        return [f"{base}{more}{hint}" for more in ("", ", %r3", ", %p1")]
    if "tensor" in words:
        return [_tensor(words) + hint]
    if "prefetch" in words:
        return [f"[%l1], %r1{hint}"]
    more = ", [%l3]" * (DONE[0] in words) + ", %h1" * ("multicast::cluster" in words)
    return [f"[%l1], [%l2], %r1{more}{hint}" + ", %h2" * ("cp_mask" in words)]


def _tensor(words: list[str]) -> str:
    dims = next((int(w[0]) for w in words if w in POSITIONS["cp"][8]), 2)
    mode = next((w for w in words if w in MODES), "tile")
    count = 5 if mode.endswith("4") else dims
    where = f"[%l2, {{{', '.join(f'%r{i}' for i in range(1, count + 1))}}}]"
    halves = {"im2col": max(1, dims - 2), "im2col::w": 2, "im2col::w::128": 2}.get(mode, 0)
    offsets = f", {{{', '.join(f'%h{i}' for i in range(1, halves + 1))}}}" * bool(halves)
    if "prefetch" in words:
        return where + offsets
    if DONE[0] in words:
        return f"[%l1], {where}, [%l3]{offsets}" + ", %h4" * ("multicast::cluster" in words)
    return f"{where}, [%l1]"


def _tensormap(words: list[str]) -> list[str]:
    if "cp_fenceproxy" in words:
        return ["[%l1], [%l2], 128"]
    value = "%l2" if {"b64", "u64"} & {*words} else "%r2"
    if {*FIELDS[2:6]} & {*words}:
        return [f"[%l1], 1, {value}"]
    return [f"[%l1], {'1' if {*FIELDS[6:]} & {*words} else value}"]


def _fence(words: list[str]) -> list[str]:
    return ["[%l1], 128" if "tensormap::generic" in words and "acquire" in words else ""]


def _barrier(words: list[str]) -> list[str]:
    if "cluster" in words:
        return [""]
    if "warp" in words:
        return ["-1"]
    if "red" in words:
        to = "%p2" if "pred" in words else "%r2"
        return [f"{to}, 0, %p1", f"{to}, 0, 64, %p1"]
    return ["0, 64"] if "arrive" in words else ["0", "0, 64"]


def _mapa(words: list[str]) -> list[str]:
    return [f"{register(_type(words), 1)}, {register(_type(words), 2)}, %r3"]


def _getctarank(words: list[str]) -> list[str]:
    return [f"%r1, {register(_type(words), 2)}"]


def _cvta(words: list[str]) -> list[str]:
    return [f"{register(_type(words), 1)}, {register(_type(words), 2)}"]


def _access(words: list[str], stores: bool, kind: str) -> list[str]:
    address, data = "[%l1]", _data(words, 2)
    more = ", [%l3]" * (DONE[0] in words)
    hint = ", %l4" * ("L2::cache_hint" in words)
    if kind == "atom":
        third = f", {register(_type(words), 3)}" * ("cas" in words)
        return [f"{register(_type(words), 1)}, {address}, {data}{third}{hint}"]
    return [f"{address}, {data}{more}{hint}" if stores else f"{data}, {address}{hint}"]


def _multimem(words: list[str]) -> list[str]:
    return _access(words, "ld_reduce" not in words, "")


def _createpolicy(words: list[str]) -> list[str]:
    if "range" in words:
        return ["%l1, [%l2], %r1, %r2"]
    return ["%l1, %l2"] if "cvt" in words else ["%l1", "%l1, 0.5"]


_SIMPLE = {
    "isspacep": ["%p1, %l1"], "setmaxnreg": ["24"], "griddepcontrol": [""],
    "elect": ["%r1|%p1, -1"], "activemask": ["%r1"], "nanosleep": ["%r1"],
    "prefetch": ["[%l1]"], "prefetchu": ["[%l1]"], "applypriority": ["[%l1], 128"],
    "discard": ["[%l1], 128"], "membar": [""],
}  # fmt: skip
_OPERANDS = {
    "mbarrier": _mbarrier, "cp": _cp, "tensormap": _tensormap, "fence": _fence, "bar": _barrier,
    "barrier": _barrier, "mapa": _mapa, "getctarank": _getctarank, "cvta": _cvta,
    "ld": lambda w: _access(w, False, "ld"), "st": lambda w: _access(w, True, "st"),
    "atom": lambda w: _access(w, True, "atom"), "red": lambda w: _access(w, True, "red"),
    "multimem": _multimem, "createpolicy": _createpolicy,
}  # fmt: skip


def others(given: str) -> Iterator[str]:
    """Operands of other kinds or another number, where a guess may have been wrong."""
    parts = re.findall(r"(?:[^,{\[]|\{[^}]*\}|\[[^\]]*\])+", given)
    yield ", ".join(parts[:-1])
    for more in ("%r5", "%l5", "%h5", "[%l5]", "{%h5, %h6}"):
        yield ", ".join([*parts, more])
    for letter in "hrlfd":
        yield re.sub(r"%[hrlfdc](\d)", rf"%{letter}\1", given)


ASYNC = Family(
    "forms_async.npz", tuple("sm_70 sm_80 sm_90 sm_90a sm_100a sm_120a".split()), "9.0",
    cases, lambda case: case,
)  # fmt: skip
