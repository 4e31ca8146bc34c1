"""The verbs of the program, with results instead of text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from os import PathLike, fspath
from typing import Any, Unpack, overload

from . import _native
from ._errors import ConfigError, Diagnostic, SluiceError
from ._options import (
    ConvertOptions,
    LogOptions,
    OutputOptions,
    Path,
    Paths,
    ReportOptions,
    RunOptions,
    Strings,
    TimeOptions,
    takes,
)
from ._results import Json, LogCheck, Result, Verified, messages


@takes(ConvertOptions)
def convert(inputs: Paths, to: Path, **given: Unpack[ConvertOptions]) -> Result:
    """Converts logs: `sluice convert`.

    Parameters
    ----------
    inputs
        Files or globs, read in this order.
    to
        The file or folder to write; its extension decides the format. With placeholders such as
        `{stem}`, each input gets its own output.
    channels, exclude, start, end, where
        Which events: as for `Log.table`.
    types, channel_types, format, describe, options
        What the logs are: as for `open`. Only types that are given, or declared by the log, decode
        messages for `where` and `fields`.
    fields
        Write only these fields of decoded messages; for CSV and JSON lines. With `align`, fields of
        channels, such as `POSE.vel` or `v=POSE.vel`.
    align, tolerance, episodes
        Write rows with the last values of `fields` on one time base: `align` is a rate such as
        `50Hz`, or the channel whose events give the times; `tolerance` is how old a value may be,
        such as `100ms`, or a `timedelta`; `episodes` cuts the rows, such as `{"gap": "5s"}`.
    to_format, sink_options
        The name of the sink, if not that of the extension, and its options.
    source_name
        The name of the source of the events in the output, such as `{name}`.
    overwrite, resume, keep_going, strict, shard, allow_exec, jobs, memory
        As the flags of `sluice convert`: `strict` fails if a name matches nothing. Damage fails
        with `options={"on_damage": "stop"}`. `shard`, such as `1/4`, writes that part of outputs
        named after inputs.
    hash
        Whether the result has the hashes of outputs.

    Examples
    --------
    >>> import sluice
    >>> result = sluice.convert("drive.lcm", "pose.lcm", channels="POSE")
    >>> result.written
    200
    >>> [file.path for file in result.files]
    ['pose.lcm']
    """
    tolerance = given.get("tolerance")
    arguments = [
        *selection(given.get("channels"), given),
        *log_options(given),
        *repeated("field", given.get("fields")),
        *flag("align", given.get("align")),
        *flag("tolerance", None if tolerance is None else time(tolerance).removeprefix("+")),
        *assignments("episodes", given.get("episodes")),
        *flag("as", given.get("to_format")),
        *assignments("sink-option", given.get("sink_options")),
        *flag("source-name", given.get("source_name")),
        *engine(given),
        f"--to={destination(to)}",
        "--",
        *paths(inputs),
    ]
    return _result("convert", arguments, given.get("hash", False))


@takes(RunOptions)
def run(
    pipeline: Path,
    set: Mapping[str, Any] | None = None,
    *,
    python: Path | None = None,
    **given: Unpack[RunOptions],
) -> Result:
    """Runs a pipeline file, or the built-in pipeline of that name: `sluice run`.

    Parameters
    ----------
    pipeline
        The file.
    set
        Values for the variables of the file, one for each. `None` leaves it to the file.
    python
        The file of plugins in Python for nodes that name none.
    allow_exec
        Whether the pipeline may run programs, with all your permissions.
    overwrite, resume, keep_going, strict, shard, jobs, memory
        As the flags of `sluice run`: `strict` fails if a name matches nothing. Damage fails with
        `on_damage = "stop"` of the source.
    hash
        Whether the result has the hashes of outputs.

    Examples
    --------
    >>> import sluice
    >>> bool(sluice.run("quickstart", overwrite=True))
    True
    """
    arguments = [
        *[f"--set={name}={value}" for name, value in variables(set).items()],
        *file_option("python", python),
        *engine(given),
        "--",
        decoded(pipeline),
    ]
    return _result("run", arguments, given.get("hash", False))


def check(pipeline: Path, set: Mapping[str, Any] | None = None) -> list[Diagnostic]:
    """All mistakes in a pipeline file; opens no input.

    >>> import sluice
    >>> sluice.check("quickstart")
    []
    """
    mistakes = _native.check_pipeline(decoded(pipeline), variables(set))
    return [Diagnostic(*mistake) for mistake in mistakes]


def verify(outputs: Paths, *, format: str | None = None) -> list[Verified]:
    """Compares outputs with their manifest, and reads logs in full: `sluice verify`.

    >>> import sluice
    >>> [bool(verified) for verified in sluice.verify("drive.lcm")]
    [True]
    """
    arguments = ["--json", *flag("from", format), "--", *paths(outputs)]
    lines = _lines("verify", arguments)
    return [
        Verified(v["path"], v["files"], v["bytes"], v["differences"], v["damage"], v["exit"])
        for v in lines
    ]


@takes(LogOptions)
def check_log(logs: Paths, expect: Path, **given: Unpack[LogOptions]) -> list[LogCheck]:
    """Compares logs with a file of expectations: `sluice check-log`."""
    arguments = [
        "--json",
        f"--expect={decoded(expect)}",
        *log_options(given),
        "--",
        *paths(logs),
    ]
    lines = _lines("check-log", arguments)
    return [
        LogCheck(c["path"], c["events"], c["unmet"], c["unmet_count"], c["error"], c["exit"])
        for c in lines
    ]


@overload
def report(logs: Paths, to: None = None, **given: Unpack[ReportOptions]) -> Json: ...


@overload
def report(logs: Paths, to: Path, **given: Unpack[ReportOptions]) -> Result: ...


@takes(ReportOptions)
def report(
    logs: Paths, to: Path | None = None, **given: Unpack[ReportOptions]
) -> Result | Json:
    """Shows logs on a page: `sluice report`.

    With `to`, writes the page, or all figures if the path ends in `.json`. Without it, returns the
    figures of the logs together.

    >>> import sluice
    >>> figures = sluice.report("drive.lcm")
    >>> figures["channels"][0]["name"]
    'VELODYNE'
    """
    common = [
        *flag("title", given.get("title")),
        *file_option("expect", given.get("expect")),
        *repeated("field", given.get("fields")),
        *selection(given.get("channels"), given),
        *log_options(given),
        *outputs(given),
    ]
    if to is not None:
        return _result("report", [*common, f"--to={destination(to)}", "--", *paths(logs)], False)
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "report.json")
        _result("report", [*common, f"--to={_literal(file)}", "--", *paths(logs)], False)
        with open(file, encoding="utf-8") as text:
            figures: Json = json.load(text)
            return figures


def _result(verb: str, arguments: list[str], hash: bool) -> Result:
    if hash:
        # The contents go to the caller as well.
        arguments = ["--report=/dev/null", *arguments]
    exit, _, said, report = _native.run_verb([verb, *arguments])
    result = Result(exit, json.loads(report or "{}"), messages(said))
    if exit in (0, 3, 4):
        return result
    errors = [message.text for message in result.messages if message.level == "error"]
    kind = ConfigError if exit == 2 else SluiceError
    failure = kind("\n".join(errors) or f"`sluice {verb}` ended with exit code {exit}")
    failure.result = result
    raise failure


def _lines(verb: str, arguments: list[str]) -> list[Json]:
    _, text, _, _ = _native.run_verb([verb, *arguments])
    return [json.loads(line) for line in text.split("\n") if line]


def info(options: list[str], files: list[str]) -> list[Json]:
    """The lines of `sluice info --json`."""
    exit, text, said, _ = _native.run_verb(["info", "--json", *options, "--", *files])
    lines = [json.loads(line) for line in text.split("\n") if line]
    if exit not in (0, 3):
        raise SluiceError("\n".join(message.text for message in messages(said)))
    return lines


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
    return [decoded(path) for path in given]


def decoded(path: object) -> str:
    """A path or text as the program takes it."""
    text = fspath(path) if isinstance(path, str | PathLike) else None
    if not isinstance(text, str):
        found = type(path).__name__
        raise TypeError(f"expected a path as text, found {found}; `open` takes the bytes of a log")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"expected UTF-8, found {text!r}") from None
    return text


def destination(to: Path) -> str:
    """Where to write."""
    path = decoded(to)
    if path == "-":
        raise ConfigError("`-` is the standard output of the program; give a path")
    return path


def _literal(path: str) -> str:
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


def time(given: Any) -> str:
    """A time as the program reads it."""
    seconds = getattr(given, "total_seconds", None)
    if seconds is not None:
        # A duration of pandas has nanoseconds, which are not in its seconds.
        nanoseconds = getattr(given, "value", None)
        return f"+{seconds():f}" if nanoseconds is None else f"+{nanoseconds}ns"
    written = getattr(given, "isoformat", None)
    if written is None:
        return _text(given)
    if getattr(given, "tzinfo", None) is None:
        raise ConfigError(f"expected a time with a time zone, found {given!r}: times are in UTC")
    return str(written())


def selection(channels: Strings | None, given: TimeOptions) -> list[str]:
    """The options that select events."""
    start, end = given.get("start"), given.get("end")
    return [
        *repeated("channel", channels),
        *repeated("exclude", given.get("exclude")),
        *flag("start", None if start is None else time(start)),
        *flag("end", None if end is None else time(end)),
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
