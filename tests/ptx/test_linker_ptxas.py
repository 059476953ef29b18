"""ptxas takes the text of linked modules: each name stands before what uses it."""

from __future__ import annotations

import pytest

from corpus_cases.table import module
from ptxas import assemble, ptxas
from tilewright import ptx

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]


@pytest.mark.parametrize("files", [("linked", "parts"), ("parts", "linked", "pointers")], ids=str)
def test_ptxas_takes_what_is_linked(files):
    linked = ptx.link([module(file) for file in files])
    text = ptx.print_module(linked).replace(".version 9.0", ".version 8.6")
    assert ".extern .global" not in text and ".extern .const" not in text
    assemble(text, linked.target[0])
