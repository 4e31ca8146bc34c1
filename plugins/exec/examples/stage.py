"""Keeps events with long payloads, and moves them to channels of their own: python3 stage.py LEAST"""
import sys
import pyarrow as pa
import pyarrow.compute as pc

least = int(sys.argv[1])
with pa.ipc.open_stream(sys.stdin.buffer) as events:
    with pa.ipc.new_stream(sys.stdout.buffer, events.schema) as out:
        for batch in events:
            batch = batch.filter(pc.greater_equal(pc.binary_length(batch["payload"]), least))
            long = pc.binary_join_element_wise("LONG", batch["channel"], "_")
            out.write_batch(batch.set_column(batch.schema.get_field_index("channel"), "channel", long))
