"""What verbs and readers return. Reads nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from ._errors import in_python

Json = dict[str, Any]

NANOSECONDS = 1_000_000_000


class Damage(NamedTuple):
    """A range of an input that could not be read."""

    input: str
    """The file."""
    offset: int
    """Its start in bytes."""
    length: int
    """Its length in bytes."""
    reason: str
    """What was found there."""


class Message(NamedTuple):
    """A message of a verb: what the program would print."""

    level: str
    """`error`, `warning` or `info`."""
    kind: str
    """What it is about: `damage`, `loss`, `note`, `unmatched`, `summary` …"""
    text: str
    """The message."""
    fields: Json
    """Its details, as with `--log-format json`."""

    def __str__(self) -> str:
        return f"{self.level}: {self.text}"


class Output(NamedTuple):
    """A file that was written."""

    path: str
    """Its path."""
    rows: int
    """The number of events or rows in it; of a layout, of those that were given to it."""
    bytes: int
    """Its length."""
    blake3: str | None
    """Its hash, if it was asked for or the output has a manifest."""


class Result:
    """What a run did.

    It is true if nothing was lost, like exit code 0 of the program.
    """

    exit: int
    """The exit code of the program: 0, or 3 if something was lost, or 4 if an expectation is not
    met."""
    report: Json
    """All counts, as `--report` writes them: for every channel and sink,
    `in = out + filtered + damaged`."""
    messages: list[Message]
    """What the program would have printed."""

    def __init__(self, exit: int, report: Json, messages: list[Message]) -> None:
        self.exit = exit
        self.report = report
        self.messages = messages

    @property
    def files(self) -> list[Output]:
        """The files that were written."""
        files = self.report.get("files", [])
        return [Output(f["path"], f["rows"], f["bytes"], f.get("blake3")) for f in files]

    @property
    def damage(self) -> list[Damage]:
        """The ranges of inputs that could not be read."""
        return _damage(self.report.get("damage", []))

    @property
    def warnings(self) -> list[Message]:
        """The messages about losses and likely mistakes."""
        return [message for message in self.messages if message.level != "info"]

    @property
    def events(self) -> int:
        """The number of events that were read."""
        return sum(source["events"] for source in self.report.get("sources", {}).values())

    @property
    def written(self) -> int:
        """The number of events that were written, over all sinks.

        It may differ from `events` without a loss: a conversion to MCAP adds views, and its layout
        for Foxglove is another sink, to which all events are given.
        """
        return sum(sink["events"] for sink in self.report.get("sinks", {}).values())

    def __bool__(self) -> bool:
        return self.exit == 0

    def __repr__(self) -> str:
        lost = f", {len(self.damage)} damaged ranges" if self.damage else ""
        return (
            f"Result(exit={self.exit}, {self.events} events read, {self.written} written, "
            f"{len(self.files)} files{lost})"
        )


class Verified(NamedTuple):
    """An output that was compared with its manifest, or a log that was read in full."""

    path: str
    """The path."""
    files: int
    """The number of its files."""
    bytes: int
    """Their length."""
    differences: list[str]
    """How they differ from the manifest."""
    damage: list[str]
    """The damage inside logs."""
    exit: int
    """0, or 1 if something differs, or 3 if a log is damaged."""

    def __bool__(self) -> bool:
        return self.exit == 0


class LogCheck(NamedTuple):
    """A log that was compared with expectations."""

    path: str
    """The log."""
    events: int
    """The number of its events."""
    unmet: list[Json]
    """The expectations that are not met, as `check-log --json` writes them."""
    unmet_count: int
    """Their number: more than are listed, if they are many."""
    error: str | None
    """Why the log could not be checked."""
    exit: int
    """0, or 1 if it could not be checked, 3 if it is damaged, 4 if an expectation is not met."""

    def __bool__(self) -> bool:
        return self.exit == 0


class ChannelInfo(NamedTuple):
    """A channel of a log."""

    name: str
    """Its name."""
    source: str
    """Its source."""
    events: int
    """The number of its events."""
    bytes: int | None
    """The length of all payloads. None if some events have only fields, as those of tables."""
    encoding: str
    """The encoding of its payloads."""
    type: str | None
    """The type of most of its messages, if that is known."""
    first_timestamp: int | None
    """The earliest time of its events, in nanoseconds."""
    last_timestamp: int | None
    """The latest time of its events."""
    rate: float | None
    """Its events per second. Of several files, within each: time between files does not count, and
    that in which files overlap counts for each."""
    largest_gap: int | None
    """The longest time between two events of a file, in nanoseconds."""


class FileInfo:
    """What is in one file of a log."""

    def __init__(self, fields: Json) -> None:
        self.fields = fields
        """Everything that `sluice info --json` says."""

    @property
    def path(self) -> str:
        """The path."""
        return str(self.fields["path"])

    @property
    def format(self) -> str:
        """The format: the name of the source that reads it."""
        return str(self.fields["format"])

    @property
    def events(self) -> int:
        """The number of events."""
        return int(self.fields["events"])

    @property
    def bytes(self) -> int | None:
        """The length of the file."""
        length = self.fields["bytes"]
        return None if length is None else int(length)

    @property
    def channels(self) -> list[ChannelInfo]:
        """The channels, by name."""
        return [_channel(channel) for channel in self.fields["channels"]]

    @property
    def damage(self) -> list[Damage]:
        """The ranges that could not be read."""
        return _damage(self.fields["damage"])

    @property
    def findings(self) -> list[str]:
        """What else there is to say about the file."""
        return [str(finding) for finding in self.fields["findings"]]

    def __repr__(self) -> str:
        return f"FileInfo({self.path!r}, {self.format}, {self.events} events)"


class Info:
    """What is in a log, file by file. Notebooks show it as a table."""

    def __init__(self, files: Iterable[FileInfo]) -> None:
        self.files = list(files)
        """The files, in reading order."""

    @property
    def events(self) -> int:
        """The number of events in all files."""
        return sum(file.events for file in self.files)

    @property
    def channels(self) -> list[ChannelInfo]:
        """The channels of all files, by name and source."""
        found: dict[tuple[str, str], list[ChannelInfo]] = {}
        for channel in (channel for file in self.files for channel in file.channels):
            found.setdefault((channel.name, channel.source), []).append(channel)
        return [_merged(found[key]) for key in sorted(found)]

    @property
    def damage(self) -> list[Damage]:
        """The ranges of all files that could not be read."""
        return [damage for file in self.files for damage in file.damage]

    def __repr__(self) -> str:
        lines = [_summary(file) for file in self.files]
        rows = [_cells(channel) for channel in self.channels]
        widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
        for row in (_HEAD, *rows):
            cells = (
                cell.ljust(width) if place in _LEFT else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            lines.append("  " + "  ".join(cells).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        def row(cells: Iterable[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        lines = "".join(f"<p>{escape(_summary(file))}</p>" for file in self.files)
        body = "".join(row(_cells(channel), "td") for channel in self.channels)
        head = row(_HEAD, "th")
        return f"{lines}<table><thead>{head}</thead><tbody>{body}</tbody></table>"


_HEAD = ("channel", "source", "events", "Hz", "bytes", "type")
_LEFT = (0, 1, 5)


def _cells(channel: ChannelInfo) -> tuple[str, ...]:
    rate = "" if channel.rate is None else f"{channel.rate:.1f}"
    kind = channel.type or channel.encoding
    return (
        _printable(channel.name),
        _printable(channel.source),
        str(channel.events),
        rate,
        "" if channel.bytes is None else str(channel.bytes),
        _printable(kind),
    )


def _summary(file: FileInfo) -> str:
    text = f"{_printable(file.path)}: {file.format}, {file.events} events"
    first, last = file.fields["earliest_timestamp_ns"], file.fields["latest_timestamp_ns"]
    if first is not None and last is not None:
        text += f", {(last - first) / NANOSECONDS:.3f} s"
    ranges = file.fields["damaged_ranges"]
    return text + (f", {ranges} damaged ranges" if ranges else "")


def _printable(text: str) -> str:
    """Names come from logs: nothing in them may control a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _merged(each: list[ChannelInfo]) -> ChannelInfo:
    """The same channel of several files."""
    if len(each) == 1:
        return each[0]
    spans = [
        (channel.first_timestamp, channel.last_timestamp)
        for channel in each
        if channel.first_timestamp is not None and channel.last_timestamp is not None
    ]
    seconds = sum(last - first for first, last in spans) / NANOSECONDS
    intervals = sum(max(channel.events - 1, 0) for channel in each)
    gaps = [channel.largest_gap for channel in each if channel.largest_gap is not None]
    lengths = [channel.bytes for channel in each if channel.bytes is not None]
    return each[0]._replace(
        events=sum(channel.events for channel in each),
        bytes=sum(lengths) if len(lengths) == len(each) else None,
        type=next((channel.type for channel in each if channel.type), None),
        first_timestamp=min((first for first, _ in spans), default=None),
        last_timestamp=max((last for _, last in spans), default=None),
        rate=intervals / seconds if seconds > 0 else None,
        largest_gap=max(gaps, default=None),
    )


def _channel(fields: Json) -> ChannelInfo:
    return ChannelInfo(
        name=fields["name"],
        source=fields["source"],
        events=fields["events"],
        bytes=fields["bytes"],
        encoding=fields["encoding"],
        type=fields["type"],
        first_timestamp=fields["earliest_timestamp_ns"],
        last_timestamp=fields["latest_timestamp_ns"],
        rate=fields["rate_hz"],
        largest_gap=fields["largest_gap_ns"],
    )


def _damage(ranges: Iterable[Json]) -> list[Damage]:
    return [Damage(d["input"], d["offset"], d["length"], d["reason"]) for d in ranges]


def messages(text: str) -> list[Message]:
    """The messages of a verb."""
    return [
        Message(m.pop("level"), m.pop("kind"), in_python(m.pop("message")), m)
        for m in json.loads(text)
    ]
