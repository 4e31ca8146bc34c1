"""Velodyne packets to points in memory, compared with a plain C program with the same tables; and
all contents of a log of the vehicle in one pass."""

import json

from harness import Job, fail
from programs import ROOT

GROUP = "points"
LOG = "velodyne"
ALL, SEEN = "packets to points", "packets to points, without empty returns"
C = "C, one loop"
CAPPED = "everything in one pass, --memory 128MiB, 8 threads"
TABLE = ROOT / "plugins" / "dgc" / "data" / "hdl-64e.csv"
# The rounds in one process, of which the best counts, batch by batch.
ROUNDS = 15


def jobs(bench):
    log, program, peer = bench.log(LOG), bench.programs / "points", bench.peers.velodyne
    for task, flags, word in ((ALL, [], "all"), (SEEN, ["--drop"], "drop")):
        same = Same(log)
        command = [program, "decode", *flags, log, ROUNDS]
        yield Job(GROUP, task, "sluice", log, command, times_itself=same.seconds)
        if peer:
            command = [peer, TABLE, log, word, ROUNDS]
            yield Job(GROUP, task, C, log, command, times_itself=same.seconds)
    yield everything(bench, "everything in one pass")
    yield everything(bench, CAPPED, ["--memory", "128MiB", "--jobs", "8"])


def everything(bench, task, flags=()):
    """The pipeline `dgc-all`: tables, track, pictures, points in the local frame."""
    log, out = bench.log("car"), bench.out("")
    command = [bench.sluice.program, "run", "-q", *flags, "dgc-all", "--set", f"INPUT={log}",
               "--set", f"OUT={out}"]
    return Job(GROUP, task, "sluice", log, command, out=out, check=Whole(log), rounds=3)


class Whole:
    """Checks the output of `dgc-all` against the log."""

    def __init__(self, log):
        self.log = log

    def __call__(self, out):
        lines = (line.split("\t") for line in self.log.table().splitlines())
        events = {line[0]: int(line[1]) for line in lines}
        pictures = sum(count for name, count in events.items() if name.startswith("CAM_THUMB"))
        written = sum(1 for _ in (out / "images").rglob("*.jpg"))
        manifest = json.loads((out / "tables" / "_manifest.json").read_text())
        poses = sum(file["rows"] for file in manifest["files"] if "channel=POSE/" in file["path"])
        points = json.loads((out / "points" / "_manifest.json").read_text())
        seen = sum(file["rows"] for file in points["files"])
        return written == pictures and poses == events["POSE"] and seen > 100 * events["VELODYNE"]


class Same:
    """Parses the output of such programs, and checks that all have the same points."""

    def __init__(self, log):
        self.log, self.sums = log, None

    def seconds(self, text):
        said = json.loads(text)
        if said["rows"] != self.log.events:
            fail(f"{said['rows']} packets of {self.log} were read, not {self.log.events}")
        sums = said["points"], *said["sums"]
        self.sums = self.sums or sums
        if sums != self.sums:
            fail(f"the points of {self.log} are not the same: {sums}, not {self.sums}")
        # One thread that never waits: CPU time is wall time.
        return said["seconds"], said["seconds"]
