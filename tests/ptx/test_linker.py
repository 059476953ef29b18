"""Linking: names that modules share, names that they keep to themselves, what does not fit."""

from __future__ import annotations

import pytest

from tilewright import ptx
from tilewright.errors import PtxCheckError, PtxError

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
USES = """.extern .global .b32 shared_one;
.extern .func (.param .b32 r) f(.param .b32 a);
.global .b32 own = 5;
.func helper() { ret; }
.visible .entry k() { .reg .b32 %r<3>; .reg .b64 %rd;
  ld.global.b32 %r1, [shared_one]; ld.global.b32 %r1, [own+0]; call helper; call (%r2), f, (%r1);
  { mov.u64 %rd, own; .shared .b32 own[4]; st.shared.b32 [own], %r1; mov.u64 %rd, own; }
}"""
GIVES = """.visible .global .b32 shared_one = 9;
.global .b32 own[2] = {1, 2};
.global .u64 places[2] = {own, helper};
.func helper() { ret; }
.visible .func (.param .b32 r) f(.param .b32 a) {
  .reg .b32 %own; .reg .b64 %rd; .reg .pred helper;
  list: .calltargets helper; mov.u64 %rd, helper2; call helper2;
  ld.global.b32 %own, [own+4]; ld.global.b32 %own, [shared_one]; st.param.b32 [r], %own; }
""".replace(".visible .func", ".func helper2() { call helper; }\n.visible .func")


def module(text: str, path: str = "m.ptx", head: str = HEAD) -> ptx.Module:
    return ptx.parse(head + text, path)


def linked(*texts: str) -> ptx.Module:
    return ptx.link([module(t, f"{chr(97 + i)}.ptx") for i, t in enumerate(texts)])


@pytest.mark.parametrize("texts", [(USES, GIVES), (GIVES, USES)])
def test_a_name_resolves_to_another_modules_definition(texts):
    m = linked(*texts)
    assert not ptx.problems(m)
    assert ptx.parse(ptx.print_module(m)) == m
    names = [item.name for item in m.items if getattr(item, "body", item) is not None]
    assert len(set(names)) == len(names) == 9
    assert sum(getattr(i, "linkage", "") == "extern" for i in m.items) == 0


def test_private_names_of_two_modules_are_distinct():
    m = linked(USES, GIVES)
    text = ptx.print_module(m)
    kernel, places = m.functions["k"], next(i for i in m.items if i.name == "places")
    assert [o.name for o in places.init] == ["own$1", "helper$1"]
    assert "[own$1+4]" in text and "[own+0]" in text.replace("[own]", "[own+0]")
    assert "$" not in ptx.print_module(ptx.Module(items=(kernel,)))
    assert {f for f in m.functions if "helper" in f} == {"helper", "helper$1", "helper2"}


def test_a_name_that_a_scope_declares_is_its_own_from_there_on():
    m = linked(GIVES, USES)
    block = next(s for s in m.functions["k"].body if isinstance(s, ptx.tree.Block))
    first, _, _, last = block.body
    assert (first.operands[1].name, last.operands[1].name) == ("own$1", "own")


def test_each_name_is_declared_before_its_use():
    uses = """.extern .func f(); .extern .global .u64 b; .global .u64 a[2] = {b, f};
      .func g(); .visible .entry k() { call g; } .func g() { }"""
    gives = """.global .u64 c = d; .global .u64 d = c; .visible .global .u64 b = c;
      .visible .func f() { call f; }"""
    m = linked(uses, gives)
    order = [(i.name, getattr(i, "body", ()) is not None) for i in m.items]
    declared = [("g", False), ("f", False)]
    variables = [(name, True) for name in "dcba"]
    assert order == [*declared, *variables, ("k", True), ("g", True), ("f", True)]


def test_locations_are_those_of_each_text():
    m = linked(USES, GIVES)
    f, k = m.functions["f"], m.functions["k"]
    assert (str(m.location(k.pos)), str(m.location(f.pos))) == ("a.ptx:8:1", "b.ptx:9:1")
    assert m.location(f.pos).text.startswith(".visible .func (.param .b32 r) f")


def test_a_linked_module_can_be_linked_again():
    m = ptx.link([module(""), linked(USES, GIVES), module("", "c.ptx")])
    assert ptx.link([module(""), module(USES), module(GIVES), module("")]) == m
    places = {str(m.location(f.pos)) for f in m.functions.values()}
    assert {"a.ptx:8:1", "b.ptx:9:1"} <= places


def test_one_module_is_itself_and_built_ones_are_linked_too():
    m = module(GIVES)
    assert ptx.link([m]) is m
    built = ptx.Module(m.version, m.target, 64, m.items)
    assert "k" in ptx.link([built, module(USES)]).functions


WEAK = ".weak .func (.param .b32 r) g() { st.param.b32 [r], %d; }"


def test_weak_definitions_give_way():
    def remaining(*texts: str) -> str:
        return ptx.print_module(linked(*texts))

    weak, other = WEAK.replace("%d", "1"), WEAK.replace("%d", "2")
    strong = WEAK.replace("weak", "visible").replace("%d", "3")
    assert "[r], 1" in remaining(weak, other) and "[r], 2" not in remaining(weak, other)
    for order in ((weak, strong, other), (strong, weak), (weak, strong)):
        assert "[r], 3" in remaining(*order) and remaining(*order).count("[r]") == 1


def test_common_variables_are_one_as_large_as_the_largest():
    texts = [f".common .global .align 4 .b8 buffer[{n}];" for n in (8, 32, 16)]
    (found,) = linked(*texts).items
    assert found.dims == (32,)
    (found,) = linked(*texts, ".visible .global .align 4 .b8 buffer[32] = {1};").items
    assert found.linkage == "visible"


def test_dynamic_shared_memory_is_one():
    both = linked(".extern .shared .align 4 .b8 s[];", ".extern .shared .align 16 .b8 s[];")
    assert [(i.name, i.align) for i in both.items] == [("s", 16)]


@pytest.mark.parametrize(
    ("other", "message", "place"),
    [
        ("", "shared_one is extern, but no module defines it", "a.ptx:4:1"),
        (GIVES + ".visible .entry k() { }", "k is defined twice, also at a.ptx:8:1", "b.ptx:13:1"),
        (
            GIVES.replace("shared_one = 9", "shared_one[2] = {9}"),
            r"a different \.global variable",
            "a.ptx:4:1",
        ),
        (
            GIVES.replace("f(.param .b32 a)", "f(.param .b64 a)"),
            "f is declared as a different function",
            "a.ptx:5",
        ),
        (
            GIVES.replace(".global .b32 shared", ".const .b32 shared"),
            r"a different \.global",
            "a.ptx:4",
        ),
    ],
)
def test_wrong_shapes_and_types_are_rejected(other, message, place):
    with pytest.raises(PtxCheckError, match=message) as caught:
        linked(USES, other)
    assert str(caught.value.location).startswith(place)


def test_addresses_have_one_size():
    other = module("", head=HEAD.replace("64", "32"))
    with pytest.raises(PtxError, match=r"same \.address_size, got 32 and 64"):
        ptx.link([module(""), other])
    with pytest.raises(PtxError, match="at least one module"):
        ptx.link([])


def test_the_newest_version_and_target_hold():
    new = module("", head=".version 8.6\n.target sm_90a\n.address_size 64\n")
    m = ptx.link([module(""), new])
    assert (m.version, m.target) == ((8, 6), ("sm_90a",))
