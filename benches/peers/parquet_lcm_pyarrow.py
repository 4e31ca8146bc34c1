"""Writes a log as one Parquet table with LCM's Python module and pyarrow, batch by batch.

    parquet_lcm_pyarrow.py LOG OUT none|snappy|zstd:LEVEL
"""

import sys

import lcm
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 128 * 1024
BYTES = 64 << 20
SCHEMA = pa.schema([
    ("event_no", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("channel", pa.dictionary(pa.int32(), pa.string())),
    ("payload", pa.binary()),
])


def batches(log):
    """Row groups as lists of columns, bounded by rows and payload bytes."""
    columns, size = ([], [], [], []), 0
    numbers, times, channels, payloads = columns
    for event in log:
        numbers.append(event.eventnum)
        times.append(event.timestamp)
        channels.append(event.channel)
        payloads.append(event.data)
        size += len(event.data)
        if size >= BYTES or len(numbers) == ROWS:
            yield columns
            for column in columns:
                column.clear()
            size = 0
    if numbers:
        yield columns


def main():
    log, out, compression = sys.argv[1:]
    codec, _, level = compression.partition(":")
    with pq.ParquetWriter(out, SCHEMA, compression=codec,
                          compression_level=int(level) if level else None) as writer:
        for columns in batches(lcm.EventLog(log)):
            arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), row_group_size=ROWS)


if __name__ == "__main__":
    main()
