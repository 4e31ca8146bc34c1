"""Prints the episodes and frames of a LeRobot dataset, and the sum or count of every column.

Images count, because their bytes depend on the encoder. Needs pyarrow.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from sums import total


def main():
    folder = Path(sys.argv[1])
    info = json.loads((folder / "meta" / "info.json").read_text())
    print(info["total_episodes"], info["total_frames"], sep="\t")
    table = pa.concat_tables(pq.read_table(path) for path in sorted(folder.glob("data/*/*")))
    for name in sorted(table.column_names):
        column = table[name]
        is_image = pa.types.is_struct(column.type)
        value = len(column) - column.null_count if is_image else f"{total(column):.7g}"
        print(name, value, sep="\t")


if __name__ == "__main__":
    main()
