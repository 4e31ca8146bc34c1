"""The handler of SIGINT as the system has it, below the one that `signal` of Python shows."""

from __future__ import annotations

from ctypes import PyDLL, c_int, c_void_p, create_string_buffer, pythonapi
from signal import SIGINT

# More than any system has in its struct.
_LENGTH = 1024
_sigaction = PyDLL(None).sigaction
_sigaction.argtypes = [c_int, c_void_p, c_void_p]
_getsig = pythonapi.PyOS_getsig
_getsig.argtypes, _getsig.restype = [c_int], c_void_p

_python: int | None = None
_native = create_string_buffer(_LENGTH)


def handler() -> int | None:
    """The address of the handler."""
    address: int | None = _getsig(SIGINT)
    return address


def keep(before: int | None) -> None:
    """Called when the native part has registered its handler: `before` is the one until then.

    The native part sets it the first time, and never again; it calls that of Python itself. Each
    `signal.signal` sets that of Python alone, even if it is the same: notebooks do so in each cell.
    """
    global _python
    if _python is None:
        _python = before
        _sigaction(SIGINT, None, _native)
    elif before == _python:
        _sigaction(SIGINT, _native, None)
