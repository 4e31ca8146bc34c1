"""The verbs: the results of the program, as objects."""

from __future__ import annotations

import datetime
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sluice


def test_convert_writes_what_the_program_writes_and_says_what_it_did(drive: Path) -> None:
    result = sluice.convert(drive, "pose.lcm", channels="POSE", hash=True)
    assert result and (result.exit, result.written) == (0, 200)
    (file,) = result.files
    assert (file.path, file.rows) == ("pose.lcm", 200) and file.blake3
    assert os.path.getsize("pose.lcm") == file.bytes
    for channel in result.report["channels"]:
        assert channel["in"] == channel["out"] + channel["filtered"] + channel["damaged"]


def test_nothing_is_overwritten_unless_that_is_asked_for(drive: Path) -> None:
    assert sluice.convert(drive, "a.lcm", channels="POSE")
    with pytest.raises(sluice.SluiceError, match="a.lcm"):
        sluice.convert(drive, "a.lcm")
    assert sluice.convert(drive, "a.lcm", channels="GPS_TO_LOCAL", overwrite=True).written == 20


def test_damage_is_a_result_and_not_an_error(torn: Path) -> None:
    result = sluice.convert(torn, "a.lcm")
    assert not result and result.exit == 3
    assert result.damage and any(message.kind == "damage" for message in result.warnings)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda path: [path], lambda _: [1]])
def test_a_path_that_is_no_text_is_a_type_error(drive: Path, kind: Callable[[bytes], Any]) -> None:
    wrong = kind(os.fsencode(drive))
    calls: list[Callable[..., Any]] = [sluice.convert, sluice.report]
    for call in calls:
        with pytest.raises(TypeError, match="expected a path as text, found (bytes|int|byte|mem)"):
            call(wrong, "a.lcm")
    with pytest.raises(TypeError, match="expected a path as text"):
        sluice.check(os.fsencode("p.toml"))  # type: ignore[arg-type]


def test_a_report_has_figures_or_files(drive: Path) -> None:
    # Type checkers know which.
    figures = sluice.report(drive, channels="POSE")
    assert figures["channels"][0]["name"] == "POSE"
    files = sluice.report(drive, "a.html", channels="POSE").files
    assert [file.path for file in files] == ["a.html"]


def test_damage_is_a_failure_if_the_source_stops_at_it(torn: Path) -> None:
    with pytest.raises(sluice.DamageError, match="torn.lcm"):
        sluice.convert(torn, "a.lcm", options={"on_damage": "stop"})
    assert not os.path.exists("a.lcm")
    # That of verbs is about names.
    assert sluice.convert(torn, "a.lcm", strict=True).exit == 3
    with pytest.raises(sluice.ConfigError, match="no channel matches `POES`"):
        sluice.convert(torn, "b.lcm", strict=True, channels="POES")
    assert not os.path.exists("b.lcm")


def test_wrong_arguments_are_config_errors(drive: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"start": "noon"},
        {"channels": "re:["},
        {"to_format": "lcm-lgo"},
        {"sink_options": {"splitmb": 1}},
        {"memory": "much"},
    ]
    for arguments in wrong:
        with pytest.raises(sluice.ConfigError) as error:
            sluice.convert(drive, "a.lcm", **arguments)
        assert str(error.value) and "Usage" not in str(error.value)
    for path in ["bad\udcff.lcm", os.fsdecode(b"bad\xff.lcm")]:
        with pytest.raises(sluice.ConfigError, match=r"UTF-8, found 'bad.udcff.lcm'"):
            sluice.open(path)
        with pytest.raises(sluice.ConfigError, match=r"UTF-8, found 'bad.udcff.lcm'"):
            sluice.convert(drive, path)
    for jobs in [-1, 2**70]:
        with pytest.raises(sluice.ConfigError, match="jobs"):
            sluice.open(drive, jobs=jobs)
        with pytest.raises(sluice.ConfigError, match="jobs"):
            sluice.convert(drive, "a.lcm", jobs=jobs)
    with pytest.raises(sluice.ConfigError, match="standard input"):
        sluice.convert("-", "a.lcm")
    with pytest.raises(sluice.ConfigError, match="at least one path"):
        sluice.convert([], "a.lcm")
    with pytest.raises(sluice.ConfigError, match="standard output"):
        sluice.convert(drive, "-")


def test_unknown_options_are_refused_and_known_ones_are_listed(drive: Path) -> None:
    # mypy finds them, too: it would object to a needless `ignore`.
    with pytest.raises(TypeError, match="frobnicate"):
        sluice.convert(drive, "a.lcm", frobnicate=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="limits"):
        sluice.open(drive).table("POSE", limits=1)  # type: ignore[call-arg]
    listed = inspect.signature(sluice.convert).parameters
    assert {"channels", "types", "jobs", "overwrite", "to_format"} <= set(listed)
    assert (listed["hash"].default, listed["types"].default) == (False, None)


def test_none_is_an_option_that_is_not_given(drive: Path) -> None:
    variables = {"INPUT": drive, "OUT": None, "TASK": None}
    assert sluice.check("lcm-to-lerobot", variables) == []
    assert sluice.run("lcm-to-lerobot", variables)
    assert os.path.isdir("dataset") and not os.path.exists("None")
    nothing: dict[str, Any] = dict.fromkeys(
        ["channels", "exclude", "types", "channel_types", "fields", "align", "tolerance", "shard"]
    )
    options: dict[str, Any] = {
        "sink_options": {"split_mb": None},
        "options": {"on_damage": None},
    }
    assert sluice.convert(drive, "a.lcm", **nothing, **options).written == 5755
    log = sluice.open(drive, types=None, channel_types={"POSE": None})  # type: ignore[dict-item]
    assert sum(1 for _ in log.events(None, exclude=None)) == 5755


def test_what_is_no_text_is_refused(drive: Path) -> None:
    log = sluice.open(drive)
    calls: list[Callable[[Any], object]] = [
        lambda wrong: sluice.run("lcm-to-lerobot", {"INPUT": drive, "TASK": wrong}),
        lambda wrong: sluice.check("lcm-to-lerobot", {"INPUT": wrong}),
        lambda wrong: sluice.convert(drive, "a.lcm", sink_options={"split_mb": wrong}),
        lambda wrong: sluice.convert(drive, "a.lcm", sink_options={"split_mb": [wrong]}),
        lambda wrong: sluice.convert(drive, "a.lcm", channels=wrong),
        lambda wrong: sluice.convert(drive, "a.lcm", channels=[wrong]),
        lambda wrong: sluice.convert(drive, "a.lcm", where=wrong),
        lambda wrong: log.events(wrong),
        lambda wrong: log.table("POSE", columns=wrong),
        lambda wrong: log.table("POSE", start=wrong),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="expected text, found bytes; decode it"):
            call(b"POSE")
    with pytest.raises(TypeError, match="one value, found list; give several as one text, such as"):
        sluice.run("lcm-to-lerobot", {"INPUT": [drive, drive]})
    nothings: list[dict[str, Any]] = [
        {"channels": [None]}, {"sink_options": {"split_mb": [None]}},
    ]  # fmt: skip
    for nothing in nothings:
        with pytest.raises(TypeError, match="expected a value, found None; leave it out"):
            sluice.convert(drive, "a.lcm", **nothing)
    with pytest.raises(TypeError, match="one value or a list, found set$"):
        sluice.convert(drive, "a.lcm", sink_options={"split_mb": {1, 2}})
    assert not os.listdir(".")


def test_rows_on_one_time_base_have_episodes(drive: Path) -> None:
    sluice.convert(
        drive,
        "rows.csv",
        align="10Hz",
        fields=["POSE.vel", "pos=POSE.pos"],
        tolerance=datetime.timedelta(milliseconds=200),
        episodes={"gap": datetime.timedelta(seconds=5), "min_rows": 2},
        channel_types={"POSE": "lcmtypes.pose_t"},
    )
    head, *rows = Path("rows.csv").read_text().splitlines()
    assert "pos" in head and "episode" in head and 15 < len(rows) <= 21


def test_a_part_of_the_outputs_is_written(drive: Path) -> None:
    for name in "abc":
        Path(f"{name}.lcm").symlink_to(drive)
    inputs = ["a.lcm", "b.lcm", "c.lcm"]
    sluice.convert(inputs, "out/{stem}.jsonl", channels="POSE", shard="2/2")
    assert [name for name in os.listdir("out") if name.endswith(".jsonl")] == ["b.jsonl"]


def test_a_source_that_runs_a_program_needs_a_permission() -> None:
    exec_log: dict[str, Any] = {"format": "exec", "options": {"command": ["false", "{input}"]}}
    with pytest.raises(sluice.ConfigError, match="allow_exec=True"):
        sluice.convert("a", "a.lcm", **exec_log)
    with pytest.raises(sluice.SluiceError) as error:
        sluice.convert("a", "a.lcm", allow_exec=True, **exec_log)
    assert "allow" not in str(error.value)


def test_an_exception_has_the_result_of_a_run_that_went_on(drive: Path) -> None:
    Path("a.lcm").symlink_to(drive)
    Path("b.lcm").write_bytes(b"no log")
    with pytest.raises(sluice.SluiceError) as error:
        sluice.convert(
            ["a.lcm", "b.lcm"], "out/{stem}.lcm", channels="POSE", keep_going=True
        )
    result = error.value.result
    assert result is not None and [file.path for file in result.files] == ["out/a.lcm"]
    with pytest.raises(sluice.SluiceError) as error:
        sluice.open("gone.lcm").info()
    assert error.value.result is None


def test_messages_name_options_as_in_python(drive: Path) -> None:
    assert sluice.convert(drive, "a.lcm")
    with pytest.raises(sluice.SluiceError, match="overwrite=True"):
        sluice.convert(drive, "a.lcm")
    with pytest.raises(sluice.ConfigError, match="with to_format"):
        sluice.convert(drive, "a.xyz")
    with pytest.raises(sluice.ConfigError, match="^sink_options splitmb: "):
        sluice.convert(drive, "b.lcm", sink_options={"splitmb": 1})
    with pytest.raises(sluice.ConfigError, match="^types: no types are declared"):
        sluice.convert(drive, "b.lcm", channel_types={"POSE": "a.b_t"})
    result = sluice.convert(drive, "b.lcm", channels=["POES", "POSE"])
    assert any(message.text.startswith("channels: no channel") for message in result.warnings)


def test_paths_and_what_programs_say_are_not_taken_for_options(drive: Path) -> None:
    with pytest.raises(sluice.SluiceError, match="/--to/b.lcm"):
        sluice.convert("/--to/b.lcm", "c.lcm")
    assert sluice.convert(drive, "x --to y.lcm", channels="POSE")
    with pytest.raises(sluice.SluiceError) as error:
        sluice.convert(drive, "x --to y.lcm", channels="POSE")
    assert str(error.value) == "the output exists; overwrite=True replaces it: x --to y.lcm"
    with pytest.raises(sluice.SluiceError, match="gone x --to y.lcm"):
        sluice.convert("gone x --to y.lcm", "b.lcm")
    usage = "usage: child --to FILE [--overwrite]; --overwrite replaces it"
    child = ["sh", "-c", f"echo '--to: {usage}' >&2; exit 1", "{input}"]
    with pytest.raises(sluice.SluiceError) as error:
        sluice.convert("x --to y.lcm", "b.lcm", format="exec", options={"command": child},
                       allow_exec=True)
    assert f"--to: {usage}" in str(error.value)


def test_options_are_values_of_python(drive: Path) -> None:
    options = {"split_mb": 1.5}
    assert sluice.convert(drive, "a.lcm", sink_options=options, jobs=1, memory="64MiB")


def test_run_sets_variables_and_check_lists_all_mistakes(drive: Path) -> None:
    Path("p.toml").write_text(
        '[sources.log]\nplugin = "lcm-log"\npath = "${INPUT}"\n'
        '[sinks.out]\nplugin = "lcm-log"\nfrom = "log"\npath = "${OUT}"\n'
    )
    assert sluice.run("p.toml", {"INPUT": drive, "OUT": "out.lcm"}).written == 5755
    Path("wrong.toml").write_text(
        '[sources.log]\nplugin = "lcm-lgo"\n[sinks.out]\nplugin = "null"\nform = "log"\n'
    )
    mistakes = sluice.check("wrong.toml")
    assert [mistake.line for mistake in mistakes] == sorted(m.line for m in mistakes)
    assert mistakes[0][:3] == ("wrong.toml", 2, 10) and "lcm-log" in (mistakes[0].help or "")
    with pytest.raises(sluice.ConfigError) as error:
        sluice.run("wrong.toml")
    assert error.value.diagnostics == mistakes and len(mistakes) > 1
    with pytest.raises(sluice.ConfigError, match="gone.toml"):
        sluice.check("gone.toml")


def test_batches_have_one_result(drive: Path) -> None:
    for name in ["a", "b"]:
        Path(f"{name}.lcm").symlink_to(drive)
    result = sluice.convert("*.lcm", "out/{stem}.jsonl", channels="POSE")
    assert result.written == 400 and sorted(os.listdir("out"))[-2:] == ["a.jsonl", "b.jsonl"]


def test_verify_compares_outputs_with_their_manifest(drive: Path) -> None:
    sluice.convert(drive, "tables/", channels="POSE", types="mit-dgc")
    (verified,) = sluice.verify("tables/")
    assert verified and verified.files == 1
    with open(next(Path("tables/channel=POSE").iterdir()), "ab") as file:
        file.write(b"x")
    (verified,) = sluice.verify("tables/")
    assert not verified and verified.exit == 1 and "bytes instead of" in verified.differences[0]


def test_verify_reads_logs_in_full(torn: Path) -> None:
    (verified,) = sluice.verify(torn)
    assert verified.exit == 3 and "could not be read" in verified.damage[0]


def test_reports_are_pages_or_figures(drive: Path) -> None:
    figures = sluice.report(drive, channels="POSE")
    assert isinstance(figures, dict) and figures["events"] == 200
    assert sluice.report(drive, "page.html", channels="POSE")
    assert Path("page.html").read_text().startswith("<!DOCTYPE html>")


def test_logs_are_checked_against_expectations(drive: Path) -> None:
    Path("expect.toml").write_text("[channels.POSE]\nrate = { hz = 200, tolerance = 0.1 }\n")
    (check,) = sluice.check_log(drive, "expect.toml")
    assert not check and check.exit == 4 and check.unmet_count == len(check.unmet) == 1
    Path("expect.toml").write_text("[channels.POSE]\nrate = { hz = 100, tolerance = 0.1 }\n")
    assert sluice.check_log(drive, "expect.toml")[0]


def test_messages_are_not_printed(drive: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sluice.convert(drive, "a.lcm")
    sluice.verify("a.lcm")
    with pytest.raises(sluice.SluiceError):
        sluice.convert(drive, "a.lcm")
    assert capfd.readouterr() == ("", "")
