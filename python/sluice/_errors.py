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

    _result: Result | None = None

    @property
    def result(self) -> Result | None:
        """What a run did before it failed, if that is known."""
        return self._result

    @result.setter
    def result(self, result: Result | None) -> None:
        self._result = result


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

    def __init__(self, message: str, diagnostics: list[Diagnostic] | None = None) -> None:
        super().__init__(message)
        self._diagnostics = diagnostics or []

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """The mistakes in the pipeline file; empty for wrong arguments."""
        return self._diagnostics


class InputError(SluiceError, OSError):
    """A file cannot be opened, read or written, or has no log format.

    Whatever else a run refuses is a plain `SluiceError`, such as a file that is not of the format
    given, a glob that matches nothing, or an output that exists already.
    """

    def __str__(self) -> str:
        return str(self.args[0]) if len(self.args) == 1 else str(self.strerror)


class DamageError(SluiceError):
    """A log that is read is damaged, and `strict=True` was given."""


# The name of the file that a log of bytes is written to, in a folder of its own: it has no
# extension, and claims no format.
BYTES_NAME = "bytes"
_BYTES = f"/{BYTES_NAME}"

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
_SUBJECT = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?=(?: [a-z_]+)?: )|--(describe)(?= .+: )")
# What the parser of the command line says, and how that begins in Python.
_USAGE = [
    (re.compile(pattern.replace("OPTION", r"'--(?P<option>[a-z-]+)[^']*'")), text)
    for pattern, text in [
        (r"(?s)invalid value '(?P<value>.*?)' for OPTION: (?=`(?P=value)`)", "{option}: "),
        (r"(?s)invalid value '(?P<value>.*?)' for OPTION: ", "{option}: `{value}`: "),
        (r"a value is required for OPTION but none was supplied", "{option}: expected a value"),
        (r"the argument OPTION cannot be used with '--(?P<other>[a-z-]+)[^']*'",
         "{option}: it cannot be used with `{other}`"),
        (r"(?s)the following required arguments were not provided:\n +--(?P<option>[a-z-]+) .*",
         "{option}: it is needed with the other options"),
    ]
]  # fmt: skip
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


def _renamed(option: str) -> str:
    """The name that an option of the program has in Python."""
    return _RENAMED.get(option, option.replace("-", "_"))


def without_temporary(text: str) -> str:
    """A text without the paths of the files that logs of bytes are written to: they are `bytes`."""
    if _BYTES not in text:
        return text
    from tempfile import gettempdir

    return re.sub(rf"{re.escape(gettempdir())}/sluice-[^/\s]+{_BYTES}\b", BYTES_NAME, text)


def in_python(message: str) -> str:
    """A message of the program that names its options as they are in Python.

    Only where a message begins so that it must be of the program itself: others hold paths,
    commands, and texts of other programs, which may look like options.
    """
    message = without_temporary(message)
    if subject := _SUBJECT.match(message):
        return _renamed(subject[1] or subject[2]) + message[subject.end() :]
    for pattern, text in _USAGE:
        if usage := pattern.match(message):
            words = usage.groupdict()
            names = {key: _renamed(words[key]) for key in words.keys() - {"value"}}
            return text.format(**words | names) + message[usage.end() :]
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
    error.filename = None if path is None else without_temporary(path)
    return error
