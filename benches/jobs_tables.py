"""Logs to Parquet, compared with typical scripts and with the table writers of databases."""

import pipelines
from checks import has_rows_of
from harness import Job, two_numbers

# Slow, but steady.
ROUNDS = 3


def jobs(bench):
    """All jobs that write one table."""
    dgc, small = bench.log("dgc"), bench.log("small")
    time_order, by_channel, fast = {"order": "time"}, {"order": "channel"}, pipelines.zstd(1)
    zstd = pipelines.zstd(3)
    for log in (dgc, small):
        task = f"parquet {zstd}"
        yield ours(bench, log, task, "sluice", **time_order, compression=zstd)
        yield ours(bench, log, task, "sluice by channel", **by_channel, compression=zstd)
        yield ours(bench, log, task, f"sluice by channel, {fast}", **by_channel, compression=fast)
        yield ours(bench, log, task, "sluice as it comes")
        yield from written_by_others(bench, log, task, zstd)
    yield from others_with_all_in_memory(bench, dgc, f"parquet {zstd}")
    for compression in (pipelines.SNAPPY, pipelines.NONE):
        task = f"parquet {compression}"
        yield ours(bench, dgc, task, "sluice", **time_order, compression=compression)
        yield from written_by_others(bench, dgc, task, compression)


def by_channel(bench):
    """One table per channel."""
    log = bench.log("dgc")
    yield ours(bench, log, "tables by channel", "sluice", layout="channel")
    zstd = pipelines.zstd(3)
    yield ours(bench, log, "tables by channel", f"sluice {zstd}", layout="channel",
               compression=zstd)


def ours(bench, log, task, who, layout="single", group=None, rounds=ROUNDS, flags=(), out=None,
         **options):
    out = out or bench.out("" if layout == "channel" else ".parquet")
    group = group or ("tables" if layout == "channel" else "parquet")
    name = f"{group} {task} {log.name} {who}".replace(" ", "-").replace(",", "").replace(":", "")
    sink = pipelines.parquet(out, layout, **options)
    command = bench.sluice.run(name, pipelines.lcm_log(log), sink, *flags)
    return writes(bench, log, group, task, who, out, command, rounds=rounds)


def writes(bench, log, group, task, who, out, command, rounds=ROUNDS, **more):
    check = has_rows_of(log, bench.peers.python)
    return Job(group, task, who, log, command, out=out, check=check, rounds=rounds, **more)


def written_by_others(bench, log, task, compression):
    """The same rows, read from the log and written batch by batch."""
    out = bench.out(".parquet")
    command = [bench.programs / "arrow-writer", log, out, "--compression", compression]
    yield writes(bench, log, "parquet", task, "Rust ArrowWriter", out, command)
    if bench.peers.has("lcm"):
        command = bench.peers.script("parquet_lcm_pyarrow.py", log, out, compression)
        yield writes(bench, log, "parquet", task, "Python lcm + pyarrow", out, command)


def others_with_all_in_memory(bench, log, task):
    """At zstd level 3, which is hard-coded in the scripts."""
    out = bench.out(".parquet")
    if bench.peers.has("lcm", "pandas"):
        command = bench.peers.script("parquet_lcm_pandas.py", log, out)
        yield writes(bench, log, "parquet", task, "Python lcm + pandas", out, command)
    path = bench.data / f"{log.name}.rows.parquet"
    command = [bench.programs / "arrow-writer", log, path, "--compression", pipelines.SNAPPY]
    rows = bench.prepared(path, *command)
    for package, name in (("polars", "polars"), ("duckdb", "DuckDB")):
        if bench.peers.has(package):
            command = bench.peers.script(f"rewrite_{package}.py", rows, out)
            who = f"{name}, from rows in memory"
            yield writes(bench, log, "parquet", task, who, out, command, needs=[rows],
                         times_itself=two_numbers)
