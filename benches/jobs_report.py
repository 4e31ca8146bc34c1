"""Reports of a log, compared with reading and decoding it for no output."""

import json

import pipelines
from harness import Job

GROUP = "report"
TASK, LOG = "report", "dgc"
DECODING = "reading and decoding"
ROUNDS = 3
# The maximum anonymous memory, in MiB.
CAP = 256


def jobs(bench):
    log = bench.log(LOG)
    stage = pipelines.decode(["mit-dgc", bench.types])

    def job(who, sink, *flags, out=None, check=None):
        name = f"{GROUP}-{who}".replace(" ", "-")
        command = bench.sluice.run(name, pipelines.lcm_log(log), sink, *flags, stage=stage)
        return Job(GROUP, TASK, who, log, command, out=out, check=check, rounds=ROUNDS)

    yield job(DECODING, pipelines.null())
    page = bench.out(".html")
    yield job("sluice", pipelines.report(page), out=page)
    yield job("sluice --jobs 1", pipelines.report(page), "--jobs", 1, out=page)
    figures = bench.out(".json")
    yield job("sluice, JSON", pipelines.report(figures), out=figures, check=counts(log))


def counts(log):
    """Whether the figures have every event of the log."""

    def check(path):
        with open(path, encoding="utf-8") as file:
            found = {c["name"]: (c["events"], c["bytes"]) for c in json.load(file)["channels"]}
        return found == log.channels

    return check
