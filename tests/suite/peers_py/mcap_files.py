"""Reads and writes MCAP files with the Python package `mcap`.

read FILE: prints the messages as each reader finds them, checking checksums.
write FILE OPTIONS: writes messages by options of the writer as JSON; prints them.
"""

import base64
import io
import json
import sys

from mcap.reader import NonSeekingReader, SeekingReader
from mcap.records import Channel, Message
from mcap.stream_reader import StreamReader
from mcap.writer import CompressionType, IndexType, Writer


def text(data):
    return base64.b64encode(bytes(data)).decode()


def line(channel, message):
    return [message.log_time, message.sequence, channel.topic, text(message.data)]


def by_index(data):
    reader = SeekingReader(io.BytesIO(data), validate_crcs=True)
    summary = reader.get_summary()
    assert summary is not None and summary.statistics is not None
    found = [line(c, m) for _, c, m in reader.iter_messages(log_time_order=False)]
    assert summary.statistics.message_count == len(found)
    assert sum(summary.statistics.channel_message_counts.values()) == len(found)
    return found


def without_index(data):
    reader = NonSeekingReader(io.BytesIO(data), validate_crcs=True)
    return [line(c, m) for _, c, m in reader.iter_messages(log_time_order=False)]


def as_a_stream(data):
    channels, found = {}, []
    for record in StreamReader(io.BytesIO(data), validate_crcs=True).records:
        if isinstance(record, Channel):
            channels[record.id] = record
        elif isinstance(record, Message):
            found.append(line(channels[record.channel_id], record))
    return found


def read(path):
    data = open(path, "rb").read()
    first, *others = [read(data) for read in (by_index, without_index, as_a_stream)]
    assert all(other == first for other in others), "the readers differ"
    return first


def write(path, options):
    options = json.loads(options)
    kind = {"zstd": CompressionType.ZSTD, "lz4": CompressionType.LZ4, "none": CompressionType.NONE}
    options["compression"] = kind[options["compression"]]
    options["index_types"] = IndexType.ALL if options.pop("indexes") else IndexType.NONE
    messages = []
    with open(path, "wb") as file:
        writer = Writer(file, **options)
        writer.start(profile="x", library="peer")
        writer.add_metadata("about", {"key": "value"})
        schema = writer.register_schema("pkg/msg/T", "ros2msg", b"int32 x")
        topics = ["/a", "/b", "/c"]
        ids = [writer.register_channel(t, "cdr", schema if t == "/a" else 0) for t in topics]
        for n in range(500):
            time, data = 10**18 + n * 7919 % 500 * 1000, bytes([n % 251]) * (n % 97)
            writer.add_message(ids[n % 3], time, data, time, n)
            messages.append([time, n, topics[n % 3], text(data)])
        writer.add_attachment(1, 2, "name", "text/plain", b"abc")
        writer.finish()
    return messages


if __name__ == "__main__":
    done = {"read": read, "write": write}[sys.argv[1]](*sys.argv[2:])
    for message in done:
        print(json.dumps(message))
