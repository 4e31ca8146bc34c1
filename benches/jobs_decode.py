"""Messages of one type to columns in memory, compared with hand-written decoders for this type and
with the classes of lcm-gen."""

import json

from harness import Job, fail

GROUP = "decode"
TYPES = ("pose", "imu", "laser", "status")
HAND, PYTHON = "by hand, in Rust", "Python classes + pyarrow"
# The rounds in one process, of which the best counts.
OURS, THEIRS = 9, 2


def jobs(bench):
    program, peers = bench.programs / "decoders", bench.peers
    for name in TYPES:
        log = bench.log(name)

        def decodes(task, who, *command, needs=()):
            return Job(GROUP, task, who, log, command, needs=needs, times_itself=best(log))

        yield decodes("decode", "sluice", program, "decode", name, log, "sluice", OURS)
        yield decodes("decode", HAND, program, "decode", name, log, "hand", OURS)
        if peers.lcm_gen and peers.has("lcm", "pyarrow"):
            classes = bench.classes()
            command = peers.script("decode_lcm_pyarrow.py", log, classes, THEIRS)
            yield decodes("decode", PYTHON, *command, needs=[classes])
    for name in TYPES:
        log = bench.log(name)
        command = [program, "decode", name, log, "encode", OURS]
        yield Job(GROUP, "encode", "sluice", log, command, times_itself=best(log))


def best(log):
    """Parses the output of such a program. It has one thread that never waits: its CPU time is
    its wall time."""

    def seconds(text):
        said = json.loads(text)
        if said["rows"] != log.events:
            fail(f"{said['rows']} messages of {log} were decoded, not {log.events}")
        return said["seconds"], said["seconds"]

    return seconds
