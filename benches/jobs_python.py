"""The Python package: tables as frames, events, plugins in Python, and its import."""

import jobs_decode
import pipelines
from harness import Job, two_numbers

GROUP = "python"
FRAME, EVENTS, STAGE, IMPORT = "into Polars", "events", "a stage in Python", "import"
# Both from opening the log on, like ours: in a program in Rust, and in the package for no output.
KEPT, DECODING = "in Rust, kept in memory", "reading and decoding"
CLASSES, PEER = "Python classes + polars", "Python lcm"
WITHOUT, PLAIN = "without the stage", "without the package"
ROUNDS = 5


def jobs(bench):
    package = bench.package()
    if package is None:
        return
    yield from frames(bench, package)
    yield from events(bench, package)
    yield from stages(bench, package)
    yield from imports(bench, package)


def timed(bench, task, who, log, name, *words, needs=()):
    """A script that times itself: the import of packages is not in it."""
    command = bench.peers.script(name, *words)
    return Job(GROUP, task, who, log, command, needs=needs, rounds=ROUNDS,
               times_itself=two_numbers)


def frames(bench, package):
    """The messages of a channel as a frame of Polars, and decoded without one."""
    if not bench.peers.has("polars"):
        return
    for name in jobs_decode.TYPES:
        log = bench.log(name)
        words = [package, "table", log, bench.types]
        yield timed(bench, FRAME, "sluice", log, "sluice_py.py", *words)
        yield Job(GROUP, FRAME, KEPT, log, [bench.programs / "keep-columns", log, bench.types],
                  rounds=ROUNDS, times_itself=two_numbers)
        decode = pipelines.decode([bench.types])
        text = pipelines.text(pipelines.lcm_log(log), pipelines.null(), decode)
        yield timed(bench, FRAME, DECODING, log, "sluice_py.py", package, "run", log, text)
        if bench.peers.lcm_gen and bench.peers.has("lcm", "pyarrow"):
            classes = bench.classes()
            yield timed(bench, FRAME, CLASSES, log, "frame_lcm_polars.py", log, classes,
                        needs=[classes])


def events(bench, package):
    log = bench.log("small")
    yield timed(bench, EVENTS, "sluice", log, "sluice_py.py", package, "events", log)
    if bench.peers.has("lcm"):
        yield timed(bench, EVENTS, PEER, log, "sluice_py.py", package, "lcm", log)


def stages(bench, package):
    log = bench.log("small")
    plugins = bench.data / "pipelines" / "plugins.py"
    stage = {"plugin": "python", "file": str(plugins), "name": "same"}
    for who, given, files in (("sluice", stage, [plugins]), (WITHOUT, None, [])):
        text = pipelines.text(pipelines.lcm_log(log), pipelines.null(), given)
        yield timed(bench, STAGE, who, log, "sluice_py.py", package, "run", log, text, *files)


def imports(bench, package):
    log = bench.log("pose")
    for who, word in (("sluice", "import"), (PLAIN, "nothing")):
        command = bench.peers.script("sluice_py.py", package, word, log)
        yield Job(GROUP, IMPORT, who, log, command, rounds=ROUNDS)
