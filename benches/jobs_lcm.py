"""Reading, copying and filtering LCM logs, compared with a bare loop and LCM's own tools."""

import shutil
from functools import partial

from checks import same_as
from harness import Job

DROP, KEEP = "CAM_", "ARM_"
# Copies what it has read of a log at once, instead of event by event.
RUNS = "bare loop, runs"


def jobs(bench):
    for name in ("dgc", "small"):
        log = bench.log(name)
        yield from reading(bench, log)
        yield from copying(bench, log)
        yield from filtering(bench, log)


def reading(bench, log):
    loop, job, peers = bench.programs / "read-loop", bench.programs / "run-job", bench.peers

    def reads(who, *command, prints=log.counted):
        return Job("lcm", "read", who, log, command, prints=prints)

    yield reads("bare loop", loop, log)
    yield reads("sluice", job, "null", log, prints=log.carried)
    yield reads("sluice --jobs 1", job, "null", "--jobs", 1, log, prints=log.carried)
    for stages in (1, 2, 4):
        command = [job, "null", "--jobs", 1, "--stages", stages, log]
        yield reads(f"sluice --jobs 1, {stages} stages", *command, prints=log.carried)
    if peers.reader:
        yield reads("C liblcm", peers.reader, log)
    if peers.has("lcm"):
        yield reads("Python lcm", *peers.script("read_py.py", log))


def nothing():
    return ""


def copying(bench, log):
    out = bench.out(".lcm")

    def copies(who, *command, prints=nothing):
        return Job("lcm", "copy", who, log, command, prints=prints, out=out, check=same_as(log))

    yield copies("cp", shutil.which("cp"), log, out)
    loop = bench.programs / "read-loop"
    yield copies("bare loop", loop, log, "--out", out)
    yield copies(RUNS, loop, log, "--out", out, "--runs")
    yield copies("sluice", bench.programs / "run-job", "copy", log, out, prints=log.carried)
    if bench.peers.filter:
        yield copies("lcm-logfilter", bench.peers.filter, "-c", ".*", log, out)


def filtering(bench, log):
    loop, job, out = bench.programs / "read-loop", bench.programs / "run-job", bench.out(".lcm")
    drops = log.name == "dgc"
    flag, prefix = ("--drop", DROP) if drops else ("--keep", KEEP)
    task = "filter: all but cameras" if drops else "filter: half the channels"
    path = bench.data / f"{log.name}.some"
    some = bench.prepared(path, loop, log, "--out", path, flag, prefix)
    carried = partial(log.carried, lambda channel: channel.startswith(prefix) != drops)

    def filters(who, *command, prints=nothing, wanted=some):
        check = same_as(wanted)
        return Job("lcm", task, who, log, command, prints=prints, out=out, check=check,
                   needs=[wanted])

    yield filters("bare loop", loop, log, "--out", out, flag, prefix)
    yield filters("sluice", job, "copy", log, out, flag, prefix + "*", prints=carried)
    if bench.peers.filter:
        # It renumbers events: only renumbered output of ours must be equal.
        path = bench.data / f"{log.name}.renumbered"
        command = [job, "copy", log, path, flag, prefix + "*", "--renumber"]
        renumbered = bench.prepared(path, *command)
        inverted = ["-i"] if drops else []
        command = [bench.peers.filter, "-c", f"^{prefix}", *inverted, log, out]
        yield filters("lcm-logfilter", *command, wanted=renumbered)
