"""Prints rows and payload bytes by channel of a Parquet file, or of a folder of them.

Takes `channel` from a column or, as folders of tables have it, from the path. Needs pyarrow.
"""

import sys
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def channel_of(path):
    """The channel that a path names, if it names one."""
    named = [part for part in path.parts if part.startswith("channel=")]
    return unquote(named[-1].removeprefix("channel=")) if named else None


def groups_of(path):
    """Channel, rows and bytes of each row group's channels."""
    named = channel_of(path)
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            columns = ["payload"] if named is not None else ["channel", "payload"]
            group = file.read_row_group(number, columns=columns)
            sizes = pc.binary_length(group["payload"].cast(pa.large_binary()))
            if named is not None:
                yield named, group.num_rows, pc.sum(sizes).as_py() or 0
                continue
            table = pa.table({"channel": group["channel"].cast(pa.string()), "size": sizes})
            counted = table.group_by("channel").aggregate([("size", "count"), ("size", "sum")])
            yield from zip(
                *(counted[name].to_pylist() for name in ("channel", "size_count", "size_sum")))


def main():
    path = Path(sys.argv[1])
    rows, sizes = Counter(), Counter()
    for file in sorted(path.rglob("*.parquet")) if path.is_dir() else [path]:
        for channel, count, size in groups_of(file):
            rows[channel] += count
            sizes[channel] += size
    for channel in sorted(rows):
        print(channel, rows[channel], sizes[channel], sep="\t")


if __name__ == "__main__":
    main()
