"""Jobs with the Python package of Sluice. Prints their wall and CPU seconds.

    sluice_py.py PACKAGE table LOG TYPES
    sluice_py.py PACKAGE events LOG
    sluice_py.py PACKAGE lcm LOG
    sluice_py.py PACKAGE run LOG PIPELINE [PLUGINS]
    sluice_py.py PACKAGE import LOG

PACKAGE is the folder that has `sluice`, PIPELINE the text of a pipeline, PLUGINS the file for the
plugins that it names. The log of `table` has one channel.
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

    pipeline, *plugins = WORDS
    for path in map(Path, plugins):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SAME)
    with TemporaryDirectory() as folder:
        file = Path(folder, "p.toml")
        file.write_text(pipeline)
        timed(lambda: sluice.run(file, allow_exec=True))


def main():
    if JOB == "import":
        import sluice

        assert sluice.__version__
    elif JOB != "nothing":
        {"table": table, "events": events, "lcm": lcm, "run": run}[JOB]()


if __name__ == "__main__":
    main()
