"""Adds up every column of a folder of typed tables, and prints channel, column, rows and the sum.

Lists count with all their elements, bytes with their length. Needs pyarrow.
"""

import sys
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from count_rows import channel_of

# Columns of the events, not of their messages.
EVENTS = ("event_no", "timestamp", "source", "sequence", "channel", "payload")


def total(array):
    """The sum of an array, in double precision, because an integer sum may exceed 64 bits."""
    if pa.types.is_list(array.type) or pa.types.is_large_list(
        array.type) or pa.types.is_fixed_size_list(array.type):
        return total(pc.list_flatten(array))
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        array = pc.binary_length(array.cast(pa.large_binary()))
    return pc.sum(array.cast(pa.float64())).as_py() or 0


def main():
    rows, totals = defaultdict(int), defaultdict(float)
    for path in sorted(Path(sys.argv[1]).rglob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                group = file.read_row_group(number)
                for name in group.column_names:
                    if name in EVENTS:
                        continue
                    rows[channel_of(path), name] += group.num_rows
                    totals[channel_of(path), name] += total(group[name])
    for (channel, name), value in sorted(totals.items()):
        print(channel, name, rows[channel, name], f"{value:.7g}", sep="\t")


if __name__ == "__main__":
    main()
