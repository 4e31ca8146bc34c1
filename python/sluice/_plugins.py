"""Sources, stages and sinks in Python: their decorators, and how the native part finds them."""

from __future__ import annotations

import atexit
import json
import os
import sys

# Below 3.13, the thread that imports this first counts as the main one, for which Python waits at
# its end: it must not be one of a run.
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from io import open_code
from itertools import count
from types import FrameType, ModuleType
from typing import Any, TypeVar
from weakref import finalize

from . import _native

Target = TypeVar("Target", bound=Callable[..., Any])

_KIND = "__sluice_kind__"


def source(target: Target) -> Target:
    """Makes a function a source: a pipeline reads the batch, or all batches, that it returns.

    A batch is any Arrow data with the columns `timestamp`, `channel` and `payload`; `source`,
    `sequence`, `encoding` and `attributes` may be there. Times that are numbers are nanoseconds
    since 1970, without fractions.

    >>> import sluice
    >>> @sluice.source
    ... def wheels(rate: float = 10):
    ...     yield polars.DataFrame(...)
    """
    return _marked(target, "source")


def stage(target: Target) -> Target:
    """Makes a function a stage, or a class whose instances are called.

    It gets a batch and returns Arrow data, an iterable of it, or `None` if no event is left. Events
    are known by the column `number` when they return: those that do not are counted as filtered,
    those without a number as added. Columns that are left out, of `source`, `sequence`, `encoding`
    and `attributes`, are those of the event with this number; a new event has no source and the
    sequence number 0. Batches come in any order and from several threads, so a stage has no state.

    >>> import sluice
    >>> @sluice.stage
    ... def keep(batch, prefix: str = "CAM_"):
    ...     events = polars.DataFrame(batch)
    ...     return events.filter(events["channel"].cast(str).str.starts_with(prefix))
    """
    return _marked(target, "stage")


def sink(target: Target) -> Target:
    """Makes a function a sink, or a class with a method `write` and perhaps `finish`.

    `write` gets every batch, in order; `finish` is called when all have been written. Both return
    `None`: what yields or is `async` is refused.

    >>> import sluice
    >>> @sluice.sink
    ... class Count:
    ...     def write(self, batch):
    ...         print(len(batch))
    """
    return _marked(target, "sink")


def _marked(target: Target, kind: str) -> Target:
    if not callable(target):
        raise TypeError(f"expected a function or a class, found {type(target).__name__}")
    setattr(target, _KIND, kind)
    return target


class Loaded:
    """A plugin, and the module of its file: `sys.modules` has it as long as this lives."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.target: Any = None
        # Pickles, dataclasses and type hints look for the module of a class there.
        sys.modules[module.__name__] = module
        finalize(self, sys.modules.pop, module.__name__, None).atexit = False


class _Sink:
    """A function, or an object with `write`, as the native part calls it."""

    def __init__(self, target: Any) -> None:
        self.write = getattr(target, "write", target)
        self.finish = getattr(target, "finish", lambda: None)


# Each run of a file makes a module of its own: runs, nodes and threads share nothing by chance.
_numbers = count(1)


def load(file: str, name: str, kind: str, options: str) -> Loaded:
    """The object of this name in a file: a source or stage to call, or a sink. Runs the file."""
    from importlib.machinery import SourceFileLoader
    from importlib.util import module_from_spec, spec_from_file_location

    path, module_name = str(file), f"sluice_plugins_{next(_numbers)}"
    loader = SourceFileLoader(module_name, path)
    spec = spec_from_file_location(module_name, path, loader=loader)
    assert spec is not None
    loaded = Loaded(module_from_spec(spec))
    try:
        # The loader itself would leave compiled files, and run those of a file that has just
        # changed.
        with open_code(path) as text:
            code = compile(text.read(), path, "exec", dont_inherit=True)
        names = vars(loaded.module)
        exec(code, names)
        loaded.target = _made(names, name, kind, json.loads(options))
        return loaded
    finally:
        # An exception that the module has caught and keeps has this frame.
        del loaded


def _made(names: dict[str, Any], name: str, kind: str, arguments: dict[str, Any]) -> Any:
    """The object of this name, with its arguments."""
    target = names.get(name)
    if target is None:
        marked = sorted(key for key, value in names.items() if hasattr(value, _KIND))
        raise LookupError(f"there is no `{name}`; it has: {', '.join(marked) or 'no plugins'}")
    found = getattr(target, _KIND, None)
    if found != kind:
        what = f"is a {found}" if found else "has no decorator"
        raise LookupError(f"`{name}` {what}; expected `@sluice.{kind}` above it")
    if kind == "source":
        return partial(target, **arguments)
    made = target(**arguments) if isinstance(target, type) else partial(target, **arguments)
    return _Sink(made) if kind == "sink" else made


_PROCESS = os.getpid()
# How long a plugin may take for its last batch, and then to end.
_PATIENCE = timedelta(seconds=1)


class _Parking(BaseException):
    """Ends a thread that catches everything: it stays where this is made, and never runs again.

    Modules of Python itself may hold locks there that Python needs at its end, such as those of
    `logging`: the thread leaves them first.
    """

    def __init__(self) -> None:
        here = sys._getframe(1)
        safe: FrameType | None = here
        frame: FrameType | None = here
        while frame is not None:
            module = str(frame.f_globals.get("__name__")).partition(".")[0]
            if module in sys.stdlib_module_names:
                safe = frame.f_back
            frame = frame.f_back
        if safe is here:
            _park()
        elif safe is not None:
            safe.f_trace = _park
            sys.settrace(lambda *_: None)


def _park(*_: object) -> None:
    _native.park_thread(threading.get_ident())


@atexit.register
def close() -> bool:
    """Ends plugins before Python ends: threads in its code would not survive that.

    Returns whether they have ended. Those that have not are in code of others.
    """
    if os.getpid() != _PROCESS:
        # A fork has none of the threads.
        return True
    threads = _native.close_plugins(_PATIENCE)
    for exception in (SystemExit, _Parking):
        if threads:
            end_threads(threads, exception)
            threads = _native.close_plugins(_PATIENCE)
    return not threads


def end_threads(
    threads: list[int], exception: type[BaseException] = SystemExit
) -> None:
    """Raises an exception in threads, by their numbers, where they run code of Python."""
    from ctypes import c_ulong, py_object, pythonapi

    for thread in threads:
        pythonapi.PyThreadState_SetAsyncExc(c_ulong(thread), py_object(exception))
