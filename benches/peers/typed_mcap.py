"""Decodes an MCAP file in Python, and writes one table per topic with pyarrow, batch by batch.

    typed_mcap.py DECODER FILE OUT

DECODER is `mcap-ros2-support`, `mcap-protobuf-support` or `rosbags`.
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from mcap.reader import make_reader

ROWS = 16 * 1024


def with_mcap(path, factory):
    """Topic, time and message of each event, by a decoder for the package `mcap`."""
    with open(path, "rb") as file:
        reader = make_reader(file, decoder_factories=[factory])
        for event in reader.iter_decoded_messages(log_time_order=False):
            yield event.channel.topic, event.message.log_time, event.decoded_message


def with_rosbags(path):
    from rosbags.highlevel import AnyReader
    with AnyReader([Path(path)]) as reader:
        for connection, time, data in reader.messages():
            yield connection.topic, time, reader.deserialize(data, connection.msgtype)


def plain(value):
    """A message as Arrow takes it: dictionaries, lists and scalars."""
    if isinstance(value, (int, float, str, bytes, bool)):
        return value
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "__slots__") and value.__slots__ and not hasattr(value, "DESCRIPTOR"):
        return {name: plain(getattr(value, name)) for name in value.__slots__}
    if hasattr(value, "DESCRIPTOR"):
        fields = value.DESCRIPTOR.fields
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if hasattr(value, "__dataclass_fields__"):
        names = (name for name in value.__dataclass_fields__ if not name.startswith("__"))
        return {name: plain(getattr(value, name)) for name in names}
    return [plain(one) for one in value]


class Table:
    """A topic's table, and its rows that are not written yet."""

    def __init__(self, path):
        self.path, self.writer, self.rows = path, None, []
        path.parent.mkdir(parents=True)

    def push(self, row):
        self.rows.append(row)
        if len(self.rows) == ROWS:
            self.write()

    def write(self):
        schema = self.writer.schema if self.writer else None
        table = pa.Table.from_pylist(self.rows, schema=schema)
        if not self.writer:
            self.writer = pq.ParquetWriter(self.path, table.schema, compression="zstd",
                                           compression_level=3)
        self.writer.write_table(table)
        self.rows = []


def main():
    decoder, path, out = sys.argv[1:]
    if decoder == "rosbags":
        events = with_rosbags(path)
    elif decoder == "mcap-ros2-support":
        from mcap_ros2.decoder import DecoderFactory
        events = with_mcap(path, DecoderFactory())
    else:
        from mcap_protobuf.decoder import DecoderFactory
        events = with_mcap(path, DecoderFactory())
    tables = {}
    for topic, time, message in events:
        if topic not in tables:
            name = topic.strip("/").replace("/", "_")
            tables[topic] = Table(Path(out) / f"channel={name}" / "part-00000.parquet")
        tables[topic].push({"timestamp": time} | plain(message))
    for table in tables.values():
        if table.rows:
            table.write()
        table.writer.close()


if __name__ == "__main__":
    main()
