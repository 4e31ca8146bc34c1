"""Writes the descriptor sets of Foxglove's schemas, as PyPI `foxglove-sdk` has them.

    pip install foxglove-sdk==0.30.3 && python fetch.py
"""

import pathlib

from foxglove import messages

NAMES = [
    "CameraCalibration",
    "CompressedImage",
    "FrameTransforms",
    "LaserScan",
    "LocationFix",
    "Log",
    "PointCloud",
    "PoseInFrame",
    "RawImage",
]

for name in NAMES:
    schema = getattr(messages, name).get_schema()
    assert (schema.name, schema.encoding) == (f"foxglove.{name}", "protobuf"), schema
    path = pathlib.Path(__file__).with_name(f"{name}.binpb")
    path.write_bytes(schema.data)
    print(path.name, len(schema.data))
