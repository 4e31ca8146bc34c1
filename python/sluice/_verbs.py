"""The verbs of the program, with results instead of text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from os import PathLike, fsdecode
from typing import Any, TypeAlias

from . import _native
from ._errors import ConfigError, Diagnostic, SluiceError
from ._results import Json, LogCheck, Result, Verified, messages

Path: TypeAlias = str | PathLike[str]
Paths: TypeAlias = Path | Iterable[Path]
Strings: TypeAlias = str | Iterable[str]


def convert(
    inputs: Paths,
    to: Path,
    *,
    channels: Strings = (),
    exclude: Strings = (),
    start: Any = None,
    end: Any = None,
    types: Paths = (),
    channel_types: Mapping[str, str] | None = None,
    where: str | None = None,
    fields: Strings = (),
    format: str | None = None,
    to_format: str | None = None,
    describe: Path | None = None,
    options: Mapping[str, Any] | None = None,
    sink_options: Mapping[str, Any] | None = None,
    source_name: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    keep_going: bool = False,
    strict: bool = False,
    hash: bool = False,
    jobs: int | None = None,
    memory: str | None = None,
) -> Result:
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
        What the logs are: as for `open`.
    fields
        Write only these fields of decoded messages; for CSV and JSON lines.
    to_format, sink_options
        The name of the sink, if not that of the extension, and its options.
    source_name
        The name of the source of the events in the output, such as `{name}`.
    overwrite, resume, keep_going, strict, jobs, memory
        As the flags of `sluice convert`.
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
    arguments = [
        *selection(channels, exclude, start, end, where),
        *log_options(types, channel_types, format, describe, options),
        *repeated("field", fields),
        *flag("as", to_format),
        *assignments("sink-option", sink_options),
        *flag("source-name", source_name),
        *engine(overwrite, resume, keep_going, strict, jobs, memory),
        f"--to={destination(to)}",
        "--",
        *paths(inputs),
    ]
    return _result("convert", arguments, hash)


def run(
    pipeline: Path,
    set: Mapping[str, Any] | None = None,
    *,
    python: Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    keep_going: bool = False,
    strict: bool = False,
    allow_exec: bool = False,
    hash: bool = False,
    jobs: int | None = None,
    memory: str | None = None,
) -> Result:
    """Runs a pipeline file, or the built-in pipeline of that name: `sluice run`.

    Parameters
    ----------
    pipeline
        The file.
    set
        Values for the variables of the file.
    python
        The file of plugins in Python for nodes that name none.
    allow_exec
        Whether the pipeline may run programs, with all your permissions.
    overwrite, resume, keep_going, strict, jobs, memory
        As the flags of `sluice run`.
    hash
        Whether the result has the hashes of outputs.

    Examples
    --------
    >>> import sluice
    >>> bool(sluice.run("quickstart", overwrite=True))
    True
    """
    arguments = [
        *assignments("set", set, toml=False),
        *flag("python", None if python is None else fsdecode(python)),
        *(["--allow-exec"] if allow_exec else []),
        *engine(overwrite, resume, keep_going, strict, jobs, memory),
        "--",
        fsdecode(pipeline),
    ]
    return _result("run", arguments, hash)


def check(pipeline: Path, set: Mapping[str, Any] | None = None) -> list[Diagnostic]:
    """All mistakes in a pipeline file; opens no input.

    >>> import sluice
    >>> sluice.check("quickstart")
    []
    """
    variables = {name: _text(value) for name, value in (set or {}).items()}
    mistakes = _native.check_pipeline(fsdecode(pipeline), variables)
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


def check_log(
    logs: Paths,
    expect: Path,
    *,
    types: Paths = (),
    channel_types: Mapping[str, str] | None = None,
    format: str | None = None,
    describe: Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[LogCheck]:
    """Compares logs with a file of expectations: `sluice check-log`."""
    arguments = [
        "--json",
        f"--expect={fsdecode(expect)}",
        *log_options(types, channel_types, format, describe, options),
        "--",
        *paths(logs),
    ]
    lines = _lines("check-log", arguments)
    return [
        LogCheck(c["path"], c["events"], c["unmet"], c["unmet_count"], c["error"], c["exit"])
        for c in lines
    ]


def report(
    logs: Paths,
    to: Path | None = None,
    *,
    title: str | None = None,
    expect: Path | None = None,
    fields: Strings = (),
    channels: Strings = (),
    exclude: Strings = (),
    start: Any = None,
    end: Any = None,
    where: str | None = None,
    types: Paths = (),
    channel_types: Mapping[str, str] | None = None,
    format: str | None = None,
    describe: Path | None = None,
    options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    jobs: int | None = None,
    memory: str | None = None,
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
        *flag("title", title),
        *flag("expect", None if expect is None else fsdecode(expect)),
        *repeated("field", fields),
        *selection(channels, exclude, start, end, where),
        *log_options(types, channel_types, format, describe, options),
        *engine(overwrite, False, False, False, jobs, memory),
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
    failure.result = result  # type: ignore[attr-defined]
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


def _decoded(given: Paths) -> list[str]:
    if isinstance(given, str | PathLike):
        return [fsdecode(given)]
    return [fsdecode(path) for path in given]


def destination(to: Path) -> str:
    """Where to write."""
    path = fsdecode(to)
    if path == "-":
        raise ConfigError("`-` is the standard output of the program; give a path")
    return path


def _literal(path: str) -> str:
    return path.replace("{", "{{").replace("}", "}}")


def strings(given: Strings) -> list[str]:
    """One string or several."""
    return [given] if isinstance(given, str) else list(given)


def repeated(name: str, values: Strings) -> list[str]:
    """An option that may be repeated."""
    return [f"--{name}={value}" for value in strings(values)]


def flag(name: str, value: object | None) -> list[str]:
    """An option, unless it has no value."""
    return [] if value is None else [f"--{name}={value}"]


def assignments(name: str, values: Mapping[str, Any] | None, toml: bool = True) -> list[str]:
    """Options of the form `NAME=VALUE`."""
    pairs = (values or {}).items()
    return [f"--{name}={key}={_toml(value) if toml else _text(value)}" for key, value in pairs]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return fsdecode(value) if isinstance(value, PathLike) else str(value)


def _toml(value: Any) -> str:
    """A value in TOML. A JSON string is a TOML string."""
    if isinstance(value, str | PathLike):
        return json.dumps(fsdecode(value), ensure_ascii=False)
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(str(key))} = {_toml(item)}" for key, item in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return _text(value)


def time(given: Any) -> str:
    """A time as the program reads it."""
    seconds = getattr(given, "total_seconds", None)
    if seconds is not None:
        return f"+{seconds():f}"
    written = getattr(given, "isoformat", None)
    if written is None:
        return str(given)
    if getattr(given, "tzinfo", None) is None:
        raise ConfigError(f"expected a time with a time zone, found {given!r}: times are in UTC")
    return str(written())


def selection(
    channels: Strings, exclude: Strings, start: Any, end: Any, where: str | None
) -> list[str]:
    """The options that select events."""
    return [
        *repeated("channel", channels),
        *repeated("exclude", exclude),
        *flag("start", None if start is None else time(start)),
        *flag("end", None if end is None else time(end)),
        *flag("where", where),
    ]


def log_options(
    types: Paths,
    channel_types: Mapping[str, str] | None,
    format: str | None,
    describe: Path | None,
    options: Mapping[str, Any] | None,
) -> list[str]:
    """The options that say what a log is."""
    return [
        *[f"--types={path}" for path in _decoded(types)],
        *[f"--type={channel}={kind}" for channel, kind in (channel_types or {}).items()],
        *flag("from", format),
        *flag("describe", None if describe is None else fsdecode(describe)),
        *assignments("source-option", options),
    ]


def engine(
    overwrite: bool,
    resume: bool,
    keep_going: bool,
    strict: bool,
    jobs: int | None,
    memory: str | None,
) -> list[str]:
    """The options of runs."""
    given = {"overwrite": overwrite, "resume": resume, "keep-going": keep_going, "strict": strict}
    switches = [f"--{name}" for name, is_on in given.items() if is_on]
    return [*switches, *flag("jobs", jobs), *flag("memory", memory)]
