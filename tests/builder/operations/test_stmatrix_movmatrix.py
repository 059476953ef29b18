"""``k.stmatrix`` and ``k.movmatrix``: exact text, and what they refuse."""

from __future__ import annotations

import pytest

from tilewright.builder import trace
from tilewright.errors import KernelError
from tracing import lines


def test_fragments_are_transposed_and_stored():
    def body(k):
        tile = k.shared("f16", 256, align=16)
        a, b = k.ldmatrix(tile + k.laneid * 8, 2)
        k.stmatrix(tile, [k.movmatrix(b), a], trans=True)
        k.stmatrix(tile + 8, (a,))

    assert lines(body)[-4:] == [
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r5, %r6}, [%r4]",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r7, %r6",
        "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [shared_0], {%r7, %r5}",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [shared_0+16], {%r5}",
    ]


def test_three_matrices_are_an_error():
    def body(k):
        tile = k.shared("f16", 256, align=16)
        a, b = k.ldmatrix(tile, 2)
        k.stmatrix(tile, (a, b, a))

    with pytest.raises(KernelError, match="1, 2 or 4 matrices, got 3"):
        trace(body)
