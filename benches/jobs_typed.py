"""Logs to typed tables, one per channel, and back, compared with the classes of lcm-gen with pandas
and with pyarrow."""

import pipelines
from checks import has_sums, same_as
from harness import Job

GROUP = "typed"
TASK, LEVEL = "typed tables zstd:3", pipelines.zstd(3)
PANDAS = "Python classes + pandas"
ROUNDS = 3


def jobs(bench):
    log, peers = bench.log("car"), bench.peers
    yield ours(bench, log, GROUP, TASK, rounds=ROUNDS)
    yield ours(bench, log, GROUP, TASK, "sluice --jobs 1", "--jobs", 1, rounds=ROUNDS)
    out, needs = bench.out(""), sums_of(bench, log)
    classes, sums = needs
    for package in ("pandas", "pyarrow"):
        if peers.has(package):
            command = peers.script(f"typed_lcm_{package}.py", log, out, classes)
            check, who = has_sums(sums, peers.python), f"Python classes + {package}"
            yield Job(GROUP, TASK, who, log, command, out=out, check=check, needs=needs,
                      rounds=ROUNDS)
    yield restoring(bench, log)


def ours(bench, log, group, task, who="sluice", *flags, rounds):
    out, needs = bench.out(""), sums_of(bench, log)
    name = f"{group} {log.name} {who}".replace(" ", "-")
    command = to_tables(bench, name, log, out, *flags)
    check = has_sums(needs[-1], bench.peers.python)
    return Job(group, task, who, log, command, out=out, check=check, needs=needs, rounds=rounds)


def to_tables(bench, name, log, out, *flags):
    sink, stage = pipelines.parquet(out, "channel",
                                    compression=LEVEL), pipelines.decode(["mit-dgc", bench.types])
    return bench.sluice.run(name, pipelines.lcm_log(log), sink, *flags, stage=stage)


def restoring(bench, log):
    path, out = bench.data / f"{log.name}.typed", bench.out(".lcm")
    tables = bench.prepared(
        path, *to_tables(bench, f"typed-to-keep-{log.name}", log, path, "--overwrite"))
    source, sink, stage = pipelines.typed(tables), pipelines.lcm_log(out), pipelines.encode()
    command = bench.sluice.run(f"typed-back-{log.name}", source, sink, stage=stage)
    check, needs, task = same_as(log), [tables], "log of typed tables"
    return Job(GROUP, task, "sluice", log, command, out=out, check=check, needs=needs,
               rounds=ROUNDS)


def sums_of(bench, log):
    """The classes of lcm-gen, and the expected sums of the columns according to them."""
    classes, path = bench.classes(), bench.data / f"{log.name}.sums"
    script = bench.peers.script("typed_sums.py", log, path, classes)
    return [classes, bench.prepared(path, *script)]
