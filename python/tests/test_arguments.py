"""Arguments: what is taken, and how messages name what is not."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sluice


def test_messages_about_an_option_begin_with_its_name_in_python(drive: Path) -> None:
    log = sluice.open(drive)

    def convert(to: str = "a.lcm", **given: Any) -> Callable[[], object]:
        return lambda: sluice.convert(drive, to, **given)

    Path("d.toml").write_text("[log]\ncount = 1\n")
    given: list[tuple[Callable[[], object], str]] = [
        (lambda: log.events(limit=2.5), "limit: `2.5`: "),  # type: ignore[arg-type]
        (lambda: log.events(start="noon"), "start: `noon` is not a time: "),
        (lambda: log.events("re:("), "channels: `re:(`: "),
        (lambda: log.events(where=""), "where: expected a value"),
        (lambda: sluice.open(drive, describe="d.toml").info(), "describe /"),
        (convert(shard="3/2"), "shard: `3/2`: there is no shard 3 of 2"),
        (convert(jobs=-1), "jobs: `-1`: "),
        (convert(resume=True, overwrite=True), "overwrite: it cannot be used with `resume`"),
        (convert("a.csv", align="50Hz"), "fields: it is needed"),
        (convert(source_name=""), "source_name: expected a value"),
    ]
    for call, begin in given:
        with pytest.raises(sluice.ConfigError) as error:
            call()
        assert str(error.value).startswith(begin)


@pytest.mark.parametrize("none", [[], ()])
def test_no_channels_are_not_all_channels(drive: Path, none: Any) -> None:
    log = sluice.open(drive)
    calls: list[Callable[[], object]] = [
        lambda: log.events(none),
        lambda: log.events(none, strict=True),
        lambda: sluice.convert(drive, "a.lcm", channels=none),
        lambda: sluice.report(drive, channels=none),
    ]
    for call in calls:
        with pytest.raises(sluice.ConfigError, match="^channels: expected at least one, found"):
            call()
    with pytest.raises(sluice.ConfigError, match="^channels: expected at least one, found"):
        log.events(name for name in ["POSE"] if name == "POES")
    assert sum(1 for _ in log.events(exclude=none)) == 5755


def test_what_is_no_path_is_refused_with_the_right_advice(drive: Path) -> None:
    calls: list[tuple[Callable[[Any], object], Any, str]] = [
        (sluice.run, {"sources": {}}, "a path as text, found dict; a pipeline is given as the pa"),
        (sluice.check, {"sources": {}}, "a path as text, found dict; a pipeline is given as the "),
        (sluice.open, {"a.lcm": 1}, "a path or a list of paths, found dict$"),
        (sluice.open, 5, "a path or a list of paths, found int$"),
        (sluice.open, [5], "a path as text, found int$"),
        (sluice.open, [b"a.lcm"], "a path as text, found bytes; `open` takes the bytes of a log"),
        (sluice.open, io.BytesIO(b""), "a path, found BytesIO; `open` takes .* that `read` ret"),
        (lambda path: sluice.convert(path, "a.lcm"), io.StringIO(), "a path, found StringIO"),
    ]
    for call, wrong, words in calls:
        with pytest.raises(TypeError, match=f"^expected {words}"):
            call(wrong)
    with open(drive, "rb") as file, pytest.raises(TypeError, match="found BufferedReader"):
        sluice.open(file)  # type: ignore[arg-type]


def test_times_have_any_usual_type(drive: Path) -> None:
    log = sluice.open(drive)
    for start in [1_194_098_401.0, timedelta(seconds=1)]:
        assert sum(1 for _ in log.events("POSE", start=start)) == 100
    negative = "^start: expected a duration that is not negative, found datetime.timedelta"
    with pytest.raises(sluice.ConfigError, match=negative):
        log.events(start=timedelta(seconds=-1))
    with pytest.raises(sluice.ConfigError, match="^start: `0.0000001` is 1970-01-01T00:00"):
        log.events(start=1e-7)
    with pytest.raises(sluice.ConfigError, match="^end: expected a time, found nan"):
        log.events(end=float("nan"))
    with pytest.raises(sluice.ConfigError, match="^tolerance: expected a duration that is not"):
        sluice.convert(
            drive, "a.csv", align="1Hz", fields="POSE.vel", tolerance=timedelta(seconds=-1)
        )


def test_times_of_numpy_and_pandas_are_taken(drive: Path) -> None:
    np = pytest.importorskip("numpy")
    pd = pytest.importorskip("pandas")
    log = sluice.open(drive)
    for start in [
        np.datetime64("2007-11-03T14:00:01"),
        np.datetime64("2007-11-03T14:00:01.000000000"),
        np.timedelta64(1, "s"),
        np.timedelta64(1_000_000_000, "ns"),
        np.float64(1_194_098_401),
        np.int64(1_194_098_401),
        pd.Timestamp("2007-11-03T14:00:01Z"),
        pd.Timedelta(1, "s"),
    ]:
        assert sum(1 for _ in log.events("POSE", start=start)) == 100, repr(start)
    wrong = [
        (pd.NaT, "expected a time, found NaT"),
        (np.datetime64("NaT", "s"), "expected a time, found NaT"),
        (np.datetime64("3000-01-01"), "`3000-01-01` is out of range"),
        (np.timedelta64(-1, "s"), "expected a duration that is not negative"),
        (pd.Timedelta(-1, "s"), "expected a duration that is not negative"),
        (pd.Timedelta.max.as_unit("s") * 2, r"`\+18446744072\.000000`: .* out of range"),
    ]
    for start, words in wrong:
        with pytest.raises(sluice.ConfigError, match=f"^start: {words}"):
            log.events(start=start)
    rows = sluice.convert(
        drive, "a.csv", align="10Hz", fields="POSE.vel", tolerance=np.timedelta64(200, "ms"),
        types="mit-dgc",
    )  # fmt: skip
    assert rows.written > 15


@pytest.mark.filterwarnings("ignore:The 'generic' unit")
def test_what_is_no_single_time_or_duration_is_refused_by_name(drive: Path) -> None:
    np = pytest.importorskip("numpy")
    pd = pytest.importorskip("pandas")
    log = sluice.open(drive)

    def convert(tolerance: Any) -> None:
        sluice.convert(drive, "a.csv", align="1Hz", fields="POSE.vel", tolerance=tolerance)

    for missing in [pd.NaT, np.timedelta64("NaT"), np.timedelta64("NaT", "s"), float("nan")]:
        with pytest.raises(sluice.ConfigError, match="^start: expected a time, found (NaT|nan)"):
            log.events(start=missing)
        with pytest.raises(sluice.ConfigError, match="^tolerance: expected a duration, found"):
            convert(missing)
    for count in [0, 5]:
        unit = rf"a duration with a unit, such as `timedelta64\(5, 's'\)`, found .*{count}"
        with pytest.raises(sluice.ConfigError, match=f"^end: expected {unit}"):
            log.table("POSE", end=np.timedelta64(count))
        with pytest.raises(sluice.ConfigError, match=f"^tolerance: expected {unit}"):
            convert(np.timedelta64(count))
    with pytest.raises(sluice.ConfigError, match="^tolerance: .* out of range"):
        convert(pd.Timedelta.max.as_unit("s") * 2)
    times = np.array(["2007-11-03T14:00:01"], dtype="datetime64[ns]")
    durations = np.array([1], dtype="timedelta64[s]")
    for several in [
        times, durations, durations[:0], np.array([1]), pd.Series(times), pd.Series(durations),
        pd.DatetimeIndex(times), pd.TimedeltaIndex(durations), [1], {"a": 1},
    ]:  # fmt: skip
        name = type(several).__name__
        with pytest.raises(TypeError, match=f"^start: expected a time, found {name}$"):
            log.events(start=several)
        with pytest.raises(TypeError, match=f"^tolerance: expected a duration, found {name}$"):
            convert(several)
    assert sum(1 for _ in log.events("POSE", start=times.reshape(()))) == 100


def test_a_log_stays_the_same_where_the_working_folder_changes(
    drive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "of [logs]"
    folder.mkdir()
    (folder / "drive.lcm").symlink_to(drive)
    (folder / "types").mkdir()
    (folder / "types/a.lcm").write_text("package a; struct b { int32_t c; }")
    monkeypatch.chdir(folder)
    Path("d.toml").write_text('plugin = "lcm-log"\n')
    logs = [
        sluice.open("drive.lcm"),
        sluice.open("dr*.lcm"),
        sluice.open(["./drive.lcm"], types=["mit-dgc", "types/*.lcm"]),
        sluice.open("drive.lcm", describe="d.toml"),
    ]
    tables = [log.table("POSE") for log in logs]
    assert sum(map(len, tables[0])) == 200
    monkeypatch.chdir(tmp_path)
    for log, table in zip(logs, tables, strict=True):
        assert sum(map(len, table)) == 200 and log.info().events == 5755
    with pytest.raises(sluice.SluiceError, match="gone.lcm"):
        sluice.open("gone.lcm").info()


@pytest.mark.parametrize("name", ["logs", "of [logs]", "of logs?", "of *"])
def test_what_is_not_there_is_told_as_elsewhere_in_any_working_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.chdir(folder)
    for log in [sluice.open("gone.lcm"), sluice.open("gone/gone.lcm")]:
        with pytest.raises(sluice.InputError, match=r"^cannot open .*gone\.lcm: no such file"):
            log.info()
        with pytest.raises(sluice.InputError, match=r"^cannot open .*gone\.lcm: no such file"):
            list(log.events())
    with pytest.raises(sluice.SluiceError, match=r"^no file matches `/.*/gone\*\.lcm`"):
        sluice.open("gone*.lcm").info()
    # Addresses that lack slashes: the program has advice.
    for path in ["s3:/bucket/a", "s3:bucket/a", "gs:/bucket/a", "s3:/bucket/*.lcm"]:
        with pytest.raises(sluice.SluiceError) as expected:
            sluice.convert(path, "a.csv")
        with pytest.raises(sluice.SluiceError) as error:
            sluice.open(path).info()
        assert str(error.value) == str(expected.value) and str(tmp_path) not in str(error.value)


def test_names_like_addresses_stay_the_same_where_the_working_folder_changes(
    drive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("run1:").mkdir()
    for path in ["run1:/drive.lcm", "run1:a.lcm"]:
        Path(path).symlink_to(drive)
    paths = ["run1:/drive.lcm", "run1:a.lcm", "run1:/*.lcm", "run1:*.lcm"]
    logs = [sluice.open(path) for path in paths]
    monkeypatch.chdir(tmp_path.parent)
    assert [log.info().events for log in logs] == [5755] * 4


def test_bytes_leave_no_file_where_other_arguments_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(TypeError, match="memory"):
        sluice.open(b"a", memory=5)  # type: ignore[arg-type]
    with pytest.raises(sluice.ConfigError, match="^memory: "):
        sluice.open(b"a", memory="much")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("contents", [b"", bytes(range(128, 256)) * 8, b"\x89PNG\r\n" + bytes(50)])
def test_bytes_claim_no_format(contents: bytes) -> None:
    log = sluice.open(contents)
    calls: list[Callable[[], object]] = [
        log.info, lambda: list(log.events()), lambda: list(log.table()),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(sluice.InputError, match=r"^cannot detect the format of bytes[:;]"):
            call()


def test_messages_about_bytes_name_no_file(torn: Path) -> None:
    contents = torn.read_bytes()
    log = sluice.open(contents)
    assert [file.path for file in log.info().files] == ["bytes"] and repr(log) == "Log('bytes')"
    assert {damage.input for damage in log.damage} == {"bytes"}
    table = log.table("POSE")
    list(table)
    assert table.result is not None and table.result.damage == log.damage
    with pytest.raises(sluice.DamageError, match="^bytes: "):
        list(log.events(strict=True))


def test_the_bytes_of_an_index_have_no_files_beside_them(drive: Path, tmp_path: Path) -> None:
    sluice.convert(drive, "d.orca", channels="POSE")
    # Others may write where temporary files are.
    code = (
        "import sluice, sys\n"
        "log = sluice.open(open('d.orca', 'rb').read())\n"
        "print(log.info().events, len(log.damage) > 0)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout == "0 True\n", done.stderr


def test_the_members_of_exceptions_are_described() -> None:
    for kind, member in [(sluice.SluiceError, "result"), (sluice.ConfigError, "diagnostics")]:
        assert getattr(kind, member).__doc__
    assert sluice.SluiceError("a").result is None and sluice.ConfigError("a").diagnostics == []
