"""The command, run as ``python -m tilewright`` or by the script ``tilewright``. Ctrl-C during its
imports ends the process immediately, without a traceback.
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
    from .cli import import_commands, main

    import_commands(sys.argv[1:])
finally:
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, _before)

if __name__ == "__main__":
    sys.exit(main())
