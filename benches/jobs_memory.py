"""The memory use of Sluice: many channels, long logs, a small cap. Measured once, not timed."""

import jobs_archive
import jobs_tables
from checks import same_as
from harness import Job

GROUP = "memory"
CAP = "128MiB"


def jobs(bench):
    dgc, many = bench.log("dgc"), bench.log("many")
    for log in (dgc, many):
        yield tables(bench, log, "tables by channel")
        yield tables(bench, log, f"tables by channel, --memory {CAP}", flags=["--memory", CAP])
    yield from one_file(bench, dgc)


def long_jobs(bench):
    """The same with a log four times as long. Outputs go to the folder of the logs: they may not
    fit into memory."""
    large, folder = bench.log("large"), bench.data
    out = folder / "large.copy"
    command = [bench.programs / "run-job", "copy", large, out]
    check = same_as(large)
    yield Job(GROUP, "copy", "sluice", large, command, prints=large.carried, out=out, check=check,
              rounds=0)
    yield tables(bench, large, "tables by channel", out=folder / "large.tables")
    yield from one_file(bench, large, folder)


def one_file(bench, log, folder=None):
    out = folder and folder / f"{log.name}.table.parquet"
    yield jobs_tables.ours(bench, log, "one table", "sluice", group=GROUP, rounds=0, out=out)
    if bench.peers.zstd:
        out = folder and folder / f"{log.name}.archive.lcm.zst"
        yield jobs_archive.ours(bench, log, GROUP, "archive", rounds=0, out=out)


def tables(bench, log, task, **more):
    return jobs_tables.ours(bench, log, task, "sluice", layout="channel", group=GROUP, rounds=0,
                            **more)
