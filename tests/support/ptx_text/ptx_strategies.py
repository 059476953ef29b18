"""Trees of any shape that PTX text can have, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from tilewright.ptx import tree

names = st.sampled_from(["a", "smem", "$str$17", "_Z1kPf", "L__BB0_1", "generic", "x_1"])
registers = st.builds(
    tree.Register, st.sampled_from(["%r1", "%rd20", "%tid.x", "%v.y", "%clock64"])
)
integers = st.integers(-(2**63), 2**64 - 1)
immediates = st.builds(tree.Imm, integers, st.booleans())
floats = st.one_of(
    st.builds(tree.FloatImm, st.integers(0, 2**32 - 1), st.just(32)),
    st.builds(tree.FloatImm, st.integers(0, 2**64 - 1), st.just(64)),
)
offsets = st.one_of(st.just(0), st.integers(-(2**31), 2**31))
plain_symbols = st.builds(tree.Symbol, names)
symbols = st.builds(tree.Symbol, names, offsets)
sinks = st.just(tree.Sink())
scalars = st.one_of(registers, immediates, floats, symbols, sinks)
vectors = st.builds(tree.Vector, st.lists(scalars, min_size=1, max_size=4).map(tuple))
coords = st.one_of(
    st.none(),
    st.lists(registers, min_size=1, max_size=5).map(tuple),
    st.tuples(plain_symbols, vectors),
)
addresses = st.one_of(
    st.builds(tree.MemoryOperand, st.one_of(registers, plain_symbols), offsets, coords),
    st.builds(tree.MemoryOperand, immediates),
)
wholes = st.builds(tree.Register, st.sampled_from(["%r1", "%v"]))
selected = st.builds(tree.Selected, wholes, st.sampled_from(["b0", "h10", "b7654"]))
ends = st.one_of(registers, sinks, plain_symbols)
operands = st.one_of(
    scalars,
    vectors,
    addresses,
    st.builds(tree.Not, registers),
    selected,
    st.builds(tree.Negated, st.one_of(wholes, selected)),
    st.builds(tree.Pair, ends, ends),
)
guards = st.one_of(st.none(), st.builds(tree.Guard, registers, st.booleans()))
opcodes = st.sampled_from(
    ["add.s32", "ret", "cp.async.bulk.tensor.2d.shared::cluster.global.tile", "mma.sync.aligned"]
)
parenthesised = st.builds(tree.Vector, st.lists(scalars, max_size=3).map(tuple))
calls = st.one_of(
    st.tuples(parenthesised, st.one_of(registers, plain_symbols), parenthesised),
    st.tuples(parenthesised, registers, parenthesised, plain_symbols),
)
instructions = st.one_of(
    st.builds(tree.Instruction, opcodes, st.lists(operands, max_size=4).map(tuple), guards),
    st.builds(tree.Instruction, st.sampled_from(["call", "call.uni"]), calls, guards),
)

types = st.sampled_from(["b8", "u32", "f32", "b64", "f16x2", "pred", "texref"])
lengths = st.sampled_from([1, 1, 2, 4])
aligns = st.one_of(st.none(), st.sampled_from([1, 4, 16, 128]))
dims = st.lists(st.integers(0, 4096), max_size=3).map(tuple)
values = st.recursive(
    st.one_of(
        immediates,
        floats,
        st.builds(tree.Symbol, names, offsets, st.booleans()),
        st.builds(tree.Masked, st.integers(0, 2**64 - 1), plain_symbols),
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)
initialisers = st.one_of(st.none(), st.lists(values, max_size=5).map(tuple))
pointers = st.sampled_from([(), (".ptr",), (".ptr", ".global", ".align", "16")])
linkages = st.sampled_from(["", "extern", "visible", "weak"])


@st.composite
def variables(draw: st.DrawFn, spaces: tuple[str, ...]) -> tree.Variable:
    init, shape, vector = draw(initialisers), draw(dims), draw(lengths)
    return tree.Variable(
        draw(st.sampled_from(spaces)), draw(types), draw(names), shape, draw(aligns), init,
        draw(linkages), vector, draw(st.sampled_from([(), (".attribute(.managed)",)])),
    )  # fmt: skip


parameters = st.builds(
    tree.Variable, st.just("param"), types, names, dims, aligns, vector=lengths, qualifiers=pointers
)
declarations = st.builds(
    tree.RegDecl,
    types,
    st.lists(st.sampled_from(["%r", "%px", "p"]), min_size=1, max_size=3).map(tuple),
    st.one_of(st.none(), st.integers(1, 10**6)),
    lengths,
)
small = st.integers(0, 10**6)
locs = st.builds(
    tree.Loc, small, small, small,
    st.sampled_from(["", *(f"function_name {n}, inlined_at 1 2 3" for n in ("$L__info0", "a+12"))]),
)  # fmt: skip
directives = st.sampled_from(
    [
        tree.Directive("pragma", ('"nounroll"',)),
        tree.Directive("branchtargets", ("L0", "L1"), "targets"),
        tree.Directive("callprototype", ("(.param .b32 _) _ (.param .align 8 .b8 _[16])",), "p_0"),
    ]
)
simple = st.one_of(
    instructions,
    st.builds(tree.Label, names),
    st.builds(tree.RegDecl, types, st.just(("%f",)), st.integers(1, 99)),
    variables(("shared", "local", "param", "global")),
    locs,
    directives,
)
statements = st.recursive(
    simple,
    lambda inner: st.builds(tree.Block, st.lists(inner, max_size=4).map(tuple)),
    max_leaves=12,
)
heads = st.lists(
    st.sampled_from(
        [
            tree.Directive("maxntid", ("128", "1", "1")),
            tree.Directive("explicitcluster"),
            tree.Directive("noreturn"),
            tree.Directive("pragma", ('"used_bytes_mask 3"',)),
        ]
    ),
    max_size=3,
).map(tuple)
bodies = st.one_of(st.none(), st.lists(statements, max_size=6).map(tuple))
entries = st.builds(
    tree.Function, names, st.just("entry"), st.lists(parameters, max_size=3).map(tuple),
    directives=heads, body=bodies, linkage=linkages,
)  # fmt: skip
functions = st.builds(
    tree.Function, names, st.just("func"), st.lists(parameters, max_size=3).map(tuple),
    st.lists(parameters, max_size=1).map(tuple), heads, bodies, linkages,
)  # fmt: skip
items = st.one_of(
    entries,
    functions,
    variables(("global", "const", "shared")),
    st.builds(tree.File, small, names, st.lists(small, max_size=2).map(tuple)),
    st.builds(tree.Section, st.just(".debug_str"), st.just("\nL0:\n.b8 1,2 // it's }\n\t")),
    st.just(tree.Directive("alias", ("f", "g"))),
)
modules = st.builds(
    tree.Module,
    st.tuples(st.integers(1, 9), st.integers(0, 9)),
    st.sampled_from([("sm_90a",), ("sm_80", "debug")]),
    st.sampled_from([32, 64]),
    st.lists(items, max_size=4).map(tuple),
)
