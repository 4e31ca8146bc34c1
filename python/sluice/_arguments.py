"""Values of Python as arguments of the program. Runs nothing."""

from __future__ import annotations

import glob
import json
import os.path
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from os import PathLike, fspath
from typing import Any

from ._errors import ConfigError
from ._options import (
    LogOptions,
    OpenOptions,
    OutputOptions,
    Path,
    Paths,
    RunOptions,
    Strings,
    TimeOptions,
)


def paths(given: Paths) -> list[str]:
    """Paths, of which at least one is needed."""
    found = _decoded(given)
    if not found:
        raise ConfigError("expected at least one path, found none")
    if "-" in found:
        raise ConfigError("`-` is the standard input of the program; give a path")
    return found


def _decoded(given: Paths | None) -> list[str]:
    if given is None:
        return []
    if isinstance(given, str | bytes | bytearray | memoryview | PathLike):
        return [decoded(given)]
    if hasattr(given, "read"):
        raise TypeError(
            f"expected a path, found {type(given).__name__}; `open` takes the bytes of a log: "
            "give it those that `read` returns"
        )
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"expected a path or a list of paths, found {type(given).__name__}")
    return [decoded(path) for path in given]


def decoded(path: object) -> str:
    """A path or text as the program takes it."""
    text = fspath(path) if isinstance(path, str | PathLike) else None
    if not isinstance(text, str):
        is_bytes = isinstance(path if text is None else text, bytes | bytearray | memoryview)
        advice = "; `open` takes the bytes of a log" if is_bytes else ""
        raise TypeError(f"expected a path as text, found {type(path).__name__}{advice}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"expected UTF-8, found {text!r}") from None
    return text


# What makes a path a glob.
_WILDCARD = re.compile(r"[*?[]")
# How addresses begin.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9]+:")


def absolute(path: str) -> str:
    """The same path for later, when another folder may be the working folder."""
    if not path or os.path.isabs(path) or "://" in path:
        return path
    is_there, wildcard = os.path.exists(path), _WILDCARD.search(path)
    # Of a glob, the folder that it begins with.
    begin = os.path.dirname(path[: wildcard.start()]) if wildcard else path
    if not is_there and _SCHEME.match(begin) and not os.path.exists(begin):
        # The program has advice for addresses that lack slashes.
        return path
    try:
        folder = decoded(os.getcwd())
    except (OSError, ConfigError):
        # What has no name of its own is found while it is the working folder.
        return path
    if not is_there and _WILDCARD.search(folder):
        if not wildcard:
            # Below this folder, it would be a glob that matches nothing.
            return path
        folder = glob.escape(folder)
    return os.path.join(folder, path)


def from_here(given: OpenOptions) -> OpenOptions:
    """The same options for later. A word alone may be the name of a built-in set of types."""
    types, describe = given.get("types"), given.get("describe")
    is_path = frozenset("/.*?[").intersection
    each = [absolute(path) if is_path(path) else path for path in _decoded(types)]
    changed: OpenOptions = {}
    if types is not None:
        changed["types"] = each
    if describe is not None:
        changed["describe"] = absolute(decoded(describe))
    return {**given, **changed}


def destination(to: Path) -> str:
    """Where to write."""
    path = decoded(to)
    if path == "-":
        raise ConfigError("`-` is the standard output of the program; give a path")
    return path


def literal(path: str) -> str:
    return path.replace("{", "{{").replace("}", "}}")


def strings(given: Strings | None) -> list[str]:
    """One string or several; none if that is not given."""
    if given is None:
        return []
    if isinstance(given, bytes | bytearray | memoryview):
        raise _not_text(given)
    return [given] if isinstance(given, str) else list(given)


def repeated(name: str, values: Strings | None) -> list[str]:
    """An option that may be repeated."""
    return [f"--{name}={_text(value)}" for value in strings(values)]


def flag(name: str, value: object | None) -> list[str]:
    """An option, unless it has no value."""
    return [] if value is None else [f"--{name}={_text(value)}"]


def file_option(name: str, path: Path | None) -> list[str]:
    """An option that names a file, unless it is not given."""
    return flag(name, None if path is None else decoded(path))


def assignments(name: str, values: Mapping[str, Any] | None) -> list[str]:
    """Options of the form `NAME=VALUE`, with values in TOML."""
    return [f"--{name}={key}={_toml(value)}" for key, value in _with_value(values)]


def variables(values: Mapping[str, Any] | None) -> dict[str, str]:
    """The variables of a pipeline file, which are texts."""
    return {name: _text(value) for name, value in _with_value(values)}


def _with_value(values: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    """The options that are given: `None` is no value."""
    return [(name, value) for name, value in (values or {}).items() if value is not None]


def _text(value: Any) -> str:
    """A single value as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | PathLike):
        return decoded(value)
    if isinstance(value, timedelta):
        return f"{value / timedelta(seconds=1):.9f}".rstrip("0").rstrip(".")
    if value is None or isinstance(value, Iterable):
        raise _not_text(value)
    return str(value)


def _not_text(value: object) -> TypeError:
    if value is None:
        return TypeError("expected a value, found None; leave it out")
    found = type(value).__name__
    if isinstance(value, bytes | bytearray | memoryview):
        return TypeError(f"expected text, found {found}; decode it first")
    return TypeError(
        f"expected one value, found {found}; give several as one text, such as a glob, or names "
        "with commas between them"
    )


def _toml(value: Any) -> str:
    """A value in TOML. A JSON string is a TOML string."""
    if isinstance(value, str | PathLike):
        return json.dumps(decoded(value), ensure_ascii=False)
    if isinstance(value, Mapping):
        pairs = (
            f"{json.dumps(str(key))} = {_toml(item)}" for key, item in _with_value(value)
        )
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"expected one value or a list, found {type(value).__name__}")
    return _text(value)


def _time_option(name: str, given: Any) -> list[str]:
    return [] if given is None else [f"--{name}={_time(name, given)}"]


def duration_option(name: str, given: Any) -> list[str]:
    """An option for a duration, unless it has no value."""
    if given is None:
        return []
    _check_single(name, "a duration", given)
    return flag(name, _duration(name, given) if _is_duration(given) else given)


def _time(name: str, given: Any) -> str:
    """A time as the program reads it."""
    _check_single(name, "a time", given)
    if _is_duration(given):
        return f"+{_duration(name, given)}"
    if _numpy_kind(given) == "M":
        return f"{_nanoseconds(name, given)}ns"
    if isinstance(given, float):
        # Without an exponent.
        return f"{Decimal(repr(float(given))):f}"
    written = getattr(given, "isoformat", None)
    if written is None:
        return _text(given)
    if getattr(given, "tzinfo", None) is None:
        raise ConfigError(
            f"{name}: expected a time with a time zone, found {given!r}: times are in UTC"
        )
    return str(written())


def _check_single(name: str, what: str, given: Any) -> None:
    """Refuses several times or durations, and those that are missing."""
    is_text = isinstance(given, str | bytes | bytearray | memoryview)
    # An array of numpy without dimensions is a single value.
    is_single = _numpy_kind(given) in ("M", "m") and getattr(given, "shape", None) == ()
    if isinstance(given, Iterable) and not is_text and not is_single:
        raise TypeError(f"{name}: expected {what}, found {type(given).__name__}")
    if str(given) in ("NaT", "nan"):
        raise ConfigError(f"{name}: expected {what}, found {given}")


def _is_duration(given: Any) -> bool:
    return hasattr(given, "total_seconds") or _numpy_kind(given) == "m"


def _numpy_kind(given: Any) -> str | None:
    """`M` for a time of numpy, and `m` for a duration."""
    kind: str | None = getattr(getattr(given, "dtype", None), "kind", None)
    return kind


def _duration(name: str, given: Any) -> str:
    """A duration as the program reads it: of the standard library, pandas or numpy."""
    if _numpy_kind(given) == "m":
        nanoseconds: int | None = _nanoseconds(name, given)
    else:
        # A duration of pandas has nanoseconds, which are not in its seconds.
        try:
            nanoseconds = getattr(given, "value", None)
        except OverflowError:
            nanoseconds = None
    text = f"{given.total_seconds():f}" if nanoseconds is None else f"{nanoseconds}ns"
    if text.startswith("-"):
        raise ConfigError(f"{name}: expected a duration that is not negative, found {given!r}")
    return text


def _nanoseconds(name: str, given: Any) -> int:
    """A time or duration of numpy, which may have any unit."""
    if "[" not in given.dtype.str:
        raise ConfigError(
            f"{name}: expected a duration with a unit, such as `timedelta64(5, 's')`, "
            f"found {given!r}"
        )

    def count(unit: str) -> int:
        return int(given.astype(f"{given.dtype.kind}8[{unit}]").astype("int64"))

    try:
        seconds, nanoseconds = count("s"), count("ns")
    except OverflowError:
        seconds, nanoseconds = 1, 0
    # Versions of numpy that do not refuse it give a wrong number.
    if nanoseconds // 1_000_000_000 != seconds:
        raise ConfigError(f"{name}: `{given}` is out of range (1677 to 2262)")
    return nanoseconds


def selection(channels: Strings | None, given: TimeOptions) -> list[str]:
    """The options that select events."""
    chosen = repeated("channel", channels)
    if channels is not None and not chosen:
        # Without the option, the program reads all.
        raise ConfigError("channels: expected at least one, found none; leave it out for all")
    return [
        *chosen,
        *repeated("exclude", given.get("exclude")),
        *_time_option("start", given.get("start")),
        *_time_option("end", given.get("end")),
        *flag("where", given.get("where")),
    ]


def log_options(given: LogOptions) -> list[str]:
    """The options that say what a log is."""
    kinds = _with_value(given.get("channel_types"))
    return [
        *[f"--types={path}" for path in _decoded(given.get("types"))],
        *[f"--type={channel}={_text(kind)}" for channel, kind in kinds],
        *flag("from", given.get("format")),
        *file_option("describe", given.get("describe")),
        *assignments("source-option", given.get("options")),
    ]


def outputs(given: OutputOptions) -> list[str]:
    """The options of runs that cannot be resumed."""
    return [
        *switch("overwrite", given.get("overwrite")),
        *flag("jobs", given.get("jobs")),
        *flag("memory", given.get("memory")),
    ]


def engine(given: RunOptions) -> list[str]:
    """The options of runs."""
    return [
        *outputs(given),
        *switch("resume", given.get("resume")),
        *switch("keep-going", given.get("keep_going")),
        *switch("strict", given.get("strict")),
        *flag("shard", given.get("shard")),
        *switch("allow-exec", given.get("allow_exec")),
    ]


def switch(name: str, is_on: bool | None) -> list[str]:
    """An option without a value."""
    return [f"--{name}"] if is_on else []
