"""The exceptions, and how the native part makes them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ._results import Result


class SluiceError(Exception):
    """Something failed. The message says what was expected, what was found, where, and what to do.

    A run that fails publishes nothing, except with `keep_going`: then `result` is the `Result` of
    the run, with the outputs that were written. It is `None` where a run did not get that far. An
    exception of a plugin in Python is the `__cause__`.
    """

    result: Result | None = None
    """What a run did before it failed, if that is known."""


class Diagnostic(NamedTuple):
    """A mistake in a pipeline file."""

    file: str
    """The file, or the name of a built-in pipeline."""
    line: int
    """The line, from 1."""
    column: int
    """The column in characters, from 1."""
    message: str
    """What is wrong."""
    help: str | None
    """What to do, if that is known."""

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}:{self.column}: {self.message}"
        return f"{text}; {self.help}" if self.help else text


class ConfigError(SluiceError):
    """An argument or a pipeline file is wrong."""

    diagnostics: list[Diagnostic]
    """The mistakes in the pipeline file; empty for wrong arguments."""

    def __init__(self, message: str, diagnostics: list[Diagnostic] | None = None) -> None:
        super().__init__(message)
        self.diagnostics = diagnostics or []


class InputError(SluiceError, OSError):
    """A file cannot be opened, read or written, or has no log format.

    Whatever else a run refuses is a plain `SluiceError`, such as a file that is not of the format
    given, a glob that matches nothing, or an output that exists already.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if len(self.args) == 1 else str(self.strerror)


class DamageError(SluiceError):
    """A log that is read is damaged, and `strict=True` was given."""


# The flags that have another name in Python.
_RENAMED = {
    "as": "to_format",
    "channel": "channels",
    "field": "fields",
    "from": "format",
    "sink-option": "sink_options",
    "source-option": "options",
    "type": "channel_types",
}
# The option that a message is about.
_SUBJECT = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?=(?: [a-z_]+)?: )")
# Advice with an option of the program, and that option in Python.
_ADVICE = [
    (re.compile(pattern), option)
    for pattern, option in [
        (
            r"(the output (?:exists|folder exists and is not empty|has appeared since the run "
            r"began); )--overwrite( replaces it: )",
            "overwrite=True",
        ),
        (r"(this pipeline runs programs, which needs )--allow-exec(, )", "allow_exec=True"),
        (r"(?s)(the extension of `.*, or name a sink of `sluice plugins` with )--as()\Z",
         "to_format"),
    ]
]


def in_python(message: str) -> str:
    """A message of the program that names its options as they are in Python.

    Only where a message begins so that it must be of the program itself: others hold paths,
    commands, and texts of other programs, which may look like options.
    """
    if subject := _SUBJECT.match(message):
        name = _RENAMED.get(subject[1], subject[1].replace("-", "_"))
        return name + message[subject.end() :]
    for pattern, option in _ADVICE:
        if advice := pattern.match(message):
            return f"{advice[1]}{option}{advice[2]}{message[advice.end() :]}"
    return message


def sluice_error(message: str) -> SluiceError:
    """The exception for a failure without a place."""
    return SluiceError(in_python(message))


def damage_error(message: str) -> DamageError:
    """The exception for damage."""
    return DamageError(in_python(message))


def config_error(
    message: str, mistakes: list[tuple[str, int, int, str, str | None]]
) -> ConfigError:
    """The exception for wrong arguments."""
    return ConfigError(in_python(message), [Diagnostic(*mistake) for mistake in mistakes])


def input_error(message: str, number: int | None, path: str | None) -> InputError:
    """The exception for a file."""
    message = in_python(message)
    error = InputError(message) if number is None else InputError(number, message)
    error.filename = path
    return error
