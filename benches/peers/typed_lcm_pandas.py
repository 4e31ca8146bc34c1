"""Decodes a log with the classes that lcm-gen made, and writes one table per channel with pandas.

    typed_lcm_pandas.py LOG OUT FOLDER
"""

import sys
from pathlib import Path

import classes
import lcm
import pandas as pd

log, out, folder = sys.argv[1:]
known = classes.of_folder(folder)
channels = {}
for event in lcm.EventLog(log):
    numbers, times, messages = channels.setdefault(event.channel, ([], [], []))
    numbers.append(event.eventnum)
    times.append(event.timestamp)
    messages.append(known[event.data[:8]].decode(event.data))
for channel, (numbers, times, messages) in channels.items():
    columns = classes.Columns(type(messages[0]))
    frame = pd.DataFrame({
        "event_no": numbers,
        "timestamp": pd.to_datetime(times, unit="us", utc=True),
        **dict(zip(columns.schema.names, columns.lists(messages))),
    })
    path = Path(out) / f"channel={channel}" / "part-00000.parquet"
    path.parent.mkdir(parents=True)
    frame.to_parquet(path, engine="pyarrow", compression="zstd", compression_level=3, index=False)
