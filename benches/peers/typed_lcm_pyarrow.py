"""Decodes a log with the classes that lcm-gen made, and writes one table per channel with pyarrow,
batch by batch.

    typed_lcm_pyarrow.py LOG OUT FOLDER

"""

import sys
from pathlib import Path

import classes
import lcm
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 128 * 1024
BYTES = 64 << 20
HEAD = [("event_no", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC"))]


class Table:
    """A channel's table, and its rows that are not written yet."""

    def __init__(self, out, channel, of):
        path = Path(out) / f"channel={channel}" / "part-00000.parquet"
        path.parent.mkdir(parents=True)
        self.columns = classes.Columns(of)
        self.schema = pa.schema([*map(pa.field, *zip(*HEAD)), *self.columns.schema])
        self.decode = of.decode
        self.writer = pq.ParquetWriter(path, self.schema, compression="zstd", compression_level=3)
        self.numbers, self.times, self.messages, self.size = [], [], [], 0

    def push(self, event):
        self.numbers.append(event.eventnum)
        self.times.append(event.timestamp)
        self.messages.append(self.decode(event.data))
        self.size += len(event.data)
        if self.size >= BYTES or len(self.numbers) == ROWS:
            self.write()

    def write(self):
        values = [self.numbers, self.times, *self.columns.lists(self.messages)]
        arrays = [pa.array(column, field.type) for column, field in zip(values, self.schema)]
        self.writer.write_table(pa.Table.from_arrays(arrays, schema=self.schema),
                                row_group_size=ROWS)
        self.numbers, self.times, self.messages, self.size = [], [], [], 0

    def close(self):
        if self.numbers:
            self.write()
        self.writer.close()


def main():
    log, out, folder = sys.argv[1:]
    known, tables = classes.of_folder(folder), {}
    for event in lcm.EventLog(log):
        table = tables.get(event.channel)
        if table is None:
            table = tables[event.channel] = Table(out, event.channel, known[event.data[:8]])
        table.push(event)
    for table in tables.values():
        table.close()


if __name__ == "__main__":
    main()
