"""Packets of a Velodyne into points in memory, beside a plain C program with the same tables."""

import json

from harness import Job, fail
from programs import ROOT

GROUP = "points"
LOG = "velodyne"
ALL, SEEN = "packets to points", "packets to points, without empty returns"
C = "C, one loop"
TABLE = ROOT / "plugins" / "dgc" / "data" / "hdl-64e.csv"
# Of so many in one process the best counts, batch by batch.
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


class Same:
    """Takes what such programs print, and holds them to the same points."""

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
