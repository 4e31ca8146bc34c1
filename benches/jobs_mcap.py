"""MCAP files read, written, and decoded to typed tables, compared with the crate `mcap`, the Python
packages for it, `rosbags` and Rerun."""

import json
import subprocess

import pipelines
from harness import Job, remove, say
from logs import Log

GROUP = "mcap"
READ, WRITE, TABLES = "read zstd", "write zstd", "typed tables"
CRATE, CRATE_ONE = "crate mcap", "crate mcap, one thread"
ROS2, ROSBAGS, RERUN = "mcap-ros2-support + pyarrow", "rosbags + pyarrow", "rerun mcap convert"
PROTOBUF = "mcap-protobuf-support + pyarrow"
# Seconds of the drives, and readings of an IMU. Python takes its time.
SECONDS, PROTOBUF_SECONDS, READINGS, CAP = 240, 30, 200_000, "256MiB"
SLOW_ROUNDS = 1


class McapFile(Log):
    """An MCAP file that a command writes."""

    def __init__(self, bench, name, command):
        super().__init__(name, bench.data / f"{name}.mcap", bench.programs)
        self.sluice, self.command = bench.sluice, command

    def write(self):
        say(f"making {self.path}")
        remove(self.path)
        self.sluice.prepare(self.command[-1])
        subprocess.run([str(word) for word in self.command], stdout=subprocess.DEVNULL, check=True)

    @property
    def channels(self):
        self.make()
        said = subprocess.run([self.sluice.program, "info", "--json", self.path], capture_output=True,
                              text=True, check=True)
        channels = json.loads(said.stdout)["channels"]
        return {number: (channel["events"], 0) for number, channel in enumerate(channels)}

    def count(self):
        """What a program prints that counts messages."""
        return f"{self.events}\n"


def mcap(path, **options):
    return {"plugin": "mcap", "path": str(path), **options}


def jobs(bench):
    peers, data = bench.peers, bench.data
    seconds, short, readings = (max(1, most * bench.percent // 100)
                                for most in (SECONDS, PROTOBUF_SECONDS, READINGS))
    demo = {"plugin": "demo", "seconds": seconds}

    def drive(name, stage=None, **options):
        command = bench.sluice.run(f"make-{name}", demo, mcap(data / f"{name}.mcap", **options),
                                   "--overwrite", stage=stage)
        return McapFile(bench, name, command)

    zstd, plain = drive("drive"), drive("drive-plain", compression="none")
    yield from reading(bench, zstd)
    yield from writing(bench, plain)
    if not peers.has("mcap", "pyarrow"):
        return
    path = data / "ros2.mcap"
    ros2 = McapFile(bench, "ros2", peers.script("make_ros2.py", path, readings))
    yield from tables(bench, ros2, [name for name, package in
                                    ((ROS2, "mcap_ros2"), (ROSBAGS, "rosbags"))
                                    if peers.has(package)])
    rerun = peers.python.with_name("rerun")
    if rerun.exists():
        out = bench.out(".rrd")
        command = [rerun, "mcap", "convert", ros2, "-o", out]
        yield Job(GROUP, TABLES, RERUN, ros2, command, out=out)
    if peers.has("mcap_protobuf"):
        made = data / "drive-protobuf.mcap"
        yield from tables(bench, McapFile(bench, "drive-protobuf", typed(bench, short, made)),
                          [PROTOBUF])


def typed(bench, seconds, made):
    """The command that carries a drive as protobuf, without the messages that have no type."""
    log = made.with_suffix(".lcm")
    text = pipelines.text({"plugin": "demo", "seconds": seconds}, pipelines.lcm_log(log))
    program, file = bench.sluice.program, made.with_suffix(".toml")
    script = (f"cat > {file} <<'END'\n{text}\nEND\n{program} run -q --overwrite {file} && "
              f"{program} convert -q --overwrite {log} --types mit-dgc --to {made} "
              f"-x LCM_SELF_TEST -x LOGGER_STRING --sink-option view=none; rm {log}")
    return ["sh", "-c", script]


def reading(bench, log):
    source, sink = mcap(log), pipelines.null()
    for who, flags in (("sluice", []), ("sluice --jobs 1", ["--jobs", 1])):
        command = bench.sluice.run(f"mcap-read-{len(flags)}", source, sink, *flags)
        yield Job(GROUP, READ, who, log, command)
    if bench.peers.mcap_rust:
        yield Job(GROUP, READ, CRATE, log, [bench.peers.mcap_rust, "read", log], prints=log.count)
    if bench.peers.has("mcap"):
        command = bench.peers.script("read_mcap_py.py", log)
        yield Job(GROUP, READ, "Python mcap", log, command, prints=log.count, rounds=SLOW_ROUNDS)


def writing(bench, log):
    out = bench.out(".mcap")
    for who, flags in (("sluice", []), ("sluice --jobs 1", ["--jobs", 1])):
        command = bench.sluice.run(f"mcap-write-{len(flags)}", mcap(log), mcap(out), *flags)
        yield Job(GROUP, WRITE, who, log, command, out=out)
    if bench.peers.mcap_rust:
        for who, threads in ((CRATE, []), (CRATE_ONE, [0])):
            command = [bench.peers.mcap_rust, "write", log, out, *threads]
            yield Job(GROUP, WRITE, who, log, command, out=out, prints=log.count)


def tables(bench, log, peers):
    out, check = bench.out(""), has_rows(bench, log)
    for who, flags in (("sluice", ["--memory", CAP]),
                       ("sluice --jobs 1", ["--memory", CAP, "--jobs", 1])):
        stage = pipelines.decode(["embedded"])
        sink = pipelines.parquet(out, "channel", compression=pipelines.zstd(3))
        name = f"mcap-tables-{log.name}-{len(flags)}"
        command = bench.sluice.run(name, mcap(log), sink, *flags, stage=stage)
        yield Job(GROUP, TABLES, who, log, command, out=out, check=check)
    for who in peers:
        command = bench.peers.script("typed_mcap.py", who.split()[0], log, out)
        yield Job(GROUP, TABLES, who, log, command, out=out, check=check, rounds=SLOW_ROUNDS)


def has_rows(bench, log):
    """Tables with as many rows as the log has events."""
    script = ("import sys, pathlib, pyarrow.parquet as pq; print(sum(pq.read_metadata(path).num_rows "
              "for path in pathlib.Path(sys.argv[1]).rglob('*.parquet')))")

    def check(out):
        said = subprocess.run([bench.peers.python, "-c", script, out], capture_output=True,
                              text=True, check=True)
        return said.stdout == log.count()

    return check
