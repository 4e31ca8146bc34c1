"""The options that verbs and readers share, each declared once. Runs nothing."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any, TypeAlias, TypedDict, TypeVar, cast

Path: TypeAlias = str | PathLike[str]
Paths: TypeAlias = Path | Iterable[Path]
Strings: TypeAlias = str | Iterable[str]


class LogOptions(TypedDict, total=False):
    """What logs are."""

    types: Paths | None
    channel_types: Mapping[str, str] | None
    format: str | None
    describe: Path | None
    options: Mapping[str, Any] | None


class TimeOptions(TypedDict, total=False):
    """Which events, besides their channel."""

    exclude: Strings | None
    start: Any
    end: Any
    where: str | None


class ReadOptions(TimeOptions, total=False):
    """Which events, and what damage is."""

    limit: int | None
    strict: bool


class SelectionOptions(TimeOptions, total=False):
    """Which events."""

    channels: Strings | None


class ResourceOptions(TypedDict, total=False):
    """What runs may use."""

    jobs: int | None
    memory: str | None


class OpenOptions(LogOptions, ResourceOptions, total=False):
    """The options of `open`."""


class OutputOptions(ResourceOptions, total=False):
    """How outputs are written."""

    overwrite: bool


class RunOptions(OutputOptions, total=False):
    """How runs go."""

    resume: bool
    keep_going: bool
    strict: bool
    shard: str | None
    allow_exec: bool
    hash: bool


class ConvertOptions(SelectionOptions, LogOptions, RunOptions, total=False):
    """The options of `convert`."""

    fields: Strings | None
    align: str | None
    tolerance: Any
    episodes: Mapping[str, Any] | None
    to_format: str | None
    sink_options: Mapping[str, Any] | None
    source_name: str | None


class ReportOptions(SelectionOptions, LogOptions, OutputOptions, total=False):
    """The options of `report`."""

    title: str | None
    expect: Path | None
    fields: Strings | None


_Function = TypeVar("_Function", bound=Callable[..., Any])


def takes(options: type) -> Callable[[_Function], _Function]:
    """Writes these options out in the signature of a function, for help and completion, and refuses
    others as Python does."""

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        shared = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if _written(annotation) == "bool" else None,
                annotation=_written(annotation),
            )
            for name, annotation in options.__annotations__.items()
        ]
        whole = signature.replace(parameters=[*own, *shared])

        @functools.wraps(function)
        def checked(*arguments: Any, **given: Any) -> Any:
            whole.bind(*arguments, **given)
            return function(*arguments, **given)

        checked.__signature__ = whole  # type: ignore[attr-defined]
        return cast(_Function, checked)

    return decorate


def _written(annotation: Any) -> str:
    """A type as it is written above."""
    return str(getattr(annotation, "__forward_arg__", annotation))
