"""Jobs with the Python package of Sluice. Prints their wall and CPU seconds.

    sluice_py.py PACKAGE table LOG TYPES
    sluice_py.py PACKAGE null LOG TYPES
    sluice_py.py PACKAGE events LOG
    sluice_py.py PACKAGE lcm LOG
    sluice_py.py PACKAGE run LOG PLUGINS PIPELINE
    sluice_py.py PACKAGE import LOG

PACKAGE is the folder that has `sluice`. Each log has one channel, except for `events` and `run`.
"""

import sys

PACKAGE, JOB, LOG, *WORDS = sys.argv[1:]
sys.path.insert(0, PACKAGE)

SAME = """
import sluice

@sluice.stage
def same(batch):
    return batch
"""


def name_of(log, types):
    import sluice

    return next(sluice.open(log, types=types).events(limit=1)).channel


def table():
    import polars
    import sluice
    from timed import timed

    name = name_of(LOG, WORDS)

    def read():
        assert polars.DataFrame(sluice.open(LOG, types=WORDS).table(name)).height > 0

    timed(read)


def null():
    """Decodes the same messages with the same types, for no output."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    import sluice
    from timed import timed

    with TemporaryDirectory() as folder:
        file = Path(folder, "p.toml")
        file.write_text(
            f"[sources.log]\nplugin = 'lcm-log'\npath = '{LOG}'\n"
            f"[stages.decode]\nplugin = 'decode'\nfrom = 'log'\ntypes = {WORDS}\n"
            "undecoded = 'stop'\n[sinks.out]\nplugin = 'null'\nfrom = 'decode'\n")
        timed(lambda: sluice.run(file))


def events():
    import sluice
    from timed import timed

    def read():
        count = 0
        for event in sluice.open(LOG).events():
            event.payload
            count += 1
        assert count > 0

    timed(read)


def lcm():
    import lcm
    from timed import timed

    def read():
        for event in lcm.EventLog(LOG):
            event.data

    timed(read)


def run():
    from pathlib import Path
    from tempfile import TemporaryDirectory

    import sluice
    from timed import timed

    plugins, pipeline = WORDS
    with TemporaryDirectory() as folder:
        Path(plugins).parent.mkdir(parents=True, exist_ok=True)
        Path(plugins).write_text(SAME)
        file = Path(folder, "p.toml")
        file.write_text(pipeline)
        timed(lambda: sluice.run(file, allow_exec=True))


def main():
    if JOB == "import":
        import sluice

        assert sluice.__version__
    elif JOB != "nothing":
        {"table": table, "null": null, "events": events, "lcm": lcm, "run": run}[JOB]()


if __name__ == "__main__":
    main()
