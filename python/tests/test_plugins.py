"""Plugins in Python: the same books as programs of `exec`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import sluice

PLUGINS = """
import sluice

@sluice.stage
def same(batch):
    return batch

@sluice.stage
def nothing(batch):
    return None

@sluice.stage
class Keep:
    def __init__(self, prefix):
        self.prefix = prefix

    def __call__(self, batch):
        import pyarrow as pa, pyarrow.compute as pc
        batch = pa.record_batch(batch)
        names = pc.cast(batch["channel"], pa.string())
        return batch.filter(pc.starts_with(names, self.prefix))

@sluice.stage
def pieces(batch):
    yield batch

@sluice.stage
def stripped(batch):
    import pyarrow as pa
    return pa.record_batch(batch).drop_columns(["source", "sequence", "encoding", "attributes"])

@sluice.stage
def unnumbered(batch):
    import pyarrow as pa
    return pa.record_batch(batch).select(["timestamp", "channel", "payload"])

@sluice.stage
def twice(batch):
    import pyarrow as pa
    batch = pa.record_batch(batch)
    return pa.Table.from_batches([batch, batch])

@sluice.stage
def renamed(batch):
    import pyarrow as pa
    batch = pa.record_batch(batch)
    names = pa.array(["ALL"] * len(batch))
    return batch.set_column(batch.schema.get_field_index("channel"), "channel", names)

@sluice.stage
def foreign(batch):
    import pyarrow as pa
    batch = pa.record_batch(batch)
    numbers = pa.array([10**6] * len(batch))
    return batch.set_column(batch.schema.get_field_index("number"), "number", numbers)

@sluice.stage
def broken(batch):
    raise ValueError("no wheel turns")

@sluice.stage
def deeply_broken(batch):
    import json
    json.loads("no JSON")

@sluice.source
def wheels(count):
    import pyarrow as pa
    for first in range(0, count, 10):
        yield pa.record_batch({
            "timestamp": pa.array(range(first, first + 10), pa.timestamp("us", "UTC")),
            "channel": ["WHEELS"] * 10,
            "payload": pa.array([bytes([n]) for n in range(first, first + 10)]),
        })

@sluice.sink
class Count:
    def __init__(self, path):
        self.path, self.events, self.batches = path, 0, 0

    def write(self, batch):
        self.events += len(batch)

    def finish(self):
        with open(self.path, "w") as file:
            file.write(str(self.events))

def plain(batch):
    return batch

@sluice.stage
def framed(batch):
    import pandas as pd
    frame = pd.DataFrame.from_arrow(batch)
    assert len(frame) == len(batch)
    return frame

@sluice.stage
def tabled(batch):
    import pandas as pd
    import pyarrow as pa
    return pa.record_batch(pa.record_batch(batch).to_pandas())

@sluice.source
def one_table(**columns):
    import pyarrow as pa
    columns = {"timestamp": [1, 2], "channel": ["A", "B"], "payload": [b"x", b"y"]} | columns
    return pa.table(columns)

@sluice.source
def some_attributes():
    return one_table(attributes=['{"metadata":{"unit":"m"}}', None])

@sluice.source
def columns_of_a_table():
    return list(one_table())

@sluice.source
def log_table():
    return sluice.open("drive.lcm").table()
"""

LOG = '[sources.log]\nplugin = "lcm-log"\npath = "drive.lcm"\n'
OUT = '[sinks.out]\nplugin = "lcm-log"\nfrom = "{}"\npath = "out.lcm"\n'


@pytest.fixture(autouse=True)
def plugins(drive: Path, tmp_path: Path) -> None:
    """The plugins and a drive, in the working folder."""
    (tmp_path / "plugins.py").write_text(PLUGINS)
    (tmp_path / "drive.lcm").symlink_to(drive)


def stage(name: str, options: str = "{}") -> str:
    """A pipeline through a stage."""
    text = LOG + f'[stages.py]\nplugin = "python"\nfrom = "log"\nfile = "plugins.py"\n'
    text += f'name = "{name}"\noptions = {options}\n' + OUT.format("py")
    Path("p.toml").write_text(text)
    return "p.toml"


def totals(result: sluice.Result) -> dict[str, int]:
    """The books of all channels together."""
    keys = ["in", "out", "filtered", "damaged"]
    channels = result.report["channels"]
    return {key: sum(channel[key] for channel in channels) for key in keys}


def test_a_stage_that_returns_its_batch_changes_nothing(drive: Path) -> None:
    result = sluice.run(stage("same"), allow_exec=True)
    assert result and Path("out.lcm").read_bytes() == drive.read_bytes()


def test_a_stage_may_return_several_batches(drive: Path) -> None:
    result = sluice.run(stage("pieces"), allow_exec=True)
    assert result and Path("out.lcm").read_bytes() == drive.read_bytes()


@pytest.mark.parametrize("jobs", [1, 4])
def test_columns_that_do_not_return_stay_those_of_the_numbered_event(jobs: int) -> None:
    pytest.importorskip("pyarrow")
    out = '[sinks.out]\nplugin = "jsonl"\nfrom = "py"\npath = "out.jsonl"\n'
    written = []
    for name in ["same", "stripped"]:
        text = Path(stage(name)).read_text()
        Path("p.toml").write_text(text.replace(OUT.format("py"), out))
        assert sluice.run("p.toml", allow_exec=True, overwrite=True, jobs=jobs)
        written.append(Path("out.jsonl").read_bytes())
    assert written[0] == written[1]


def test_new_events_have_no_source_and_sequence_however_events_arrive() -> None:
    pytest.importorskip("pyarrow")
    for jobs, memory in [(1, "32MiB"), (4, "256MiB")]:
        pipeline = stage("unnumbered")
        assert sluice.run(pipeline, allow_exec=True, overwrite=True, jobs=jobs, memory=memory)
        assert {event.sequence for event in sluice.open("out.lcm").events()} == {0}


def test_events_that_do_not_return_are_filtered() -> None:
    result = sluice.run(stage("nothing"), allow_exec=True)
    assert totals(result) == {"in": 5755, "out": 0, "filtered": 5755, "damaged": 0}
    pytest.importorskip("pyarrow")
    options = '{ prefix = "CAM_" }'
    result = sluice.run(stage("Keep", options), allow_exec=True, overwrite=True)
    assert totals(result) == {"in": 5755, "out": 92, "filtered": 5663, "damaged": 0}
    names = {event.channel for event in sluice.open("out.lcm").events()}
    assert names and all(name.startswith("CAM_") for name in names)


def test_events_that_return_twice_are_added_and_renamed_ones_keep_their_books() -> None:
    pytest.importorskip("pyarrow")
    result = sluice.run(stage("twice"), allow_exec=True)
    assert totals(result) == {"in": 11510, "out": 11510, "filtered": 0, "damaged": 0}
    result = sluice.run(stage("renamed"), allow_exec=True, overwrite=True)
    pose = next(c for c in result.report["channels"] if c["channel"] == "POSE")
    assert (pose["in"], pose["out"]) == (200, 200)
    assert {event.channel for event in sluice.open("out.lcm").events()} == {"ALL"}


def test_exceptions_end_the_run_and_name_the_line() -> None:
    with pytest.raises(sluice.SluiceError, match=r"no wheel turns \(.*plugins.py, line \d+\)"):
        sluice.run(stage("broken"), allow_exec=True)
    assert not Path("out.lcm").exists()
    deep = r"plugins.py, line \d+; raised in .*decoder.py, line \d+\)"
    with pytest.raises(sluice.SluiceError, match=deep) as error:
        sluice.run(stage("deeply_broken"), allow_exec=True)
    cause = error.value.__cause__
    assert isinstance(cause, json.JSONDecodeError) and cause.__traceback__ is not None
    # The plugin is not a file that could not be read.
    exit, messages = module("run", "p.toml", "--allow-exec")
    (failure,) = [message for message in messages if message.get("level") == "error"]
    assert exit == 1 and failure["kind"] == "failure" and "file" not in failure
    for name, words in [("gone", "it has: Count, Keep, broken"), ("plain", "has no decorator")]:
        with pytest.raises(sluice.SluiceError, match=words):
            sluice.run(stage(name), allow_exec=True)
    pytest.importorskip("pyarrow")
    with pytest.raises(sluice.SluiceError, match="event 1000000 was not in the batch"):
        sluice.run(stage("foreign"), allow_exec=True)


def test_python_runs_only_if_that_is_allowed_and_never_in_a_check() -> None:
    Path("plugins.py").write_text("raise SystemExit(9)")
    assert sluice.check(stage("same")) == []
    with pytest.raises(sluice.ConfigError, match="plugins.py"):
        sluice.run("p.toml")


def test_a_source_yields_events_and_a_sink_gets_them_in_order() -> None:
    pytest.importorskip("pyarrow")
    python = 'plugin = "python"\nfile = "plugins.py"\n'
    text = f'[sources.py]\n{python}name = "wheels"\noptions = {{ count = 100 }}\n'
    text += f'[sinks.count]\n{python}from = "py"\nname = "Count"\noptions = {{ path = "n" }}\n'
    Path("p.toml").write_text(text + OUT.format("py"))
    assert sluice.run("p.toml", allow_exec=True)
    assert Path("n").read_text() == "100"
    events = list(sluice.open("out.lcm").events())
    assert [bytes(event.payload) for event in events] == [bytes([n]) for n in range(100)]
    assert [event.timestamp for event in events] == [n * 1000 for n in range(100)]
    assert {event.channel for event in events} == {"WHEELS"}


@pytest.mark.parametrize("name", ["framed", "tabled"])
def test_pandas_takes_and_gives_batches(drive: Path, name: str) -> None:
    pytest.importorskip("pandas")
    # Channels of one source: the same value several times.
    assert sluice.run(stage(name), allow_exec=True)
    assert Path("out.lcm").read_bytes() == drive.read_bytes()
    # Attributes of some of them.
    python = 'plugin = "python"\nfile = "plugins.py"\n'
    Path("p.toml").write_text(
        f'[sources.one]\n{python}name = "some_attributes"\n'
        f'[stages.py]\n{python}name = "{name}"\nfrom = "one"\n'
        '[sinks.a]\nplugin = "mcap"\nfrom = "one"\npath = "a.mcap"\n'
        '[sinks.b]\nplugin = "mcap"\nfrom = "py"\npath = "b.mcap"\n'
    )
    assert sluice.run("p.toml", allow_exec=True)
    assert Path("a.mcap").read_bytes() == Path("b.mcap").read_bytes()


def source(name: str, options: str = "{}") -> sluice.Result:
    """Runs a pipeline from a source."""
    Path("p.toml").write_text(
        f'[sources.py]\nplugin = "python"\nfile = "plugins.py"\nname = "{name}"\n'
        f"options = {options}\n" + OUT.format("py")
    )
    return sluice.run("p.toml", allow_exec=True, overwrite=True)


def test_a_source_may_return_one_table(drive: Path) -> None:
    pytest.importorskip("pyarrow")
    assert source("one_table")
    events = [(event.channel, bytes(event.payload)) for event in sluice.open("out.lcm").events()]
    assert events == [("A", b"x"), ("B", b"y")]
    assert source("log_table")
    assert Path("out.lcm").read_bytes() == drive.read_bytes()
    with pytest.raises(sluice.SluiceError, match="expected record batches or tables, found Chunk"):
        source("columns_of_a_table")


def test_columns_that_would_be_lost_are_refused() -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(sluice.SluiceError, match="`encoding`: expected lcm, .*, found `klingon`"):
        source("one_table", '{ encoding = ["lcm", "klingon"] }')
    with pytest.raises(sluice.SluiceError, match="unknown column `sequnce`; did you mean `seque"):
        source("one_table", "{ sequnce = [1, 2] }")
    assert source("one_table", '{ encoding = ["unknown", "lcm"], remarks = ["", ""] }')


def test_the_module_runs_pipelines_as_the_program_does() -> None:
    command = [sys.executable, "-m", "sluice", "run", stage("same")]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "--allow-exec" in refused.stderr
    done = subprocess.run([*command, "--allow-exec"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "5,755 events" in done.stderr and done.stdout == ""


def module(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of `python -m sluice`, and its messages as JSON."""
    command = [sys.executable, "-m", "sluice", "--log-format", "json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, [json.loads(line) for line in done.stderr.splitlines()]


def test_the_module_writes_its_messages_as_json_if_that_is_asked_for() -> None:
    exit, messages = module("run", stage("same"), "--allow-exec")
    (summary,) = [message for message in messages if message["kind"] == "summary"]
    assert exit == 0 and summary["level"] == "info" and summary["time"]
    exit, messages = module("run", stage("same"))
    assert exit == 2 and [message["level"] for message in messages] == ["error"]
    Path("p.toml").write_text('[sources.log]\nplugin = "lcm-lgo"\n')
    exit, messages = module("check", "p.toml")
    assert exit == 2 and {message["kind"] for message in messages} == {"mistake"}
    assert 2 in {message["line"] for message in messages}
    exit, (usage,) = module("run", "--frobnicate")
    assert exit == 2 and usage["kind"] == "usage"


ENDLESS = """
import os, signal
import pyarrow as pa, sluice

@sluice.source
def endless():
    batch = pa.record_batch({
        "timestamp": pa.array([1], pa.timestamp("us", "UTC")), "channel": ["A"], "payload": [b"x"],
    })
    yield batch
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        yield batch
"""


def test_the_module_stops_at_ctrl_c_as_the_program_does() -> None:
    pytest.importorskip("pyarrow")
    Path("plugins.py").write_text(ENDLESS)
    text = '[sources.py]\nplugin = "python"\nfile = "plugins.py"\nname = "endless"\n'
    Path("p.toml").write_text(text + OUT.format("py"))
    exit, messages = module("run", "p.toml", "--allow-exec")
    # What an iterator has given cannot be read again, so it is written.
    texts = " ".join(message.get("message", "") for message in messages)
    assert exit == 3 and "another signal aborts" in texts and "before the end" in texts
    assert next(sluice.open("out.lcm").events()).channel == "A"


STUCK = """
import os, signal, threading, time
import sluice

begun = threading.Lock()

def interrupt_twice():
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

def begin():
    # Several threads may call a stage.
    if begun.acquire(blocking=False):
        threading.Thread(target=interrupt_twice, daemon=True).start()

@sluice.sink
def spins(batch):
    begin()
    while True:
        pass

@sluice.sink
def sleeps(batch):
    begin()
    time.sleep(1000)

@sluice.stage
def stage_spins(batch):
    spins(batch)

@sluice.stage
def stage_sleeps(batch):
    sleeps(batch)
"""
ABORTED = """
import signal
import sluice
# A job in the background of a shell ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    sluice.run("p.toml", allow_exec=True)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("name", ["spins", "sleeps", "stage_spins", "stage_sleeps"])
def test_a_run_that_is_aborted_does_not_wait_for_its_plugins(name: str) -> None:
    Path("plugins.py").write_text(STUCK)
    kind = "stages" if name.startswith("stage") else "sinks"
    node = f'[{kind}.py]\nplugin = "python"\nfrom = "log"\nfile = "plugins.py"\nname = "{name}"\n'
    rest = '[sinks.out]\nplugin = "null"\nfrom = "py"\n' if kind == "stages" else ""
    Path("p.toml").write_text(LOG + node + rest)

    def ended(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout

    assert ended("-m", "sluice", "run", "p.toml", "--allow-exec") == (130, "")
    assert ended("-c", ABORTED) == (0, "interrupted\n")


def sink(name: str) -> str:
    """A pipeline file with that sink of `plugins.py`."""
    node = f'[sinks.py]\nplugin = "python"\nfrom = "log"\nfile = "plugins.py"\nname = "{name}"\n'
    Path(f"{name}.toml").write_text(LOG + node)
    return f"{name}.toml"


LATER = """
@sluice.sink
def takes_long(batch):
    if not os.path.exists("begun"):
        open("begun", "w").close()
        time.sleep(2)
"""


def test_a_plugin_that_does_not_end_is_no_matter_to_later_runs() -> None:
    Path("plugins.py").write_text(STUCK + LATER)
    sink("takes_long")
    code = ABORTED.replace("p.toml", sink("sleeps")) + textwrap.dedent("""
        assert sluice.run("takes_long.toml", allow_exec=True)
    """)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


COMPLETES = """
import os, signal, time
import sluice

@sluice.sink
def completes(batch):
    if not os.path.exists("begun"):
        open("begun", "w").close()
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(20):
            time.sleep(0.1)
        open("completed", "w").close()
"""


@pytest.mark.parametrize(
    ("arguments", "ended"),
    [
        (["-m", "sluice", "run", "completes.toml", "--allow-exec"], (130, "")),
        (["-c", ABORTED.replace("p.toml", "completes.toml")], (0, "interrupted\n")),
    ],
)
def test_the_first_ctrl_c_lets_a_plugin_complete_its_batch(
    arguments: list[str], ended: tuple[int, str]
) -> None:
    Path("plugins.py").write_text(COMPLETES)
    # A run that writes a file, which is discarded.
    with Path(sink("completes")).open("a") as file:
        file.write(OUT.format("log"))
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == ended, done.stderr
    assert Path("completed").exists() and not Path("out.lcm").exists()


def test_the_module_ends_with_its_signal_and_its_programs_if_a_plugin_does_not_end() -> None:
    stuck = STUCK.replace("SIGINT", "SIGTERM")
    begun = 'def sleeps(batch):\n    while not os.path.exists("pid"):\n        pass'
    Path("plugins.py").write_text(stuck.replace("def sleeps(batch):", begun))
    program = '["sh", "-c", "echo $$ > new && mv new pid; cat > all; exec sleep 1000"]'
    program = f'[sinks.program]\nplugin = "exec"\nfrom = "log"\ncommand = {program}\n'
    with Path(sink("sleeps")).open("a") as file:
        file.write(program)
    exit, _ = module("run", "sleeps.toml", "--allow-exec")
    status = Path("/proc", Path("pid").read_text().strip(), "stat")
    # What was killed may not have been waited for yet.
    assert exit == 143 and (not status.exists() or ") Z " in status.read_text())


@pytest.mark.parametrize("name", ["same", "Keep", "renamed"])
def test_a_stage_gives_the_same_however_events_arrive(name: str) -> None:
    """What the conformance kit asks of stages: only the events count, and none is lost."""
    if name != "same":
        pytest.importorskip("pyarrow")
    options = '{ prefix = "CAM_" }' if name == "Keep" else "{}"
    given: list[dict[str, Any]] = [
        {"jobs": 1},
        {"jobs": 4},
        {"jobs": 2, "memory": "32MiB"},
    ]
    found = []
    for how in given:
        result = sluice.run(stage(name, options), allow_exec=True, overwrite=True, **how)
        books = totals(result)
        assert books["in"] == 5755 == books["out"] + books["filtered"]
        found.append((books, Path("out.lcm").read_bytes()))
    assert all(each == found[0] for each in found)


HOSTILE = """
import pyarrow as pa
import sluice

TIMES = pa.array([1, 2], pa.timestamp("ns", "UTC"))
GOOD = {"timestamp": TIMES, "channel": ["A", "A"], "payload": [b"x", b"y"]}
BATCHES = [
    5,
    "text",
    pa.record_batch({"timestamp": TIMES}),
    pa.record_batch({**GOOD, "payload": [b"x", None]}),
    pa.record_batch({**GOOD, "channel": ["A", None]}),
    pa.record_batch({**GOOD, "timestamp": pa.array([1, None], pa.timestamp("ns", "UTC"))}),
    pa.record_batch({**GOOD, "timestamp": ["yesterday", "today"]}),
    pa.record_batch({**GOOD, "payload": pa.array([[1], [2]])}),
    pa.record_batch({**GOOD, "channel": pa.array([{"a": 1}, {"a": 2}])}),
    pa.record_batch({**GOOD, "sequence": ["one", "two"]}),
    pa.record_batch({**GOOD, "timestamp": pa.array([2**62, 1], pa.timestamp("s"))}),
    pa.record_batch({**GOOD, "number": [-1, 0]}),
    pa.record_batch({**GOOD, "number": ["a", "b"]}),
    pa.record_batch({**GOOD, "number": [0.5, 1]}),
    pa.record_batch({**GOOD, "timestamp": [1194098400.25, 1194098401.0]}),
    pa.record_batch({**GOOD, "sequence": [1.0, 2.5]}),
    pa.record_batch({**GOOD, "source": ["A", None]}),
    pa.record_batch({**GOOD, "attributes": [None, '["mytype"]']}),
    pa.record_batch({**GOOD, "attributes": ["[]", None]}),
    pa.record_batch({**GOOD, "source": pa.DictionaryArray.from_arrays([0, 1], ["A", None])}),
    pa.RecordBatch.from_arrays(
        [TIMES, pa.array(["A", "A"]), pa.array(["B", "B"]), pa.array([b"x", b"y"])],
        names=["timestamp", "channel", "channel", "payload"],
    ),
    [pa.record_batch(GOOD), 5],
]

@sluice.source
def events(which):
    yield pa.record_batch(GOOD)
    yield BATCHES[which]

@sluice.stage
class Change:
    def __init__(self, which):
        self.which = which

    def __call__(self, batch):
        return BATCHES[self.which]
"""


SECONDS = """
import pyarrow as pa
import sluice

@sluice.source
def seconds():
    times = [1194098400.0, 1194098400.25]
    yield pa.record_batch({"timestamp": times, "channel": ["A", "A"], "payload": [b"x", b"y"]})
"""


@pytest.mark.parametrize("kind", ["source", "stage"])
def test_wrong_batches_are_errors_that_name_the_plugin_and_publish_nothing(kind: str) -> None:
    pytest.importorskip("pyarrow")
    names: dict[str, Any] = {}
    exec(HOSTILE, names)
    for which in range(len(names["BATCHES"])):
        if kind == "stage":
            pipeline = stage("Change", f"{{ which = {which} }}")
        else:
            pipeline = "p.toml"
            python = 'plugin = "python"\nfile = "plugins.py"\nname = "events"\n'
            text = f"[sources.py]\n{python}options = {{ which = {which} }}\n"
            Path(pipeline).write_text(text + OUT.format("py"))
        Path("plugins.py").write_text(HOSTILE)
        if kind == "source" and "number" in getattr(names["BATCHES"][which], "column_names", []):
            # Only stages know events by number.
            continue
        with pytest.raises(sluice.SluiceError) as refused:
            sluice.run(pipeline, allow_exec=True)
        assert f"{kind} `" in str(refused.value) and "plugins.py" in str(refused.value), which
        assert not Path("out.lcm").exists()


def test_numbers_without_an_exact_counterpart_are_named() -> None:
    pytest.importorskip("pyarrow")
    python = 'plugin = "python"\nfile = "plugins.py"\nname = "seconds"\n'
    Path("p.toml").write_text(f"[sources.py]\n{python}" + OUT.format("py"))
    Path("plugins.py").write_text(SECONDS)
    words = "column `timestamp`: expected whole numbers, found 1194098400.25"
    with pytest.raises(sluice.SluiceError, match=words):
        sluice.run("p.toml", allow_exec=True)


BUSY = """
import os, signal
import sluice

def busy():
    open("begun", "w").close()
    for number in filter(None, os.environ.get("SIGNALS", "").split()):
        os.kill(os.getpid(), int(number))
    while True:
        sum(range(1000))

@sluice.source
def source():
    busy()
    yield None

@sluice.stage
def stage(batch):
    busy()

@sluice.sink
def sink(batch):
    busy()
"""
# Python ends while another thread, or what Ctrl-C left of a run, is in the plugin.
DAEMON = """
import os, threading
import sluice
run = lambda: sluice.run("p.toml", allow_exec=True)
threading.Thread(target=run, daemon=True).start()
while not os.path.exists("begun"):
    pass
"""
INTERRUPTED = """
import signal
import sluice
for number in [signal.SIGINT, signal.SIGTERM]:
    signal.signal(number, signal.default_int_handler)
try:
    sluice.run("p.toml", allow_exec=True)
except KeyboardInterrupt:
    pass
"""


# A run that is interrupted waits for its stages and sinks, but not for sources.
@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("daemon", "source"),
        ("daemon", "stage"),
        ("daemon", "sink"),
        ("interrupted", "source"),
        ("module", "source"),
    ],
)
def test_python_ends_while_a_plugin_runs(how: str, kind: str) -> None:
    Path("plugins.py").write_text(BUSY)
    python = f'plugin = "python"\nfile = "plugins.py"\nname = "{kind}"\n'
    texts = {
        "source": f"[sources.py]\n{python}" + OUT.format("py"),
        "stage": LOG + f'[stages.py]\nfrom = "log"\n{python}' + OUT.format("py"),
        "sink": LOG + f'[sinks.py]\nfrom = "log"\n{python}',
    }
    Path("p.toml").write_text(texts[kind])
    command = {
        "daemon": ["-c", DAEMON],
        "interrupted": ["-c", INTERRUPTED],
        "module": ["-m", "sluice", "run", "p.toml", "--allow-exec"],
    }[how]
    # The second one ends the run at once.
    environment = {**os.environ, "SIGNALS": "" if how == "daemon" else "2 15"}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, timeout=120
    )
    assert "Fatal" not in done.stderr and done.returncode >= 0, done.stderr
    assert (done.returncode == 0) == (how != "module"), done.stderr
    assert not Path("out.lcm").exists()


STUBBORN = """
import logging, os, signal, sys, time
import sluice

def begin():
    open("begun", "w").close()
    print("begun")
    if "INTERRUPT" in os.environ:
        os.kill(os.getpid(), signal.SIGINT)

@sluice.source
def catches_all():
    yield from sluice.open("drive.lcm").table()
    begin()
    while True:
        try:
            time.sleep(0.01)
        except:
            pass

@sluice.source
def cleans_up_for_long():
    yield from sluice.open("drive.lcm").table()
    begin()
    try:
        while True:
            time.sleep(0.01)
    finally:
        for _ in range(1000):
            time.sleep(0.01)

class Slow(logging.Handler):
    def emit(self, record):
        time.sleep(0.01)

@sluice.source
def logs():
    yield from sluice.open("drive.lcm").table()
    # Each has a lock, which Python takes at its end.
    logging.getLogger().addHandler(Slow())
    begin()
    while True:
        try:
            logging.warning("still there")
        except:
            pass

@sluice.source
def sleeps():
    yield from sluice.open("drive.lcm").table()
    begin()
    time.sleep(1000)
"""


@pytest.mark.parametrize("name", ["catches_all", "cleans_up_for_long", "logs", "sleeps"])
@pytest.mark.parametrize("how", ["daemon", "interrupted", "module"])
def test_python_ends_as_usual_while_a_plugin_does_not(how: str, name: str) -> None:
    Path("plugins.py").write_text(STUBBORN)
    python = f'plugin = "python"\nfile = "plugins.py"\nname = "{name}"\n'
    Path("p.toml").write_text(f"[sources.py]\n{python}" + OUT.format("py"))
    # Python still runs what else is to be run at its end.
    late = "import atexit, logging, sys\natexit.register(print, 'late')\n"
    command, ended = {
        "daemon": (["-c", late + DAEMON + "sys.exit(5)"], 5),
        "interrupted": (["-c", late + ABORTED + "sys.exit(5)"], 5),
        "module": (["-m", "sluice", "run", "p.toml", "--allow-exec"], 3),
    }[how]
    environment = dict(os.environ) if how == "daemon" else {**os.environ, "INTERRUPT": "1"}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == ended and "Fatal" not in done.stderr, done.stderr
    lines = {"daemon": [], "interrupted": ["interrupted"], "module": []}[how]
    lines = ["begun", *lines] + ([] if how == "module" else ["late"])
    assert done.stdout.split() == lines


def test_a_source_or_sink_that_fails_publishes_nothing() -> None:
    pytest.importorskip("pyarrow")
    python = 'plugin = "python"\nfile = "plugins.py"\n'
    Path("plugins.py").write_text(
        PLUGINS.replace("yield pa.record_batch", "if first: raise OSError('gone')\n"
                        "        yield pa.record_batch")
    )
    text = f'[sources.py]\n{python}name = "wheels"\noptions = {{ count = 100 }}\n'
    Path("p.toml").write_text(text + OUT.format("py"))
    with pytest.raises(sluice.SluiceError, match=r"gone \(.*plugins.py, line \d+\)"):
        sluice.run("p.toml", allow_exec=True)
    assert not Path("out.lcm").exists()


RETURNING = """
import sluice

@sluice.sink
def generator(batch):
    open("ran", "w").close()
    yield

@sluice.sink
async def coroutine(batch):
    open("ran", "w").close()

@sluice.sink
def number(batch):
    return len(batch)

@sluice.sink
class Finish:
    def write(self, batch):
        pass

    async def finish(self):
        open("ran", "w").close()
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("generator", "`write`, found generator"),
        ("coroutine", "`write`, found coroutine"),
        ("number", "`write`, found int"),
        ("Finish", "`finish`, found coroutine"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_sink_that_returns_something_is_refused(name: str, words: str) -> None:
    Path("plugins.py").write_text(RETURNING)
    refusal = f"sink `{name}` of plugins.py: TypeError: expected None from {words}"
    with pytest.raises(sluice.SluiceError, match=refusal):
        sluice.run(sink(name), allow_exec=True)
    assert not Path("ran").exists()


def test_nodes_that_name_no_file_take_that_of_the_command_line(drive: Path) -> None:
    with_file = Path(stage("same")).read_text()
    Path("elsewhere").mkdir()
    Path("elsewhere/p.toml").write_text(
        with_file.replace('file = "plugins.py"\n', "").replace('"drive.lcm"', '"../drive.lcm"')
    )
    with pytest.raises(sluice.ConfigError, match="needs the option `file`"):
        sluice.run("elsewhere/p.toml", allow_exec=True)
    # As typed: relative to the working folder.
    result = sluice.run("elsewhere/p.toml", python="plugins.py", allow_exec=True)
    assert result and Path("elsewhere/out.lcm").read_bytes() == drive.read_bytes()

    program = shutil.which("sluice")
    if program is None:
        pytest.skip("the program is not installed")
    command = [program, "run", "elsewhere/p.toml", "--python", "plugins.py", "--overwrite"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "--allow-exec" in refused.stderr
    command.append("--allow-exec")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "5,755 events" in done.stderr, done.stderr
