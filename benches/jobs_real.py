"""Real logs as tables: what order and level cost and save.

Real logs are short, and repeating a log to make it longer would compress unrealistically, because
the repeats are within one page. So each log is converted as it is, many times, and CPU is summed;
the cost of only reading it, mostly the start of the program, is subtracted.
"""

import pipelines
from checks import has_rows_of
from harness import Job, fail, say, warm
from logs import Log

SYNC = bytes([0xED, 0xA1, 0xDA, 0x01])
# Below this, a table's metadata is larger than its content.
LEAST = 100_000
# The total bytes to convert, and the maximum number of runs per log.
ENOUGH, OFTEN = 256_000_000, 60
ORDERS = {"time": "by time", "channel": "by channel"}
LEVELS = (1, 3, 6)


def logs(bench, folder):
    """The LCM logs of a folder that are long enough."""
    found = []
    for path in sorted(path for path in folder.resolve().iterdir() if path.is_file()):
        with open(path, "rb") as file:
            if file.read(4) != SYNC:
                continue
        if path.stat().st_size < LEAST:
            say(f"left out: {path.name} is too short to say anything")
        else:
            found.append(Log(path.name, path, bench.programs))
    return found or fail(f"no LCM log of {LEAST} bytes or more in {folder}")


def jobs(bench, folder):
    for log in logs(bench, folder):
        source, out = pipelines.lcm_log(log), bench.out(".parquet")
        command = bench.sluice.run(f"real-{log.name}-null", source, pipelines.null())
        yield Job("real", "read", "null", log, command)
        for order, title in ORDERS.items():
            for level in LEVELS:
                sink = pipelines.parquet(out, order=order, compression=pipelines.zstd(level))
                command = bench.sluice.run(f"real-{log.name}-{order}-{level}", source, sink)
                check = has_rows_of(log, bench.peers.python)
                yield Job("real", "table", f"{title}, zstd {level}", log, command, out=out,
                          check=check)


def measure(jobs, scratch):
    """Runs the jobs of each log in turn, as often as needed."""
    printed = scratch.with_suffix(".printed")
    for job in jobs:
        say(f"real: {job.log.name}, {job.who}")
        warm(scratch, job.log.bytes)
        job.run_once(printed)
        # The output is the same in every run.
        job.check = None
    for log in dict.fromkeys(job.log for job in jobs):
        for _ in range(min(OFTEN, ENOUGH // log.bytes + 1)):
            for job in jobs:
                if job.log is log:
                    job.time(printed)


def section(jobs):
    """The results as Markdown."""
    if not jobs:
        return
    yield "\n### Real logs as one table\n"
    yield "Size in parts of the log; CPU above that of reading alone; both also beside zstd 3 in order of time.\n"
    yield "| log | MB | runs | rows | size | beside | CPU s/GB | beside |"
    yield "|" + " --- |" * 8
    for log in dict.fromkeys(job.log for job in jobs):
        null, *tables = [job for job in jobs if job.log is log]

        def cpu(job):
            return (sum(job.cpus) - sum(null.cpus)) / len(job.cpus) / log.bytes * 1e9

        base = next(job for job in tables if job.who == f"{ORDERS['time']}, zstd 3")
        for job in tables:
            cells = [
                log.name,
                f"{log.bytes / 1e6:.1f}",
                str(len(job.cpus)),
                job.who,
                f"{job.size / log.bytes:.1%}",
                f"{job.size / base.size:.3f}",
                f"{cpu(job):.2f}",
                f"{cpu(job) / cpu(base):.2f}",
            ]
            yield f"| {' | '.join(cells)} |"
