"""Keeps the native part's handler of SIGINT, beside those of Python and of other libraries."""

from __future__ import annotations

from ctypes import Array, PyDLL, c_char, c_int, c_void_p, cast, create_string_buffer, pythonapi
from signal import SIGINT

# More than any system has in its struct.
_LENGTH = 1024
_sigaction, _dladdr = PyDLL(None).sigaction, PyDLL(None).dladdr
_sigaction.argtypes = [c_int, c_void_p, c_void_p]
_dladdr.argtypes = [c_void_p, c_void_p]
_getsig = pythonapi.PyOS_getsig
_getsig.argtypes, _getsig.restype = [c_int], c_void_p

_native: Array[c_char] | None = None


def keep() -> None:
    """Called when the native part has registered a flag.

    The first flag sets its handler, which calls the one before it; further flags do not. Each
    `signal.signal` sets that of Python alone, even if it is the same: notebooks do so in each cell.
    A handler of another library stays, as ours might not call it.
    """
    global _native
    if _library(_getsig(SIGINT)) == _PYTHON:
        if _native is not None:
            _sigaction(SIGINT, _native, None)
    elif _native is None:
        _native = create_string_buffer(_LENGTH)
        _sigaction(SIGINT, None, _native)


def _library(address: int | None) -> int | None:
    """Where the library or program begins that this address lies in."""
    # A `Dl_info`: a name, this address, and a symbol with its own.
    info = (c_void_p * 4)()
    return info[1] if _dladdr(address, info) else None


_PYTHON = _library(cast(_getsig, c_void_p).value)
