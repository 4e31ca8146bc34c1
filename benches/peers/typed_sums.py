"""Decodes a log with the classes that lcm-gen made, and writes the expected output of `sums.py` for
its tables.

    typed_sums.py LOG OUT FOLDER

"""

import math
import sys
from itertools import chain

import classes
import lcm


def numbers(values):
    """The sum of all numbers in nested lists; bytes count as their length."""
    values = list(values)
    if values and isinstance(values[0], bytes):
        return map(len, values)
    if values and isinstance(values[0], (list, tuple)):
        return numbers(chain.from_iterable(values))
    return values


log, out, folder = sys.argv[1:]
known, channels = classes.of_folder(folder), {}
for event in lcm.EventLog(log):
    channels.setdefault(event.channel, []).append(event.data)
lines = []
for channel, payloads in channels.items():
    of = known[payloads[0][:8]]
    messages = [of.decode(payload) for payload in payloads]
    columns = classes.Columns(of)
    for name, values in zip(of.__slots__, columns.lists(messages)):
        total = math.fsum(numbers(values))
        lines.append(f"{channel}\t{name}\t{len(messages)}\t{total:.7g}\n")
with open(out, "w", encoding="utf-8") as file:
    file.writelines(sorted(lines))
