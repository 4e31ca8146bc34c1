"""Reads a log of one message type into a frame of Polars. Prints its wall and CPU seconds.

    frame_lcm_polars.py LOG FOLDER

FOLDER has the classes that lcm-gen made.
"""

import sys

import classes
import lcm
import polars
import pyarrow as pa
from timed import timed


def main():
    log, folder = sys.argv[1:]
    known = classes.of_folder(folder)

    def read():
        events = list(lcm.EventLog(log))
        of = known[events[0].data[:8]]
        columns = classes.Columns(of)
        table = pa.table(columns.lists([of.decode(event.data) for event in events]),
                         schema=columns.schema)
        times = pa.array([event.timestamp for event in events], pa.timestamp("us", "UTC"))
        frame = polars.from_arrow(table.append_column("timestamp", times))
        assert frame.height == len(events)

    timed(read)


if __name__ == "__main__":
    main()
