"""Gives every line of a text file as an event: python3 source.py FILE"""
import sys
import pyarrow as pa

schema = pa.schema({"timestamp": pa.timestamp("ms"), "channel": pa.string(), "payload": pa.string()})
with open(sys.argv[1]) as lines, pa.ipc.new_stream(sys.stdout.buffer, schema) as out:
    for line in lines:
        millis, channel, text = line.rstrip("\n").split(" ", 2)
        event = {"timestamp": int(millis), "channel": channel, "payload": text}
        out.write_batch(pa.RecordBatch.from_pylist([event], schema))
