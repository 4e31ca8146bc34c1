"""What reads say of the events that they leave out, and of names that match nothing."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import sluice


@pytest.fixture
def undecodable(drive: Path, tmp_path: Path) -> Path:
    """The drive with one message of POSE of no known type."""
    log = bytearray(drive.read_bytes())
    payload = bytes(list(sluice.open(drive).events("POSE", limit=11))[10].payload)
    log[log.find(payload)] ^= 255
    path = tmp_path / "undecodable.lcm"
    path.write_bytes(log)
    return path


NOT_DECODED = r"POSE: events that cannot be decoded are not in the table \(1 time\)"


@pytest.mark.parametrize("strict", [False, True])
def test_events_that_are_left_out_of_a_table_are_told(undecodable: Path, strict: bool) -> None:
    table = sluice.open(undecodable).table("POSE", strict=strict)
    with pytest.warns(UserWarning, match=NOT_DECODED) as given:
        assert sum(map(len, table)) == 199
    assert table.result is not None and table.result.exit == 3
    assert [str(each.message) for each in given] == [each.text for each in table.result.messages]


@pytest.mark.parametrize("strict", [False, True])
def test_views_that_are_named_and_left_out_are_told(drive: Path, strict: bool) -> None:
    sluice.convert(drive, "all.mcap", types="mit-dgc")
    log = sluice.open("all.mcap")
    with pytest.warns(UserWarning, match="events of views, which only show"):
        assert list(log.events("/gps", strict=strict)) == []
    # Nobody misses them in a whole log.
    with warnings.catch_warnings(action="error"):
        assert sum(1 for _ in log.events(strict=strict)) == 5755 < log.info().events


@pytest.mark.parametrize("strict", [False, True])
def test_a_scan_tells_what_is_left_out_also_where_its_query_names_what_is_read(
    undecodable: Path, strict: bool
) -> None:
    pl = pytest.importorskip("polars")
    scanned = sluice.open(undecodable).table("POSE", strict=strict).scan()
    with pytest.warns(UserWarning, match=NOT_DECODED):
        assert scanned.collect().height == 199
    early = pl.col("timestamp") < pl.lit(2**62).cast(pl.Datetime("ns", "UTC"))
    with pytest.warns(UserWarning, match=NOT_DECODED):
        assert scanned.filter(early).collect().height == 199


def test_a_name_that_matches_nothing_still_fails_a_strict_read(undecodable: Path) -> None:
    table = sluice.open(undecodable).table("POSE", exclude="POES", strict=True)
    with pytest.raises(sluice.ConfigError, match="no channel matches `POES`"):
        list(table)
    assert table.result is not None and len(table.result.messages) == 3


def test_a_type_that_is_not_that_of_messages_is_told(drive: Path) -> None:
    words = "POSE: the option `channel_types` says `lcmtypes.laser_t`, but messages are"
    table = sluice.open(drive, channel_types={"POSE": "lcmtypes.laser_t"}).table("POSE")
    with pytest.warns(UserWarning, match=words):
        assert sum(map(len, table)) == 200
    assert table.result is not None and table.result.exit == 0
    # A number of times has no meaning here.
    (message,) = table.result.messages
    assert message.text.startswith(words) and "time)" not in message.text


def test_a_scan_that_chooses_reads_a_table_of_its_own(drive: Path) -> None:
    pl = pytest.importorskip("polars")
    table = sluice.open(drive).table(exclude="POES")
    late = pl.col("timestamp") > pl.lit(2**62).cast(pl.Datetime("ns", "UTC"))
    with warnings.catch_warnings(action="error"):
        assert table.scan().filter(late).collect().height == 0
    with pytest.warns(UserWarning, match="no channel matches `POES`"):
        assert table.scan().select("timestamp").collect().height == 5755
    assert table.result is None
    with pytest.warns(UserWarning, match="no channel matches `POES`"):
        assert table.scan().collect().height == 5755
    assert table.result is not None and len(table.result.messages) == 1
