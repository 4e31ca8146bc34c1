"""The verbs of the program, with results instead of text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from typing import Any, Unpack, overload

from . import _native
from ._arguments import (
    assignments,
    decoded,
    destination,
    duration_option,
    engine,
    file_option,
    flag,
    literal,
    log_options,
    outputs,
    paths,
    repeated,
    selection,
    variables,
)
from ._errors import ConfigError, Diagnostic, SluiceError, without_temporary
from ._options import (
    ConvertOptions,
    LogOptions,
    Path,
    Paths,
    ReportOptions,
    RunOptions,
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
        Which events: as for `Log.events`.
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
    arguments = [
        *selection(given.get("channels"), given),
        *log_options(given),
        *repeated("field", given.get("fields")),
        *flag("align", given.get("align")),
        *duration_option("tolerance", given.get("tolerance")),
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
        Values for the variables of the file, one for each. `None` leaves it to the file. A
        `timedelta` is its number of seconds: write a time after the first event as `"+1"`.
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
        _pipeline_file(pipeline),
    ]
    return _result("run", arguments, given.get("hash", False))


def check(pipeline: Path, set: Mapping[str, Any] | None = None) -> list[Diagnostic]:
    """All mistakes in a pipeline file; opens no input.

    >>> import sluice
    >>> sluice.check("quickstart")
    []
    """
    mistakes = _native.check_pipeline(_pipeline_file(pipeline), variables(set))
    return [Diagnostic(*mistake) for mistake in mistakes]


def _pipeline_file(given: Path) -> str:
    if not isinstance(given, str | PathLike):
        raise TypeError(
            f"expected a path as text, found {type(given).__name__}; a pipeline is given as the "
            "path of its file, or the name of a built-in one"
        )
    return decoded(given)


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
        _result("report", [*common, f"--to={literal(file)}", "--", *paths(logs)], False)
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
    lines = [json.loads(without_temporary(line)) for line in text.split("\n") if line]
    if exit not in (0, 3):
        raise SluiceError("\n".join(message.text for message in messages(said)))
    return lines
