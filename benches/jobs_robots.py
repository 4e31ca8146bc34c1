"""Reading VEL DataLogs and Orca logs, compared with an LCM log, and their scans to columns,
compared with copying them."""

from harness import Job
from jobs_decode import GROUP as DECODE, best

GROUP = "robots"
PLUGINS = {"vel": "vel", "orca": "orca"}
SCANS = ("vel-scans", "orca-scans")
COPY = "copying payloads"
# The rounds in one process, of which the best counts.
ROUNDS = 9


def jobs(bench):
    job = bench.programs / "run-job"
    for name, plugin in PLUGINS.items():
        log = bench.log(name)
        for who, flags in (("sluice", []), ("sluice --jobs 1", ["--jobs", 1])):
            command = [job, "null", "--plugin", plugin, *flags, log]
            yield Job(GROUP, "read", who, log, command, prints=log.carried)
    for name in SCANS:
        log, of = bench.log(name), name.removesuffix("-scans")
        program = bench.programs / "decoders"
        for who, word in (("sluice", "sluice"), (COPY, "copy")):
            command = [program, "decode", of, log, word, ROUNDS]
            yield Job(DECODE, "decode", who, log, command, times_itself=best(log))
        command = [program, "decode", of, log, "encode", ROUNDS]
        yield Job(DECODE, "encode", "sluice", log, command, times_itself=best(log))


def long_jobs(bench):
    """The memory for 4 GB of a VEL DataLog."""
    log = bench.log("large-vel")
    command = [bench.programs / "run-job", "null", "--plugin", "vel", log]
    yield Job("memory", "read", "sluice", log, command, prints=log.carried, rounds=0)
