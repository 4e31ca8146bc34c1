"""Puts fields of a log into rows at 50 Hz with pandas and numpy, and writes one table.

    align_lcm_pandas.py LOG OUT FOLDER
"""

import sys
from pathlib import Path

import classes
import lcm
import numpy as np
import pandas as pd

STEP, TOLERANCE = 20_000, 100_000
CHANNELS = ("POSE", "SKIRT_FC", "GPS_TO_LOCAL")

log, out, folder = sys.argv[1:]
known = classes.of_folder(folder)
found = {channel: ([], []) for channel in CHANNELS}
for event in lcm.EventLog(log):
    if event.channel in found:
        times, messages = found[event.channel]
        times.append(event.timestamp)
        messages.append(known[event.data[:8]].decode(event.data))

begin = min(times[0] for times, _ in found.values())
end = max(times[-1] for times, _ in found.values()) + TOLERANCE
rows = pd.DataFrame({"timestamp": np.arange(-(-begin // STEP) * STEP, end + 1, STEP)})


def last(channel, **fields):
    """The last values up to each row."""
    times, messages = found[channel]
    columns = {name: list(map(take, messages)) for name, take in fields.items()}
    return pd.merge_asof(rows, pd.DataFrame({"timestamp": times, **columns}), on="timestamp",
                         tolerance=TOLERANCE).drop(columns="timestamp")


def linear(channel, take):
    """Between the values before and after each row, both within the tolerance."""
    times, messages = found[channel]
    times, values = np.array(times), np.array(list(map(take, messages)))
    at = rows["timestamp"].to_numpy()
    after = np.searchsorted(times, at, side="right")
    before, far = np.maximum(after - 1, 0), 1 << 60
    gap_before = np.where(after > 0, at - times[before], far)
    gap_after = np.where(after < len(times), times[np.minimum(after, len(times) - 1)] - at, far)
    fits = (gap_before == 0) | ((gap_before <= TOLERANCE) & (gap_after <= TOLERANCE))
    columns = [np.interp(at, times, column) for column in values.T]
    return pd.Series([row if fit else None for row, fit in zip(np.column_stack(columns), fits)])


table = pd.concat([rows, last("POSE", vel=lambda m: m.vel, turn=lambda m: m.rotation_rate[2]),
                   last("SKIRT_FC", scan=lambda m: m.ranges),
                   last("GPS_TO_LOCAL", fix=lambda m: m.local)], axis=1)
table["pos"] = linear("POSE", lambda m: m.pos)
table = table.dropna()
table["timestamp"] = pd.to_datetime(table["timestamp"], unit="us", utc=True)
path = Path(out) / "channel=aligned" / "part-00000.parquet"
path.parent.mkdir(parents=True)
table.to_parquet(path, engine="pyarrow", compression="zstd", compression_level=3, index=False)
