"""Fields of a log as rows on one time base, compared with pandas and LCM's Python module."""

import subprocess

import pipelines
from checks import SUMS
from harness import Job

GROUP, TASK, LOG = "datasets", "rows at 50 Hz", "car"
PANDAS = "Python classes + pandas"
ROUNDS = 3
FIELDS = {
    "vel": "POSE.vel",
    "turn": "POSE.rotation_rate[2]",
    "scan": "SKIRT_FC.ranges",
    "fix": "GPS_TO_LOCAL.local",
    "pos": {"field": "POSE.pos", "method": "linear"},
}


def jobs(bench):
    log, classes = bench.log(LOG), bench.classes()
    check = same_sums(bench.peers.python)
    sink = pipelines.parquet(bench.out(""), "channel", compression=pipelines.zstd(3))
    stages = [pipelines.decode(["mit-dgc", bench.types]), pipelines.align("50Hz", FIELDS)]

    def ours(who, *flags):
        name = f"{GROUP}-{who}".replace(" ", "-")
        command = bench.sluice.run(name, pipelines.lcm_log(log), sink, *flags, stage=stages)
        return Job(GROUP, TASK, who, log, command, out=bench.out(""), check=check, rounds=ROUNDS)

    yield ours("sluice")
    yield ours("sluice --jobs 1", "--jobs", 1)
    if bench.peers.has("pandas"):
        out = bench.out("")
        command = bench.peers.script("align_lcm_pandas.py", log, out, classes)
        yield Job(GROUP, TASK, PANDAS, log, command, out=out, check=check, needs=[classes],
                  rounds=ROUNDS)


def same_sums(python):
    """The same rows, and columns that add up to the same, in every table that this check sees."""
    first = []

    def check(out):
        added = subprocess.run([python, SUMS, out], stdout=subprocess.PIPE, check=False)
        first.append(added.stdout)
        return added.returncode == 0 and added.stdout == first[0] != b""

    return check
