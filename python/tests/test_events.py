"""Events: views of the log, without copies."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path

import pytest

import sluice


def test_events_have_the_properties_that_the_program_prints(drive: Path) -> None:
    log = sluice.open(drive)
    events = list(log.events("POSE", limit=3))
    assert [event.channel for event in events] == ["POSE"] * 3
    assert all(len(event) == len(event.payload) == 144 for event in events)
    first = events[0]
    assert first.timestamp == 1_194_098_400_000_880_000 and first.sequence == 3
    assert bytes(first.payload[:4]).hex() == "2e16efb0"
    assert repr(first) == (
        "Event(channel='POSE', timestamp=1194098400000880000, sequence=3, 144 bytes)"
    )


def test_a_name_that_matches_nothing_is_a_warning_at_the_end_or_an_error(drive: Path) -> None:
    log = sluice.open(drive)
    words = "no channel matches `POES`; did you mean `POSE`"
    with pytest.warns(UserWarning, match=words) as given:
        assert sum(1 for _ in log.events(["POES", "POSE"])) == 200
    assert [warning.filename for warning in given] == [__file__]
    with pytest.raises(sluice.ConfigError, match=words):
        list(log.events("POES", strict=True))
    with warnings.catch_warnings(action="error"):
        # Nobody knows of a name before the end.
        next(log.events(["POES", "POSE"]))
        assert sum(1 for _ in log.events(["POES", "POSE"], limit=3)) == 3


def test_payloads_are_read_only_views_that_outlive_everything_else(drive: Path) -> None:
    events = sluice.open(drive).events("POSE")
    payload = next(events).payload
    copy = bytes(payload)
    events.close()
    del events
    gc.collect()
    assert payload.readonly and payload.format == "B" and bytes(payload) == copy
    with pytest.raises(TypeError):
        payload[0] = 1


def test_payloads_of_a_batch_share_memory(drive: Path) -> None:
    numpy = pytest.importorskip("numpy")
    events = sluice.open(drive).events()
    payloads = [event.payload for event in events if len(event) > 12][:2]
    first, second = (numpy.frombuffer(payload, "u1") for payload in payloads)
    distance = second.ctypes.data - first.ctypes.data
    assert len(first) < distance < len(first) + 200


def test_short_payloads_are_whole(drive: Path) -> None:
    lengths = {}
    for event in sluice.open(drive).events():
        lengths[event.channel] = len(bytes(event.payload))
    assert lengths["LCM_SELF_TEST"] == 13 and lengths["POSE"] == 144


def test_channels_are_selected_by_pattern(drive: Path) -> None:
    log = sluice.open(drive)
    names = {event.channel for event in log.events("CAM_*", exclude="*_6mm")}
    assert names == {"CAM_THUMB_RFC", "CAM_THUMB_RFL", "CAM_THUMB_RFR", "CAM_THUMB_RRC"}
    assert sum(1 for _ in log.events(["POSE", "GPS_TO_LOCAL"])) == 220
    assert sum(1 for _ in log.events("POSE", where="utime > 0")) == 200
    typed = sluice.open(drive, channel_types={"POSE": "lcmtypes.pose_t"})
    assert sum(1 for _ in typed.events("POSE")) == 200
    assert sum(1 for _ in typed.events("POSE", where="utime > 0")) == 200
    assert sum(len(batch) for batch in typed.table("POSE")) == 200
    with pytest.warns(UserWarning, match="no channel matches `NOBODY`"):
        assert sum(1 for _ in log.events("NOBODY")) == 0


def test_an_iterator_stays_at_its_end(drive: Path) -> None:
    events = sluice.open(drive).events("POSE", limit=1)
    assert len(list(events)) == 1 and list(events) == []


def test_events_of_decoded_sources_are_encoded(drive: Path) -> None:
    pytest.importorskip("pyarrow")
    sluice.convert(drive, "tables/", channels="POSE", types="mit-dgc")
    ours = [bytes(event.payload) for event in sluice.open("tables/").events("POSE")]
    assert ours == [bytes(event.payload) for event in sluice.open(drive).events("POSE")]
