"""``python -m tilewright``, and the script ``tilewright``, are the command. Ctrl-C while it is
still being imported ends the process at once, without a word.
"""

import os
import signal
import sys
from contextlib import suppress
from typing import Any


def _stop(*_: Any) -> None:
    os._exit(130)


_before = signal.getsignal(signal.SIGINT)
try:
    if _before is signal.default_int_handler:
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, _stop)
    from .cli import main
finally:
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, _before)

if __name__ == "__main__":
    sys.exit(main())
