"""The exceptions, and how the native part makes them."""

from __future__ import annotations

from typing import NamedTuple


class SluiceError(Exception):
    """Something failed, and nothing was published.

    The message says what was expected, what was found, where, and what to do.
    """


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


def sluice_error(message: str) -> SluiceError:
    """The exception for a failure without a place."""
    return SluiceError(message)


def damage_error(message: str) -> DamageError:
    """The exception for damage."""
    return DamageError(message)


def config_error(
    message: str, mistakes: list[tuple[str, int, int, str, str | None]]
) -> ConfigError:
    """The exception for wrong arguments."""
    return ConfigError(message, [Diagnostic(*mistake) for mistake in mistakes])


def input_error(message: str, number: int | None, path: str | None) -> InputError:
    """The exception for a file."""
    error = InputError(message) if number is None else InputError(number, message)
    error.filename = path
    return error
