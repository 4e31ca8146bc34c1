"""Logs to archives and back, compared with the zstd program."""

import os

import pipelines
from checks import same_as, unpacks_to
from harness import Job

ROUNDS = 3
LEVEL = 3
THREADS = f"-T{os.cpu_count()}"
TASK = f"archive level {LEVEL}"
PEER = f"zstd -{LEVEL} {THREADS}"


def jobs(bench):
    for name in ("dgc", "small"):
        log = bench.log(name)
        yield from archiving(bench, log)
        yield from restoring(bench, log)


def archiving(bench, log):
    yield ours(bench, log, "archive", TASK)
    out = bench.out(".lcm.zst")
    command = [bench.peers.zstd, f"-{LEVEL}", THREADS, "-q", log, "-o", out]
    check = unpacks_to(log, bench.peers.zstd)
    yield Job("archive", TASK, PEER, log, command, out=out, check=check, rounds=ROUNDS)


def ours(bench, log, group, task, rounds=ROUNDS, out=None):
    out = out or bench.out(".lcm.zst")
    name = f"{group} {log.name}".replace(" ", "-")
    command = bench.sluice.run(name, pipelines.lcm_log(log), pipelines.archive(out, LEVEL))
    check = unpacks_to(log, bench.peers.zstd)
    return Job(group, task, "sluice", log, command, out=out, check=check, rounds=rounds)


def restoring(bench, log):
    zstd, out = bench.peers.zstd, bench.out(".lcm")
    path = bench.data / f"{log.name}.by-sluice.lcm.zst"
    source, sink = pipelines.lcm_log(log), pipelines.archive(path, LEVEL)
    command = bench.sluice.run(f"archive-to-keep-{log.name}", source, sink, "--overwrite")
    by_sluice = bench.prepared(path, *command)
    path = bench.data / f"{log.name}.by-zstd.lcm.zst"
    by_zstd = bench.prepared(path, zstd, f"-{LEVEL}", "-q", "-f", log, "-o", path)

    def restores(who, needed, *command):
        check, needs = same_as(log), [needed]
        return Job("archive", "restore", who, log, command, out=out, check=check, needs=needs,
                   rounds=ROUNDS)

    command = bench.sluice.run(f"restore-{log.name}", pipelines.archived(by_sluice),
                               pipelines.lcm_log(out))
    yield restores("sluice", by_sluice, *command)
    yield restores("zstd -d, its own file", by_zstd, zstd, "-d", "-q", by_zstd, "-o", out)
    yield restores("zstd -d, the file of sluice", by_sluice, zstd, "-d", "-q", by_sluice, "-o", out)
