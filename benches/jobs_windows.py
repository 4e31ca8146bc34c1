"""A window of ten seconds out of a log, compared with one without events, which is a pass over the
headers of all events."""

import pipelines
from checks import alike
from harness import Job

GROUP = "windows"
TASK = "10 s of a log"
HEADERS = "sluice, a window without events"
READ_ALL = "sluice, seek = false"
WHOLE = "sluice, the whole log into nothing"
WINDOW, BEHIND = {"start": "+60s", "end": "+70s"}, {"start": "+100000s"}
LOGS = {"dgc": "lcm-log", "small": "lcm-log", "vel": "vel"}


def jobs(bench):
    for name, plugin in LOGS.items():
        yield from windows(bench, bench.log(name), plugin)


def windows(bench, log, plugin):
    """By default only headers are read outside the window; the output is the same either way."""
    out, check = bench.out(log.path.suffix), alike()
    source = {"plugin": plugin, "path": str(log.path)}
    sink = {"plugin": plugin, "path": str(out)}

    def job(who, name, source, sink, window=None, **more):
        stage = window and {"plugin": "filter", **window}
        command = bench.sluice.run(f"{name}-{log.name}", source, sink, stage=stage)
        return Job(GROUP, TASK, who, log, command, **more)

    yield job("sluice", "window", source, sink, WINDOW, out=out, check=check)
    yield job(READ_ALL, "window-all", source | {"seek": False}, sink, WINDOW, out=out, check=check)
    yield job(HEADERS, "headers", source, sink, BEHIND, out=out)
    yield job(WHOLE, "whole", source, pipelines.null())
