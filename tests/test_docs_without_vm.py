"""What a page shows without the virtual machine is what happens; ``test_docs`` runs all of it."""

from __future__ import annotations

import pages
from tilewright.ptx.isa import ROWS
from tilewright.ptx.isa.nearest_opcode import UNSUPPORTED_MNEMONICS


def test_layouts_are_as_shown() -> None:
    pages.check(pages.ROOT / "docs" / "layouts.md", machine=False)


def test_the_limits_say_which_matrix_instructions_are_missing() -> None:
    page = (pages.ROOT / "docs" / "limits.md").read_text()
    assert "tcgen05" in UNSUPPORTED_MNEMONICS and not any(
        name.startswith("tcgen05") for name in ROWS
    )
    assert "matrix instructions but those of tensor memory (`tcgen05`)" in page
