"""The printer: parse(print(m)) == m for every tree, and what its text looks like."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given

from examples import examples
from ptx_text import ptx_strategies as some
from ptx_text.ptx_wild import FILES, WILD
from tilewright.errors import PtxError
from tilewright.ptx import (
    check,
    needs,
    parse,
    print_module,
    print_operand,
    print_statement,
    problems,
)
from tilewright.ptx.tree import (
    Function,
    Imm,
    Instruction,
    Label,
    Module,
    RegDecl,
    Register,
    Variable,
)

SAMPLES = {"wild": WILD, **FILES}


@examples(200, suppress_health_check=list(HealthCheck))
@given(some.modules)
def test_every_tree_round_trips(module: Module) -> None:
    assert parse(print_module(module)) == module


@pytest.mark.parametrize("name", SAMPLES)
def test_corpus_text_round_trips(name: str) -> None:
    module = parse(SAMPLES[name])
    text = print_module(module)
    assert parse(text) == module
    assert print_module(parse(text)) == text


def test_the_text_looks_like_nvcc() -> None:
    add = Instruction("add.s32", (Register("%r1"), Register("%r2"), Imm(5)))
    body = (RegDecl("b32", ("%r",), 3), Label("$L"), add, Instruction("ret"))
    kernel = Function("k", "entry", (Variable("param", "u64", "k_param_0"),), body=body)
    assert print_module(Module((8, 0), ("sm_90a",), items=(kernel,))) == (
        ".version 8.0\n.target sm_90a\n.address_size 64\n\n"
        ".visible .entry k(\n\t.param .u64 k_param_0\n)\n{\n"
        "\t.reg .b32 \t%r<3>;\n$L:\n\tadd.s32 \t%r1, %r2, 5;\n\tret;\n}\n\n"
    )
    assert print_statement(add) == "add.s32 \t%r1, %r2, 5;"


@pytest.mark.parametrize("use", [check, problems, needs, print_module])
@pytest.mark.parametrize("given", ["ret;", None, 5, Label("L")], ids=lambda x: type(x).__name__)
def test_anything_but_a_module_is_rejected(use, given) -> None:
    with pytest.raises(PtxError, match=f"expected a ptx.Module, got {type(given).__name__}\n"):
        use(given)


def test_anything_but_a_node_is_rejected() -> None:
    with pytest.raises(PtxError, match=r"expected a node of ptx\.tree .*got int"):
        print_module(Module(items=(5,)))
    with pytest.raises(PtxError, match=r"expected a node of ptx\.tree .*got str"):
        print_statement("ret;")
    with pytest.raises(PtxError, match=r"expected a node of ptx\.tree .*got Function"):
        print_operand(Function("f"))
