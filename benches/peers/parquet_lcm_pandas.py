"""Writes a log as one Parquet table with LCM's Python module and pandas, entirely in memory.

    parquet_lcm_pandas.py LOG OUT
"""

import sys

import lcm
import pandas as pd

log, out = sys.argv[1:]
numbers, times, channels, payloads = [], [], [], []
for event in lcm.EventLog(log):
    numbers.append(event.eventnum)
    times.append(event.timestamp)
    channels.append(event.channel)
    payloads.append(event.data)
frame = pd.DataFrame({
    "event_no": numbers,
    "timestamp": pd.to_datetime(times, unit="us", utc=True),
    "channel": pd.Categorical(channels),
    "payload": payloads,
})
frame.to_parquet(out, engine="pyarrow", compression="zstd", compression_level=3, index=False)
