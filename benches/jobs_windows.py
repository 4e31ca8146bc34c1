"""A window of ten seconds out of a log, beside a pass over the headers of all its events."""

from checks import alike
from harness import Job

GROUP = "windows"
TASK = "10 s of a log"
HEADERS, READ_ALL = "sluice info: headers only", "sluice, seek = false"
START, END = "+60s", "+70s"
LOGS = {"dgc": "lcm-log", "small": "lcm-log", "vel": "vel"}


def jobs(bench):
    for name, plugin in LOGS.items():
        yield from windows(bench, bench.log(name), plugin)


def windows(bench, log, plugin):
    """By default only headers are read outside the window; what is written is the same either way."""
    out, check = bench.out(log.path.suffix), alike()
    sink = {"plugin": plugin, "path": str(out)}
    window = {"plugin": "filter", "start": START, "end": END}
    for who, seek in (("sluice", None), (READ_ALL, False)):
        source = {"plugin": plugin, "path": str(log.path)}
        source |= {} if seek is None else {"seek": seek}
        name = f"window-{log.name}{'' if seek is None else '-all'}"
        command = bench.sluice.run(name, source, sink, stage=window)
        yield Job(GROUP, TASK, who, log, command, out=out, check=check)
    yield Job(GROUP, TASK, HEADERS, log, [bench.sluice.program, "info", log])
