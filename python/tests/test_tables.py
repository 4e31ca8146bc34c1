"""Tables: every consumer of Arrow streams gets the rows that the program writes."""

from __future__ import annotations

import datetime
import gc
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sluice

POSE = ["timestamp", "source", "sequence", "utime", "pos", "vel", "orientation"]


def test_a_table_has_the_columns_of_its_messages(drive: Path) -> None:
    assert sluice.open(drive).table("POSE").columns[: len(POSE)] == POSE


@pytest.mark.parametrize("kind", [str, Path, lambda path: [path], lambda path: f"{path}*"])
def test_logs_are_opened_by_any_kind_of_path(
    drive: Path, tmp_path: Path, kind: Callable[[Path], Any]
) -> None:
    (tmp_path / "a.lcm").symlink_to(drive)
    table = sluice.open(kind(tmp_path / "a.lcm")).table("POSE", columns=["sequence"])
    assert sum(map(len, table)) == 200


def test_several_logs_are_read_one_after_the_other(drive: Path) -> None:
    table = sluice.open([drive, drive]).table("POSE", columns=["timestamp"])
    assert sum(map(len, table)) == 400


def test_a_log_may_be_bytes(drive: Path) -> None:
    assert sum(map(len, sluice.open(drive.read_bytes()).table("POSE"))) == 200


def test_the_bytes_of_a_log_live_as_long_as_its_readers(
    drive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    contents = drive.read_bytes()

    def files() -> int:
        gc.collect()
        return len(list(tmp_path.glob("sluice-*")))

    def open_log() -> sluice.Log:
        return sluice.open(bytearray(contents))

    readers: list[Callable[[], Any]] = [
        lambda: open_log().events(),
        lambda: open_log().table("POSE"),
        lambda: iter(open_log().table("POSE")),
        lambda: open_log().table("POSE").__arrow_c_stream__(),
        lambda: open_log().table().__arrow_c_stream__(),
    ]
    for make in readers:
        reader = make()
        assert files() == 1
        del reader
        assert files() == 0
    assert sum(1 for _ in open_log().events()) == 5755
    with pytest.raises(sluice.ConfigError):
        sluice.open(contents, memory="much")
    assert files() == 0


def test_bytes_of_a_text_format_need_its_name() -> None:
    text = b"time,x\n1,2\n"
    options = {"timestamp": "time"}
    assert sluice.open(text, format="csv", options=options).info().events == 1
    with pytest.raises(sluice.SluiceError, match="cannot detect the format of bytes; name it with"):
        sluice.open(text).info()


@pytest.mark.parametrize("to", ["d.orca", "d.parquet", "d.lcm.zst"])
def test_messages_of_other_formats_are_decoded_in_logs_of_any_format(drive: Path, to: str) -> None:
    sluice.convert(drive, to, channels=["POSE", "LOGGER_STRING"])
    log = sluice.open(to)
    assert log.table("POSE").columns[: len(POSE)] == POSE
    assert sum(map(len, log.table("POSE", where="pos[0] > 0"))) == 200
    assert "utime" not in log.table("LOGGER_STRING").columns
    typed = sluice.open(to, channel_types={"POSE": "lcmtypes.pose_t"})
    assert sum(map(len, typed.table("POSE"))) == 200


def test_pyarrow_takes_a_table_twice_and_gets_the_rows_of_the_parquet_file(drive: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = sluice.open(drive).table("POSE")
    ours = pa.table(table)
    assert ours == pa.table(table)
    sluice.convert(drive, "tables/", channels="POSE", types="mit-dgc")
    theirs = parquet.read_table(next(Path("tables/channel=POSE").glob("*.parquet")))
    assert theirs.column_names == ours.column_names
    for name in POSE[2:]:
        assert ours[name].to_pylist() == theirs[name].to_pylist(), name
    ours_us = [time.value // 1000 for time in ours["timestamp"]]
    assert ours_us == [time.value for time in theirs["timestamp"]]
    assert {str(source) for source in ours["source"]} == {str(s) for s in theirs["source"]}


def test_polars_takes_a_table(drive: Path) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(sluice.open(drive).table("POSE"))
    assert frame.height == 200 and frame.columns[:7] == POSE
    assert frame["timestamp"].dtype == pl.Datetime("ns", "UTC")


def test_polars_scans_a_table_with_projection_and_conditions(drive: Path) -> None:
    pl = pytest.importorskip("polars")
    table = sluice.open(drive).table("POSE")
    late = pl.col("sequence") > pl.DataFrame(table)["sequence"][99]
    lazy = table.scan()
    assert lazy.collect_schema().names() == table.columns
    found = lazy.filter(late).select("utime").collect()
    expected = pl.DataFrame(table).filter(late).select("utime")
    assert found.equals(expected) and found.height == 100
    assert lazy.head(7).collect().height == 7
    assert lazy.select(pl.len()).collect().item() == 200


def test_polars_lets_the_log_find_times_and_channels(drive: Path) -> None:
    pl = pytest.importorskip("polars")
    from sluice import _polars

    table = sluice.open(drive).table()
    frame = pl.DataFrame(table)
    times = frame["timestamp"]
    time, channel = pl.col("timestamp"), pl.col("channel")
    low, high = times[1000], times[2000]
    conditions = [
        (time >= low) & (time < high),
        (low < time) & (high >= time),
        time.is_between(low, high, closed="right") & (pl.col("sequence") % 2 == 0),
        (time == low),
        (channel == "POSE") & (time < high),
        (channel == "POSE") | (time < low),
        (channel != "POSE") & (time > pl.lit(high)),
        (channel == "P*SE"),
        (channel == "POSE") & (channel == "LASER"),
        (time < low) & (time > high),
    ]
    columns = ["timestamp", "sequence", "channel"]
    for condition in conditions:
        found = table.scan().filter(condition).select(columns).collect()
        expected = frame.lazy().filter(condition).select(columns).collect()
        assert found.equals(expected), condition
    assert table.scan().head(10).filter(channel == "POSE").collect().equals(
        frame.head(10).filter(channel == "POSE")
    )

    assert _polars.pushed_down((time > low) & (time <= high), True).keys() == {"start", "end"}
    assert _polars.pushed_down((channel == "POSE") & (time < high), False).keys() == {"end"}
    assert _polars.pushed_down((channel == "POSE") | (time < high), True) == {}
    own: list[dict[str, Any]] = [{"start": "+1"}, {"start": high, "exclude": "POSE"}]
    for late in own:
        early = sluice.open(drive).table(**late).scan().filter(time < low)
        assert early.collect().is_empty()
    limited = sluice.open(drive).table(limit=5)
    assert limited.scan().filter(channel == "POSE").collect().height == (
        frame.head(5).filter(channel == "POSE").height
    )


def test_polars_1_scans_a_table(drive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = pytest.importorskip("polars.io.plugins")
    register = plugins.register_io_source

    def register_of_polars_1(
        io_source: Any, *, schema: Any, validate_schema: bool = False, is_pure: bool = False
    ) -> Any:
        return register(io_source, schema=schema)

    monkeypatch.setattr(plugins, "register_io_source", register_of_polars_1)
    assert sluice.open(drive).table("POSE").scan().collect().height == 200


def test_pandas_takes_a_table(drive: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame.from_arrow(sluice.open(drive).table("POSE", columns=["utime"]))
    assert len(frame) == 200


def test_duckdb_queries_a_table_twice_in_one_query(drive: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pose = sluice.open(drive).table("POSE", columns=["sequence", "utime"])
    rows = duckdb.sql("select count(*), (select max(utime) from pose) > 0 from pose").fetchall()
    assert rows == [(200, True)], pose


def test_nanoarrow_takes_a_table(drive: Path) -> None:
    na = pytest.importorskip("nanoarrow")
    table = sluice.open(drive).table("POSE", columns=["sequence"])
    assert sum(len(chunk) for chunk in na.ArrayStream(table)) == 200


def test_all_events_have_payloads(drive: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    events = pa.table(sluice.open(drive).table())
    assert events.column_names == ["timestamp", "source", "channel", "sequence", "payload"]
    assert events.num_rows == 5755
    first = next(sluice.open(drive).events())
    assert events["payload"][0].as_py() == bytes(first.payload)


def test_times_and_conditions_select_rows(drive: Path) -> None:
    log = sluice.open(drive)

    def count(**selection: Any) -> int:
        return sum(map(len, log.table("POSE", **selection)))

    start = datetime.datetime(2007, 11, 3, 14, 0, 1, tzinfo=datetime.timezone.utc)
    assert count(start=start) == 100
    assert count(start="+1") == count(start=datetime.timedelta(seconds=1)) == 100
    assert count(start="+0.5", end="+1") == 50
    assert count(limit=7) == 7
    assert 0 < count(where="pos[0] > 0") <= 200
    assert count(where="utime < 0") == 0
    with pytest.raises(sluice.ConfigError, match="time zone"):
        log.table("POSE", start=datetime.datetime(2007, 11, 3))


def test_durations_of_pandas_keep_their_nanoseconds() -> None:
    pd = pytest.importorskip("pandas")
    log = sluice.open(b"time,x\n0,1\n1,2\n", format="csv", options={"timestamp": "time"})
    for late, count in [("1s", 1), ("1s1ns", 0), ("999999999ns", 1)]:
        assert sum(1 for _ in log.events(start=pd.Timedelta(late))) == count, late


def test_messages_without_types_have_payloads(drive: Path) -> None:
    table = sluice.open(drive).table("LOGGER_STRING")
    assert table.columns == ["timestamp", "source", "sequence", "payload"]
    assert sum(map(len, table)) == 2


def test_names_that_the_log_has_not_are_found_near(drive: Path) -> None:
    log = sluice.open(drive)
    with pytest.raises(sluice.ConfigError, match="no channel `POES`; did you mean `POSE`"):
        list(log.table("POES"))
    with pytest.raises(sluice.ConfigError, match="no column `utim`; did you mean `utime`"):
        list(log.table("POSE", columns=["utim"]))
    with pytest.raises(sluice.ConfigError, match="velo"):
        list(log.table("POSE", where="velo ="))


def test_damage_is_skipped_and_reported_unless_it_is_an_error(torn: Path) -> None:
    log = sluice.open(torn)
    table = log.table("VELODYNE", columns=["sequence"])
    assert table.result is None
    rows = sum(map(len, table))
    assert 3000 < rows < 3640
    result = table.result
    assert result is not None and result.exit == 3 and result.written == rows
    assert [d.input for d in result.damage] == [str(torn)]
    assert [d.input for d in log.damage] == [str(torn)]
    with pytest.raises(sluice.DamageError, match="torn.lcm"):
        list(log.table("VELODYNE", strict=True))


def test_an_error_of_a_run_is_the_error_of_the_stream(torn: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(Exception, match="torn.lcm"):
        pa.table(sluice.open(torn).table("VELODYNE", strict=True))


@pytest.mark.parametrize("others", [[0], [40_000], [3, 25_000, 49_999]])
def test_a_table_leaves_out_messages_of_other_types(
    drive: Path, tmp_path: Path, others: list[int]
) -> None:
    pa = pytest.importorskip("pyarrow")
    log = sluice.open(drive)
    pose = [bytes(event.payload) for event in log.events("POSE")]
    other = bytes(next(log.events("GPS_TO_LOCAL")).payload)
    # Longer than what is decoded before the first rows are delivered.
    path = tmp_path / "mixed.lcm"
    with path.open("wb") as file:
        for number in range(50_000):
            payload = other if number in others else pose[number % len(pose)]
            head = (0xEDA1DA01, number, 1_000_000 + number, 5, len(payload))
            file.write(struct.pack(">IqqII", *head) + b"MIXED" + payload)
    table = sluice.open(path).table("MIXED")
    taken = pa.table(table)
    again = sluice.open(path).table("MIXED")
    batches = pa.Table.from_batches([pa.record_batch(batch) for batch in again])
    assert taken.equals(batches)
    first_is_other = others == [0]
    numbers = [n for n in range(50_000) if (n in others) == first_is_other]
    assert taken["sequence"].to_pylist() == numbers
    assert ("pos" in taken.column_names) != first_is_other
    assert table.result is not None and again.result is not None
    assert table.result.written == again.result.written == len(numbers)
    some = sluice.open(path).table("MIXED", columns=["sequence"], limit=45_000)
    assert pa.table(some).to_pydict() == {"sequence": [n for n in numbers if n < 45_000]}


def test_the_first_message_decides_the_type_even_if_it_is_not_selected(
    drive: Path, tmp_path: Path
) -> None:
    pa = pytest.importorskip("pyarrow")
    log = sluice.open(drive)
    first = bytes(next(log.events("GPS_TO_LOCAL")).payload)
    second = bytes(next(log.events("POSE")).payload)
    path = tmp_path / "mixed.lcm"
    with path.open("wb") as file:
        for number, payload in enumerate([first, second]):
            head = (0xEDA1DA01, number, 1_000_000 * number, 5, len(payload))
            file.write(struct.pack(">IqqII", *head) + b"MIXED" + payload)
    late = pa.table(sluice.open(path).table("MIXED", start="+0.5"))
    assert late.num_rows == 0 and "pos" not in late.column_names


def test_a_column_that_a_stream_does_not_have_is_named(drive: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(sluice.ConfigError, match="no column `poz`; did you mean `pos`"):
        pa.table(sluice.open(drive).table("POSE", columns=["poz"]))


def test_tables_have_the_forms_that_polars_keeps(drive: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    schema = pa.schema(sluice.open(drive).table("SKIRT_FC"))
    assert pa.types.is_large_list(schema.field("ranges").type)
    assert pa.types.is_string_view(schema.field("source").type)


WORDS = """
import base64, json
import pyarrow as pa, sluice

TEXT, BYTES = {"type": "string"}, {"type": "string", "contentEncoding": "base64"}

def many(items):
    return {"type": "array", "items": items}

def fields(**properties):
    return {"type": "object", "properties": properties}

SCHEMA = fields(
    text=TEXT, texts=many(TEXT), deep=many(many(TEXT)), byte=BYTES, bytes=many(BYTES),
    items=many(fields(key=TEXT, tags=many(TEXT))), one=fields(key=TEXT, tags=many(TEXT)),
)
LONG = "longer than a view"
ROWS = [
    {"text": "a", "texts": ["b", LONG], "deep": [["c"], []], "byte": "ZA==", "bytes": ["ZQ=="],
     "items": [{"key": "f", "tags": [LONG, "g"]}], "one": {"key": "h", "tags": []}},
    {"text": LONG, "texts": [], "deep": [], "byte": "", "bytes": [],
     "items": [], "one": {"key": "", "tags": [LONG]}},
]

@sluice.source
def words():
    data = base64.b64encode(json.dumps(SCHEMA).encode()).decode()
    attributes = json.dumps({"schema": {"encoding": "jsonschema", "data": data}})
    count = len(ROWS)
    yield pa.record_batch({
        "timestamp": pa.array(range(count), pa.timestamp("ns", "UTC")),
        "channel": ["WORDS"] * count, "encoding": ["json"] * count,
        "attributes": [attributes] * count,
        "payload": pa.array([json.dumps(row, separators=(",", ":")).encode() for row in ROWS]),
    })
"""


@pytest.fixture
def words(tmp_path: Path) -> sluice.Table:
    """Messages with texts and bytes at every place: in lists, lists of lists, and structs."""
    pytest.importorskip("pyarrow")
    (tmp_path / "words.py").write_text(WORDS)
    (tmp_path / "p.toml").write_text(
        '[sources.py]\nplugin = "python"\nfile = "words.py"\nname = "words"\n'
        '[sinks.out]\nplugin = "mcap"\nfrom = "py"\npath = "words.mcap"\n'
    )
    assert sluice.run(tmp_path / "p.toml", allow_exec=True)
    columns = ["text", "texts", "deep", "byte", "bytes", "items", "one"]
    return sluice.open(tmp_path / "words.mcap").table("WORDS", columns=columns)


def test_every_consumer_takes_texts_at_every_place(words: sluice.Table) -> None:
    pa = pytest.importorskip("pyarrow")
    rows = pa.table(words).to_pylist()
    long = "longer than a view"
    assert [row["texts"] for row in rows] == [["b", long], []]
    assert [row["deep"] for row in rows] == [[["c"], []], []]
    assert [row["bytes"] for row in rows] == [[b"e"], []]
    assert [row["items"] for row in rows] == [[{"key": "f", "tags": [long, "g"]}], []]
    assert [row["one"] for row in rows] == [{"key": "h", "tags": []}, {"key": "", "tags": [long]}]

    pl = pytest.importorskip("polars")
    assert pl.DataFrame(words).to_dicts() == words.scan().collect().to_dicts() == rows
    duckdb = pytest.importorskip("duckdb")
    names = list(rows[0])
    found = duckdb.sql("from words").fetchall()
    assert [dict(zip(names, row, strict=True)) for row in found] == rows

    pd = pytest.importorskip("pandas")
    for frame in pd.DataFrame.from_arrow(words), pa.table(words).to_pandas():
        assert list(frame["text"]) == ["a", long]
        assert [list(texts) for texts in frame["texts"]] == [["b", long], []]
        assert [[list(ts) for ts in deep] for deep in frame["deep"]] == [[["c"], []], []]
        assert [list(values) for values in frame["bytes"]] == [[b"e"], []]
        assert list(frame["items"][0][0]["tags"]) == [long, "g"]
        assert list(frame["one"][1]["tags"]) == [long]


def test_a_consumer_may_ask_for_other_types_of_the_same_values(words: sluice.Table) -> None:
    pa = pytest.importorskip("pyarrow")
    names = ["text", "texts", "byte"]
    words = words.select(*names)
    texts = pa.list_(pa.dictionary(pa.int32(), pa.string()))
    types = [pa.large_string(), texts, pa.binary()]
    schema = pa.schema(list(zip(names, types, strict=True)))
    plain = pa.table(words, schema=schema)
    assert plain.schema == schema and plain.to_pylist() == pa.table(words).to_pylist()
    for batch in words:
        assert pa.record_batch(batch, schema=schema).schema == schema
    views = pa.large_list(pa.field("item", pa.string_view()))
    views = pa.schema([("text", pa.string_view()), ("texts", views), ("byte", pa.binary_view())])
    assert pa.table(words, schema=views).to_pylist() == plain.to_pylist()


def test_a_requested_type_never_changes_a_value(drive: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    table = sluice.open(drive).table("POSE", columns=["sequence", "utime"], limit=5)
    utime = pa.table(table)["utime"][0].as_py()
    for kind in [pa.int8(), pa.float32(), pa.bool_()]:
        schema = pa.schema([("sequence", pa.int64()), ("utime", kind)])
        with pytest.raises(pa.ArrowInvalid, match=f"column `utime`: .*{utime}"):
            pa.table(table, schema=schema)
        with pytest.raises(ValueError, match=f"column `utime`: .*{utime}"):
            pa.record_batch(next(iter(table)), schema=schema)
    small = pa.schema([("sequence", pa.int16()), ("utime", pa.float64())])
    assert pa.table(table, schema=small).to_pylist() == pa.table(table).to_pylist()
    others = pa.schema([("utime", pa.int64()), ("sequence", pa.int64())])
    with pytest.raises(ValueError, match="expected the columns sequence, utime, found utime, seq"):
        pa.table(table, schema=others)
    # What has no cast is given as it is, as the interface allows.
    none = pa.schema([("sequence", pa.int64()), ("utime", pa.struct([("a", pa.int64())]))])
    assert pa.RecordBatchReader.from_stream(table, schema=none).schema == pa.schema(table)


def test_a_requested_type_never_renames_members(words: sluice.Table) -> None:
    pa = pytest.importorskip("pyarrow")
    tags = pa.list_(pa.string())
    same = pa.struct([("key", pa.string()), ("tags", tags)])
    others = [
        pa.struct([("tags", pa.string()), ("key", tags)]),
        pa.struct([("key", pa.string()), ("labels", tags)]),
    ]
    for column, form in [("one", lambda kind: kind), ("items", pa.list_)]:
        table = words.select(column)
        plain = pa.table(table, schema=pa.schema([(column, form(same))]))
        assert plain.to_pylist() == pa.table(table).to_pylist()
        for other in others:
            schema = pa.schema([(column, form(other))])
            with pytest.raises(ValueError, match=f'column `{column}`: .*"key", "tags".*, found'):
                pa.table(table, schema=schema)
            with pytest.raises(ValueError, match=f'column `{column}`: .*"key", "tags".*, found'):
                pa.record_batch(next(iter(table)), schema=schema)


def test_two_threads_read_at_once(drive: Path) -> None:
    log = sluice.open(drive)
    counts: list[int] = []

    def work() -> None:
        counts.append(sum(map(len, log.table("POSE"))))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [200] * 4


def test_a_table_that_is_not_read_to_its_end_ends_its_run(drive: Path) -> None:
    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    before = threads()
    for _ in range(20):
        batches = iter(sluice.open([drive] * 5).table())
        next(batches)
        del batches
    for _ in range(200):
        if threads() <= before:
            return
        threading.Event().wait(0.05)
    assert threads() <= before


def test_missing_and_foreign_files_are_input_errors_or_named(tmp_path: Path) -> None:
    with pytest.raises(sluice.InputError, match="gone.lcm") as missing:
        list(sluice.open("gone.lcm").table("POSE"))
    assert isinstance(missing.value, OSError) and missing.value.errno == 2
    (tmp_path / "a.txt").write_text("neither a log nor anything else")
    with pytest.raises(sluice.InputError, match="a.txt"):
        list(sluice.open("a.txt").table("POSE"))


def test_logs_and_tables_refuse_to_be_pickled_with_words(drive: Path) -> None:
    log = sluice.open(drive)
    for thing in [log, log.table("POSE"), log.events(), next(log.events())]:
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("contents", [bytes(range(128, 256)) * 8, b"%PDF-1.7\n"])
def test_a_file_without_a_log_format_is_an_input_error(contents: bytes) -> None:
    Path("a.bin").write_bytes(contents)
    log = sluice.open("a.bin")
    attempts: list[Callable[[], Any]] = [
        log.info,
        lambda: next(log.events()),
        lambda: list(log.table()),
        lambda: log.table("POSE").columns,
        lambda: sluice.convert("a.bin", "a.lcm"),
    ]
    for attempt in attempts:
        with pytest.raises(sluice.InputError, match="a.bin"):
            attempt()


@pytest.mark.parametrize(
    ("inputs", "format", "words"),
    [
        ("no*.lcm", None, r"no file matches `.*no\*.lcm`"),
        ("a.bin", "lcm-log", "a.bin is text, not an LCM log"),
    ],
)
def test_what_runs_refuse_is_no_input_error(inputs: str, format: str | None, words: str) -> None:
    Path("a.bin").write_bytes(b"junk" * 100)
    log = sluice.open(inputs, format=format)
    attempts: list[Callable[[], Any]] = [
        log.info,
        lambda: next(log.events()),
        lambda: list(log.table()),
        lambda: log.table("POSE").columns,
        lambda: sluice.convert(inputs, "a.lcm", format=format),
        lambda: sluice.report(inputs, format=format),
    ]
    for attempt in attempts:
        with pytest.raises(sluice.SluiceError, match=words) as refused:
            attempt()
        assert refused.type is sluice.SluiceError


def test_errors_before_the_first_row_are_those_of_the_package_for_takers_of_streams(
    torn: Path,
) -> None:
    pa = pytest.importorskip("pyarrow")
    Path("bad.parquet").write_bytes(b"PAR1" + bytes(50) + b"PAR1")
    Path("bad.txt").write_bytes(b"junk" * 100)
    for log, kind in [
        (sluice.open("bad.parquet"), sluice.InputError),
        (sluice.open("bad.txt", format="lcm-log"), sluice.SluiceError),
    ]:
        with pytest.raises(sluice.SluiceError, match=r"bad\.") as error:
            pa.table(log.table())
        assert error.type is kind
    # Damage before all events that are wanted.
    Path("cut.lcm").write_bytes(bytes(3000) + torn.read_bytes())
    with pytest.raises(sluice.DamageError, match="cut.lcm"):
        pa.table(sluice.open("cut.lcm", format="lcm-log").table(strict=True))


def test_a_table_without_rows_is_taken_with_its_result(drive: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    table = sluice.open(drive).table(end="1990-01-01T00:00:00Z")
    rows = pa.table(table)
    assert len(rows) == 0 and rows.column_names == table.columns
    assert table.result is not None and table.result.exit == 0


def test_ctrl_c_ends_a_read_with_a_keyboard_interrupt(tmp_path: Path) -> None:
    (tmp_path / "endless.toml").write_text(
        '[sources.demo]\nplugin = "demo"\nseconds = 100000\n'
        '[sinks.out]\nplugin = "null"\nfrom = "demo"\n'
    )
    code = """
        import os, signal, threading
        import sluice
        # A job in the background of a shell ignores it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            sluice.run("endless.toml")
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert run_python(code).stdout == "interrupted\n"


INTERRUPTS = """
    import _thread, itertools, os, signal, sys
    from collections import deque
    import sluice
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = sluice.open([sys.argv[1]] * 100)

    def consume(items):
        # All in C, which handles no signals between two items. The handler is due from the first.
        taken = itertools.count()
        interrupt = map(_thread.interrupt_main, [signal.SIGINT])
        try:
            deque(zip(itertools.chain(interrupt, items), taken), maxlen=0)
        finally:
            print(next(taken) < 500_000)
"""


@pytest.mark.parametrize("what", ["events", "table"])
def test_ctrl_c_ends_a_read_whose_data_keeps_coming(drive: Path, what: str) -> None:
    code = f"""
        try:
            items = iter(log.{what}())
            next(items)
            if "{what}" == "events":
                consume(items)
            else:
                consume(itertools.chain.from_iterable(map(range, map(len, items))))
        except KeyboardInterrupt:
            print("interrupted", next(items, None))
    """
    done = run_python(textwrap.dedent(INTERRUPTS) + textwrap.dedent(code), str(drive))
    assert done.stdout == "True\ninterrupted None\n", done.stderr


@pytest.mark.parametrize("handler", ["default_int_handler", "passing"])
def test_ctrl_c_ends_a_stream_unless_a_handler_passes_it(drive: Path, handler: str) -> None:
    pytest.importorskip("pyarrow")
    code = f"""
        import os, signal, sys
        import pyarrow as pa
        import sluice
        signal.passing = lambda *_: None
        signal.signal(signal.SIGINT, signal.{handler})
        table = sluice.open([sys.argv[1]] * 5).table(columns=["sequence"])
        reader = pa.RecordBatchReader.from_stream(table)
        rows = len(reader.read_next_batch())
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            pass
        try:
            print(rows + len(reader.read_all()))
        except pa.ArrowException as error:
            print(type(error).__name__)
    """
    done = run_python(code, str(drive))
    expected = "28775\n" if handler == "passing" else "ArrowInvalid\n"
    assert done.stdout == expected, done.stderr


def test_ctrl_c_ends_a_stream_after_the_handler_of_python_was_set_again(drive: Path) -> None:
    pytest.importorskip("pyarrow")
    code = """
        import os, signal, sys
        import pyarrow as pa
        import sluice
        log = sluice.open([sys.argv[1]] * 5)
        for handler in [signal.default_int_handler, signal.SIG_IGN, lambda *_: None] * 2:
            signal.signal(signal.SIGINT, handler)
            # As each cell of a notebook does.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            reader = pa.RecordBatchReader.from_stream(log.table(columns=["sequence"]))
            reader.read_next_batch()
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                pass
            try:
                print(len(reader.read_all()))
            except pa.ArrowException as error:
                print(type(error).__name__)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        pa.table(log.table(columns=["sequence"]))
        os.kill(os.getpid(), signal.SIGINT)
    """
    done = run_python(code, str(drive))
    assert done.stdout == 6 * "ArrowInvalid\n", done.stderr
    assert done.returncode == -signal.SIGINT, done.stderr


# A handler of a library in C, which ignores the signal.
HANDLER_IN_C = "libc.signal(signal.SIGINT, ctypes.cast(libc.abs, ctypes.c_void_p))"


@pytest.mark.parametrize(
    ("cell", "act", "expected"),
    [
        (0, HANDLER_IN_C, 3 * "ended "),
        # In that cell, ours is not called.
        (1, HANDLER_IN_C, "ended read ended"),
        (0, "import polars", 3 * "ended "),
        (1, "import polars", "ended read ended"),
        (0, "sys.modules['ctypes'] = None", "ended read read"),
    ],
)
def test_ctrl_c_ends_a_stream_beside_the_handlers_of_others(
    drive: Path, cell: int, act: str, expected: str
) -> None:
    pytest.importorskip("pyarrow")
    if "polars" in act:
        pytest.importorskip("polars")
    code = f"""
        import ctypes, os, signal, sys
        import pyarrow as pa
        import sluice
        libc = ctypes.CDLL(None)
        log = sluice.open([sys.argv[1]] * 5)
        for cell in range(3):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if cell == {cell}:
                {act}
            reader = pa.RecordBatchReader.from_stream(log.table(columns=["sequence"]))
            reader.read_next_batch()
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                pass
            try:
                reader.read_all()
                print("read")
            except pa.ArrowException:
                print("ended")
    """
    done = run_python(code, str(drive))
    assert done.stdout.split() == expected.split(), done.stderr


@pytest.mark.parametrize("table", ["table()", 'table("POSE")'])
@pytest.mark.parametrize("thread", ["main", "other"])
def test_ctrl_c_ends_the_wait_for_the_first_rows(drive: Path, thread: str, table: str) -> None:
    pytest.importorskip("pyarrow")
    code = f"""
        import fcntl, os, signal, sys, termios, threading, time
        import pyarrow as pa
        import sluice
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.mkfifo("live.lcm")
        writer = os.open("live.lcm", os.O_RDWR)
        # The beginning of a first event.
        os.write(writer, open(sys.argv[1], "rb").read(40))

        def take():
            try:
                pa.table(sluice.open("live.lcm", format="lcm-log").{table})
            except BaseException as error:
                print(type(error).__name__, time.monotonic() - begun < 1)

        def interrupt():
            global begun
            while fcntl.ioctl(writer, termios.FIONREAD, bytes(4)) != bytes(4):
                time.sleep(0.01)
            begun = time.monotonic()
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                pass

        in_main, in_other = (take, interrupt) if "{thread}" == "main" else (interrupt, take)
        thread = threading.Thread(target=in_other, daemon=True)
        thread.start()
        in_main()
        thread.join(10)
    """
    done = run_python(code, str(drive))
    assert done.stdout == "KeyboardInterrupt True\n" and done.returncode == 0, done.stderr


def test_a_handler_may_close_the_iterator_that_waits(drive: Path) -> None:
    code = """
        events = log.events()

        def close(*_):
            try:
                next(events)
            except ValueError as error:
                print(error)
            events.close()

        next(events)
        signal.signal(signal.SIGINT, close)
        consume(events)
        print(next(events, None))
    """
    done = run_python(textwrap.dedent(INTERRUPTS) + textwrap.dedent(code), str(drive))
    words = "the iterator is already waiting for its next item"
    assert done.stdout == f"{words}\nTrue\nNone\n", done.stderr


def test_another_thread_may_close_an_iterator_that_waits(drive: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.lcm"
    os.mkfifo(pipe)
    code = """
        import os, sys, threading
        import sluice
        first, taken, left = open(sys.argv[1], "rb").read(100_000), threading.Event(), []

        def write():
            with open(sys.argv[2], "wb", buffering=0) as pipe:
                pipe.write(first)
                done.wait()

        def take():
            for event in events:
                taken.set()
            left.append("ended")

        done = threading.Event()
        writer = threading.Thread(target=write)
        writer.start()
        events = sluice.open(sys.argv[2]).events()
        reader = threading.Thread(target=take)
        reader.start()
        taken.wait()
        events.close()
        reader.join()
        done.set()
        writer.join()
        print(left)
    """
    done = run_python(code, str(drive), str(pipe))
    assert done.stdout == "['ended']\n", done.stderr


def test_a_forked_process_opens_logs_again(drive: Path) -> None:
    code = """
        import os, sys
        import sluice
        log = sluice.open(sys.argv[1])
        count = lambda: sum(1 for _ in log.events("POSE"))
        assert count() == 200
        child = os.fork()
        if child == 0:
            os._exit(count() - 200)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run_python(code, str(drive)).stdout == "0\n"


def test_nothing_is_read_after_an_iterator_is_closed(drive: Path) -> None:
    code = """
        import os, sys
        import sluice
        codes = set()
        for _ in range(20):
            events = sluice.open([sys.argv[1]] * 50).events()
            next(events)
            events.close()
            child = os.fork()
            if child == 0:
                try:
                    next(sluice.open(sys.argv[1]).events())
                except sluice.SluiceError:
                    os._exit(1)
                os._exit(0)
            codes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(codes)
    """
    assert run_python(code, str(drive)).stdout == "{0}\n"


def test_nothing_is_read_after_a_loop_over_a_table_is_left(drive: Path) -> None:
    code = """
        import os, sys
        import sluice
        codes = set()
        for number in range(20):
            log = sluice.open([sys.argv[1]] * 50)
            if number % 2:
                for batch in log.table():
                    break
            else:
                batches = iter(log.table("POSE"))
                next(batches)
                batches.close()
                assert list(batches) == []
            child = os.fork()
            if child == 0:
                try:
                    next(sluice.open(sys.argv[1]).events())
                except sluice.SluiceError:
                    os._exit(1)
                os._exit(0)
            codes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(codes)
    """
    assert run_python(code, str(drive)).stdout == "{0}\n"


WRONG = [
    ({"start": "+100"}, 0, "no event is in the time window; the first is at"),
    ({"where": "name == 'x'"}, 0, "no event has a field `name`"),
    ({"exclude": "POES"}, 200, "no channel matches `POES`; did you mean `POSE`"),
]


@pytest.mark.parametrize("wrong, rows, words", WRONG)
def test_a_name_that_matches_nothing_is_told_at_the_end_of_a_table(
    drive: Path, wrong: dict[str, Any], rows: int, words: str
) -> None:
    table = sluice.open(drive).table("POSE", **wrong)
    with pytest.warns(UserWarning, match=words) as given:
        assert sum(len(batch) for batch in table) == rows
    assert all(warning.filename == __file__ for warning in given)
    assert table.result is not None and words in table.result.warnings[0].text
    with pytest.warns(UserWarning, match=words):
        list(sluice.open(drive).events("POSE", strict=None, **wrong))  # type: ignore[arg-type]
        list(sluice.open(drive).table("POSE", strict=None, **wrong))  # type: ignore[arg-type]
    strict = sluice.open(drive).table("POSE", strict=True, **wrong)
    with pytest.raises(sluice.ConfigError, match=words):
        list(strict)


@pytest.mark.parametrize("wrong, rows, words", WRONG)
def test_a_stream_of_a_table_fails_or_warns_of_a_name(
    drive: Path, wrong: dict[str, Any], rows: int, words: str
) -> None:
    pa = pytest.importorskip("pyarrow")
    table = sluice.open(drive).table("POSE", **wrong)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        assert pa.table(table).num_rows == rows
    # Rows that came before the end may be taken on any thread.
    assert any(str(each.message).startswith(words) for each in given) == (rows == 0)
    assert all(each.filename == __file__ for each in given)
    assert table.result is not None and words in table.result.warnings[0].text
    strict = sluice.open(drive).table("POSE", strict=True, **wrong)
    error = pa.ArrowInvalid if rows else sluice.ConfigError
    with pytest.raises(error, match=words):
        pa.table(strict)


def test_a_scan_warns_of_names_of_the_table_and_not_of_those_of_the_query(drive: Path) -> None:
    pl = pytest.importorskip("polars")
    log = sluice.open(drive)
    later = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    with warnings.catch_warnings(action="error"):
        assert log.table("POSE", strict=True).scan().filter(pl.col("timestamp") > later).collect(
        ).is_empty()
        unknown = log.table(strict=True).scan().filter(pl.col("channel") == "POES")
        assert unknown.collect().is_empty()
    with pytest.warns(UserWarning, match="no channel matches `POES`"):
        assert log.table("POSE", exclude="POES").scan().collect().height == 200
    with pytest.raises(sluice.ConfigError, match="no channel matches `POES`"):
        log.table("POSE", exclude="POES", strict=True).scan().collect()
    # Nothing of the query is used where the table has a limit or times of its own.
    early = pl.col("timestamp") < later
    owns: list[dict[str, Any]] = [{"limit": 1000}, {"start": "+0", "end": "+1"}]
    for own in owns:
        with pytest.raises(sluice.ConfigError, match="no channel .*matches `POES`"):
            log.table("POSE", exclude="POES", strict=True, **own).scan().filter(early).collect()


def test_pandas_does_not_take_a_table_for_a_list_of_batches(drive: Path) -> None:
    pd = pytest.importorskip("pandas")
    with pytest.raises(TypeError, match="pandas.DataFrame.from_arrow"):
        pd.DataFrame(sluice.open(drive).table("POSE"))


def test_views_that_are_not_read_are_told(drive: Path, tmp_path: Path) -> None:
    sluice.convert(drive, tmp_path / "all.mcap", types="mit-dgc")
    log = sluice.open(tmp_path / "all.mcap")
    assert "/gps" in [channel.name for channel in log.channels]
    told = "events of views, which only show what other channels hold"
    with pytest.raises(sluice.ConfigError, match=f"channel `/gps` is not read: {told}"):
        log.table("/gps").columns
    with pytest.warns(UserWarning, match=told):
        assert list(log.events("/gps")) == []
    sluice.convert(tmp_path / "all.mcap", tmp_path / "views.mcap", channels="/gps")
    views = sluice.open(tmp_path / "views.mcap")
    assert "latitude" in views.table("/gps").columns
    assert len(list(views.events("/gps", strict=True))) > 0


def test_one_column_may_be_a_text(drive: Path) -> None:
    assert sluice.open(drive).table("POSE", columns="pos").columns == ["pos"]


def test_a_process_that_was_forked_during_a_read_can_start_no_other(drive: Path) -> None:
    code = """
        import os, sys
        import sluice
        log = sluice.open([sys.argv[1]] * 50)
        events = log.events()
        next(events)
        child = os.fork()
        if child == 0:
            try:
                log.events()
            except sluice.SluiceError as error:
                os._exit(0 if "forked" in str(error) else 1)
            os._exit(2)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run_python(code, str(drive)).stdout == "0\n"
