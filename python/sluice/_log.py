"""Logs and their tables. Reads nothing before it is asked."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from . import _arguments, _native, _verbs
from ._errors import BYTES_NAME, ConfigError, without_temporary
from ._options import OpenOptions, Paths, ReadOptions, Strings, takes
from ._results import ChannelInfo, Damage, FileInfo, Info, Message, Result

if TYPE_CHECKING:
    import polars


@takes(OpenOptions)
def open(
    path: Paths | bytes | bytearray | memoryview, **given: Unpack[OpenOptions]
) -> Log:
    """Opens a log. Nothing is read before it is needed.

    Parameters
    ----------
    path
        A file, a glob, a list of them, or the bytes of a log. Bytes have no extension: those of
        texts such as CSV need `format`. Later changes of the working folder do not matter to
        relative paths.
    types
        Files that declare message types: files, globs, folders, or names of built-in sets such as
        `mit-dgc`. Without any, messages are decoded with the types that their format or the log
        declares, or else with the built-in ones.
    channel_types
        The type of a channel, if its payloads fit several: by channel, or pattern of channels.
        `Log.info` decodes nothing, and does not use it.
    format
        The name of the source that reads it. Found by the first bytes by default.
    describe
        A file that describes the format: the options of a source such as `records`.
    options
        Options of the source.
    jobs, memory
        How many threads and how much memory each read may use, such as `"512MiB"`.

    Examples
    --------
    >>> import sluice
    >>> log = sluice.open("drive.lcm")
    >>> log.info().events
    5755
    """
    given = _arguments.from_here(given)
    log = partial(
        Log,
        options=_arguments.log_options(given),
        jobs=given.get("jobs"),
        memory=given.get("memory"),
    )
    if isinstance(path, bytes | bytearray | memoryview):
        with _temporary_file(path) as file:
            return log([file], contents=file)
    return log([_arguments.absolute(each) for each in _arguments.paths(path)])


@contextmanager
def _temporary_file(contents: bytes | bytearray | memoryview) -> Iterator[str]:
    """The path of a new file in a folder of its own: it has no neighbours that belong to a log.

    Who reads it removes both, unless this ends with an exception.
    """
    import os
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="sluice-")
    path = os.path.join(folder, BYTES_NAME)
    try:
        with io.open(path, "wb") as written:
            written.write(contents)
        yield path
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


class Log:
    """A log: one file or several. `open` makes it."""

    def __init__(
        self,
        paths: list[str],
        options: list[str],
        *,
        jobs: int | None = None,
        memory: str | None = None,
        contents: str | None = None,
    ) -> None:
        self._paths = paths
        self._options = options
        self._info: Info | None = None
        self._reader = _native.LogReader(
            paths, options, jobs=jobs, memory=memory, contents=contents
        )

    @takes(ReadOptions)
    def table(
        self,
        channel: str | None = None,
        *,
        columns: Strings | None = None,
        **given: Unpack[ReadOptions],
    ) -> Table:
        """The decoded messages of a channel, or all events with their payloads.

        The table is lazy: whoever takes it as an Arrow stream reads the log, as often as it is
        taken. Its type is that of the channel's first message that can be decoded; others are left
        out and counted in `Table.result`.

        Parameters
        ----------
        channel
            The name of the channel. All events without it.
        start, end
            Only events from and before these times: a `datetime` with a time zone, a `datetime64`
            of numpy, a text such as `2007-11-03T14:00:00Z`, seconds since 1970, or `+10` or a
            `timedelta` after the first event of the log.
        columns
            Only this column or these.
        where
            A condition on the fields of messages, such as `"vel[0] > 3 and quality != 0"`.
        exclude
            Channels to leave out, if the table is of all.
        limit
            Only so many events.
        strict
            Whether damage is an error: a `DamageError` if the table is iterated over or scanned,
            and an exception of its own from another consumer that has taken rows already, with the
            same text. It is skipped and reported otherwise. So is a name or a window that matches
            nothing, with a `ConfigError`; otherwise it is a warning at the end, and in
            `Table.result`, as messages always are that cannot be decoded.

        Examples
        --------
        >>> import sluice
        >>> table = sluice.open("drive.lcm").table("POSE", end="+1", columns=["timestamp", "pos"])
        >>> table.columns
        ['timestamp', 'pos']
        >>> sum(len(batch) for batch in table)
        100
        """
        selection = _selection(None, given)
        chosen = None if columns is None else _arguments.strings(columns)
        return Table(self, channel, selection, chosen, bool(given.get("strict")))

    @takes(ReadOptions)
    def events(
        self, channels: Strings | None = None, **given: Unpack[ReadOptions]
    ) -> _native.EventIterator:
        """The events of these channels, in the order of the log.

        Their payloads are views of the memory that the log was read into: an event keeps some
        megabytes alive. Copy what is to be kept, with `bytes(event.payload)`.

        Parameters
        ----------
        channels
            Names, globs such as `CAM_*`, or `re:` and a regular expression. Without this option
            all; an empty list is a `ConfigError`. One that matches nothing is a warning at the end,
            or with `strict` a `ConfigError`.
        start, end, exclude, where, limit, strict
            As for `table`.

        Examples
        --------
        >>> import sluice
        >>> log = sluice.open("drive.lcm")
        >>> event = next(log.events("POSE"))
        >>> event.channel, len(event.payload)
        ('POSE', 144)
        """
        selection = _selection(channels, given)
        return self._reader.events(selection, bool(given.get("strict")))

    def info(self) -> Info:
        """What is in the log. Reads all of it, once."""
        if self._info is None:
            format_options = [o for o in self._options if not o.startswith("--type=")]
            lines = _verbs.info(format_options, self._paths)
            self._info = Info(FileInfo(line) for line in lines)
        return self._info

    @property
    def channels(self) -> list[ChannelInfo]:
        """The channels, by name. Reads the whole log, once."""
        return self.info().channels

    @property
    def damage(self) -> list[Damage]:
        """The ranges that could not be read. Reads the whole log, once."""
        return self.info().damage

    def __repr__(self) -> str:
        more = f" and {len(self._paths) - 1} more" if len(self._paths) > 1 else ""
        return f"Log({without_temporary(self._paths[0])!r}{more})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a log cannot be pickled: pass its path, and open it where it is needed"
        )


def _selection(channels: Strings | None, given: ReadOptions) -> list[str]:
    limit = _arguments.flag("limit", given.get("limit"))
    return [*_arguments.selection(channels, given), *limit]


class Table:
    """A table of a log: an Arrow stream that reads the log when it is taken.

    Everything that takes Arrow streams takes it: `polars.DataFrame(table)`,
    `pyarrow.table(table)`, `pandas.DataFrame.from_arrow(table)`, `duckdb.sql("from table")`.
    Iterating over it gives its record batches.
    """

    def __init__(
        self,
        log: Log,
        channel: str | None,
        selection: list[str],
        chosen: list[str] | None,
        strict: bool,
    ) -> None:
        self._log = log
        self._channel = channel
        self._selection = selection
        self._chosen = chosen
        self._strict = strict
        self._opened: _native.TableReader | None = None

    @property
    def _reader(self) -> _native.TableReader:
        if self._opened is None:
            reader = self._log._reader
            self._opened = reader.table(
                self._channel, self._selection, self._chosen, self._strict
            )
        return self._opened

    @property
    def columns(self) -> list[str]:
        """The names of the columns. Reads the log up to the first message of the channel."""
        return self._reader.column_names()

    @property
    def result(self) -> Result | None:
        """What the latest read to the end did: events left out, and damage.

        A query of `scan` that chooses columns or rows reads a table of its own, and does not count.

        Its `messages` are only the warnings of names that matched nothing, of events that were left
        out, and of how others were decoded: see also `damage` and `report`.
        """
        latest = None if self._opened is None else self._opened.report()
        if latest is None:
            return None
        report, warnings = latest
        fields = json.loads(without_temporary(report))
        return Result(
            fields["exit"], fields, [Message("warning", "note", text, {}) for text in warnings]
        )

    def select(self, *columns: str) -> Table:
        """The same table with only these columns."""
        return Table(self._log, self._channel, self._selection, list(columns), self._strict)

    def _narrowed(self, options: dict[str, str]) -> tuple[Table, bool]:
        """The same table of no more than these events, as far as it has no times of its own.

        Also whether any of these options is used.
        """
        given = {option.partition("=")[0] for option in self._selection}
        if "--limit" in given:
            return self, False
        if given & {"--start", "--end"}:
            options = {name: options[name] for name in options.keys() - {"start", "end"}}
        more = [f"--{name}={value}" for name, value in options.items()]
        selection = [*self._selection, *more]
        table = Table(self._log, self._channel, selection, self._chosen, self._strict)
        return table, bool(more)

    def scan(self) -> polars.LazyFrame:
        """The table as a lazy frame of Polars.

        Only the columns that the query needs are made. The log itself is searched for the times of
        the query, and for the channel if the table is of all; its other conditions are applied to
        each batch as it arrives. A log that is searched so does not report names that match
        nothing, as the query itself may have no events; it does report what it leaves out.
        """
        from inspect import signature

        from polars.io.plugins import register_io_source

        from . import _polars

        # Polars 1 shows no names.
        takes_name = "explain_name" in signature(register_io_source).parameters
        name: dict[str, Any] = {"explain_name": repr(self)} if takes_name else {}
        return register_io_source(
            _polars.source(self), schema=lambda: _polars.schema(self), **name
        )

    def __iter__(self) -> _native.BatchIterator:
        return self._batches()

    def _batches(self, *, reports_names: bool = True) -> _native.BatchIterator:
        return self._reader.batches(reports_names)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NoReturn:
        # `pandas.DataFrame(table)` would be one column of batches.
        raise TypeError(
            "a table is no array: `pandas.DataFrame.from_arrow(table)` takes it, or before pandas "
            "3 `pyarrow.table(table).to_pandas()`"
        )

    def __arrow_c_schema__(self) -> object:
        return self._reader.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        # The first messages of a channel decide its type: without them it has to be found first.
        has_first = all(option.startswith("--limit=") for option in self._selection)
        if self._opened is None and self._channel is not None and has_first:
            reader = self._log._reader
            self._opened = reader.started_table(
                self._channel, self._selection, self._chosen, self._strict
            )
        return self._reader.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        what = "all events" if self._channel is None else repr(self._channel)
        return f"Table({what} of {self._log!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a table cannot be pickled: pass the path of its log, and open it where it is needed"
        )
