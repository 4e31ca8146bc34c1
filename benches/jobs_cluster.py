"""Twenty logs to tables, by one process and by clusters on this machine, with equal outputs."""

import json
import os

import pipelines
from checks import alike, both, has_rows_of
from harness import Job
from programs import HERE

GROUP, TASK = "cluster", "20 logs to tables"
ONE, TWO = "sluice --local-cluster 1", "sluice --local-cluster 2"
# The same on clusters that run already.
STANDING = {"sluice, a cluster of 1": 1, "sluice, a cluster of 2": 2}
ROUNDS = 5


def jobs(bench):
    log, out = bench.drives(), bench.out("")
    check = both(has_rows_of(log, bench.peers.python), alike())
    source = pipelines.lcm_log(log.path / "*.lcm")
    sink = pipelines.parquet(out / "{stem}/", "channel")
    cores = os.cpu_count()
    engines = {
        "sluice": ["--jobs", cores],
        ONE: ["--engine", "ballista", "--local-cluster", 1],
        TWO: ["--engine", "ballista", "--local-cluster", 2],
    }
    for who, flags in engines.items():
        command = bench.sluice.run("cluster-drives-to-tables", source, sink, *flags)
        yield Job(GROUP, TASK, who, log, command, out=out, check=check, rounds=ROUNDS, is_many=True)
    for who, executors in STANDING.items():
        run = bench.sluice.run("cluster-drives-to-tables", source, sink, "--engine", "ballista")
        command = [HERE / "standing_cluster.py", bench.sluice.program, executors, out, *run]
        yield Job(GROUP, TASK, who, log, command, out=out, check=check, rounds=ROUNDS,
                  times_itself=printed, is_many=True)


def printed(text):
    said = json.loads(text.splitlines()[-1])
    return said["seconds"], said["cpu"]
