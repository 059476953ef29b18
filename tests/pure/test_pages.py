"""What a page shows without the virtual machine is what happens; ``tests/vm`` runs all of it."""

from __future__ import annotations

import pages


def test_layouts_are_as_shown() -> None:
    pages.check(pages.ROOT / "docs" / "layouts.md", machine=False)
