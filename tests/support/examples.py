"""How many examples hypothesis tries: ``make test-all`` asks for all, otherwise it is a third."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

ALL = os.environ.get("TILEWRIGHT_EXAMPLES") == "all"


def examples(count: int, **more: Any) -> settings:
    """Settings for a test that tries ``count`` examples in test-all, without a time limit for any
    of them: the laws are checked, not the speed of a shared machine.
    """
    return settings(max_examples=count if ALL else -(-count // 3), deadline=None, **more)
