"""Reads a log with LCM's Python module and prints events and bytes of payload by channel."""

import sys

import lcm

counts = {}
for event in lcm.EventLog(sys.argv[1]):
    count = counts.get(event.channel)
    if count is None:
        count = counts[event.channel] = [0, 0]
    count[0] += 1
    count[1] += len(event.data)
for channel, (events, size) in sorted(counts.items()):
    print(channel, events, size, sep="\t")
