"""Decodes a log of one message type into an Arrow table, and prints a JSON line with the best of
several rounds.

    decode_lcm_pyarrow.py LOG FOLDER [ROUNDS]

FOLDER has the classes that lcm-gen made. Events are in memory; reading them is not timed.
"""

import json
import sys
import time

import classes
import lcm
import pyarrow as pa


def main():
    log, folder, *rounds = sys.argv[1:]
    payloads = [event.data for event in lcm.EventLog(log)]
    of = classes.of_folder(folder)[payloads[0][:8]]
    columns, best = classes.Columns(of), float("inf")
    for _ in range(int(rounds[0]) if rounds else 1):
        began = time.perf_counter()
        messages = list(map(of.decode, payloads))
        table = pa.table(columns.lists(messages), schema=columns.schema)
        best = min(best, time.perf_counter() - began)
        assert table.num_rows == len(payloads)
        del messages, table
    print(json.dumps(
        {"rows": len(payloads), "seconds": best, "rows_per_second": len(payloads) / best}))


if __name__ == "__main__":
    main()
