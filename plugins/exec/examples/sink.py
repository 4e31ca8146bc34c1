"""Writes how many events and bytes each channel has, as a table of text."""
import sys
from collections import Counter
import pyarrow as pa
import pyarrow.compute as pc

events, sizes = Counter(), Counter()
with pa.ipc.open_stream(sys.stdin.buffer) as batches:
    for batch in batches:
        lengths = pc.binary_length(batch["payload"]).to_pylist()
        for channel, length in zip(batch["channel"].to_pylist(), lengths):
            events[channel] += 1
            sizes[channel] += length
for channel in sorted(events):
    print(channel, events[channel], sizes[channel])
print("done", file=sys.stderr)
