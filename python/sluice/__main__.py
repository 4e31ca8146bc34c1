"""The program in this Python: `python -m sluice run p.toml`, for pipelines with plugins in Python."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress

from . import _native, _plugins


def main(arguments: list[str]) -> int:
    """Runs the program with these arguments, and returns its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # The program has a handler of its own, and what it does not handle ends it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    code, is_stuck = _native.run_program(["sluice", *arguments])
    if is_stuck or not _plugins.close():
        # A thread that is in code of others, such as a long sleep, would have to end first.
        _flush()
        os._exit(code)
    return code


def _flush() -> None:
    """Writes what plugins have printed, unless one of them is stuck while it does so."""

    def flush() -> None:
        for stream in filter(None, [sys.stdout, sys.stderr]):
            with suppress(OSError, ValueError):
                stream.flush()

    thread = threading.Thread(target=flush, daemon=True)
    thread.start()
    thread.join(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
