"""Loads the dataset in a folder with LeRobot, iterates every frame, trains a step on a batch, and
compares the statistics that LeRobot computes with those in the dataset."""
import os
import pathlib
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("HF_HOME", tempfile.mkdtemp())

import numpy as np
import torch
from lerobot.datasets.compute_stats import (
    RunningQuantileStats, aggregate_stats, compute_episode_stats)
from lerobot.datasets.lerobot_dataset import LeRobotDataset

# Version 0.4.4 squares images in their 8 bits, which makes each standard deviation 0.
update = RunningQuantileStats.update
RunningQuantileStats.update = lambda self, batch: update(self, batch.astype(np.float64))

folder = pathlib.Path(sys.argv[1])
dataset = LeRobotDataset("any/name", root=folder)
info = dataset.meta.info
features = dataset.meta.features
assert len(dataset) == dataset.meta.total_frames, len(dataset)
for index in range(len(dataset)):
    item = dataset[index]
    assert int(item["index"]) == index
    assert isinstance(item["task"], str)
    for name, feature in features.items():
        if feature["dtype"] == "image":
            height, width, channels = feature["shape"]
            assert tuple(item[name].shape) == (channels, height, width), name
            assert 0 <= float(item[name].min()) and float(item[name].max()) <= 1
        elif feature["dtype"] != "string":
            shape = tuple(feature["shape"])
            assert tuple(item[name].shape) == (() if shape == (1,) else shape), name

batch = next(iter(torch.utils.data.DataLoader(dataset, batch_size=4)))
assert batch["timestamp"].shape == (4,)

with tempfile.TemporaryDirectory() as files:
    each = []
    table = dataset.hf_dataset.data.table
    for episode in range(dataset.meta.total_episodes):
        row = dataset.meta.episodes[episode]
        rows = table.slice(row["dataset_from_index"], row["dataset_to_index"] - row["dataset_from_index"])
        columns = {}
        for name, feature in features.items():
            if feature["dtype"] == "string":
                continue
            values = rows[name].to_pylist()
            if feature["dtype"] == "image":
                # Its writer measures images as RGB only.
                if feature["shape"][2] != 3:
                    continue
                columns[name] = []
                for number, image in enumerate(values):
                    path = pathlib.Path(files) / f"{episode}-{len(columns)}-{number}"
                    path.write_bytes(image["bytes"])
                    columns[name].append(str(path))
            else:
                columns[name] = np.array(values, dtype=feature["dtype"])
        each.append(compute_episode_stats(columns, features))
    expected = aggregate_stats(each)

for name, stats in expected.items():
    is_image = features[name]["dtype"] == "image"
    span = np.max(np.abs(stats["max"] - stats["min"]))
    for key, value in stats.items():
        found = np.asarray(dataset.meta.stats[name][key], dtype=np.float64).reshape(-1)
        # Theirs are computed in 32 bits; decoders of JPEG differ in rounding.
        within = 0.02 if is_image else 1e-6 + 2e-3 * span
        np.testing.assert_allclose(
            found, np.asarray(value, dtype=np.float64).reshape(-1), rtol=1e-3, atol=within,
            err_msg=f"{name} {key}")
print(f"{dataset.meta.total_episodes} episodes, {len(dataset)} frames: ok")
