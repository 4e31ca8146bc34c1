"""What is in a log."""

from __future__ import annotations

import struct
from pathlib import Path

import sluice


def test_info_counts_events_by_channel(drive: Path) -> None:
    log = sluice.open(drive)
    info = log.info()
    assert info is log.info() and info.events == 5755
    pose = next(channel for channel in log.channels if channel.name == "POSE")
    assert (pose.events, pose.bytes, pose.encoding) == (200, 28800, "lcm")
    assert pose.type == "lcmtypes.pose_t" and pose.rate and 99 < pose.rate < 101
    assert log.damage == [] and "POSE" in repr(info)
    assert [file.format for file in info.files] == ["lcm-log"]


def test_files_are_counted_together(drive: Path) -> None:
    log = sluice.open([drive, drive])
    pose = next(channel for channel in log.channels if channel.name == "POSE")
    assert (log.info().events, pose.events) == (2 * 5755, 400)


def test_times_that_step_back_give_the_duration_and_rate_of_the_earliest_and_latest(
    tmp_path: Path,
) -> None:
    event = struct.Struct(">IqqII1s1s")
    with (tmp_path / "back.lcm").open("wb") as log:
        for number, microseconds in enumerate([5_000_000, 9_000_000, 1_000_000]):
            log.write(event.pack(0xEDA1DA01, number, microseconds, 1, 1, b"A", b"x"))
    info = sluice.open("back.lcm").info()
    (channel,) = info.channels
    assert "3 events, 8.000 s" in repr(info) and channel.rate == 2 / 8
    assert (channel.first_timestamp, channel.last_timestamp) == (1_000_000_000, 9_000_000_000)
    (channel,) = sluice.open(["back.lcm", "back.lcm"]).channels
    # Each file by itself, although they overlap.
    assert channel.rate == 4 / 16


def test_the_rate_of_several_files_is_that_within_each(tmp_path: Path) -> None:
    event = struct.Struct(">IqqII1s1s")
    day = 86_400_000_000
    for name, start in [("day1", 0), ("day2", day)]:
        with (tmp_path / f"{name}.lcm").open("wb") as log:
            for number in range(101):
                time = start + number * 10_000
                log.write(event.pack(0xEDA1DA01, number, time, 1, 1, b"A", b"x"))
    (channel,) = sluice.open("day*.lcm").channels
    assert channel.rate == 100 and channel.largest_gap == 10_000_000
    assert channel.last_timestamp == (day + 1_000_000) * 1000


def test_html_has_no_markup_from_the_log() -> None:
    def file(name: str) -> sluice.FileInfo:
        channel = {
            "name": name,
            "source": name,
            "events": 1,
            "bytes": 1,
            "encoding": "lcm",
            "type": name,
            "earliest_timestamp_ns": 0,
            "latest_timestamp_ns": 0,
            "rate_hz": None,
            "largest_gap_ns": None,
        }
        times = {"earliest_timestamp_ns": 0, "latest_timestamp_ns": 0}
        return sluice.FileInfo(
            {
                "path": name,
                "format": "lcm-log",
                "events": 1,
                "damaged_ranges": 0,
                "channels": [channel],
                **times,
            }
        )

    info = sluice.Info([file("<script>alert('x')</script>\x1b[31m")])
    html = info._repr_html_()
    assert "<script" not in html and "&lt;script&gt;" in html and "\x1b" not in html
    assert " id=" not in html and "\x1b" not in repr(info)


def test_damage_has_its_place(torn: Path) -> None:
    damage = sluice.open(torn).damage
    middle = torn.stat().st_size // 2
    assert damage and all(d.reason and d.length > 0 for d in damage)
    assert any(d.offset <= middle + 3000 and d.offset + d.length >= middle for d in damage)
