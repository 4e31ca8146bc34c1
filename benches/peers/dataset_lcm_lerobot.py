"""Makes a LeRobot dataset of an LCM log: LCM's Python module and the classes of lcm-gen read it,
pandas puts the fields into rows, and LeRobot's own writer writes them, image by image where a
camera is given.

    dataset_lcm_lerobot.py LOG OUT FOLDER FPS EPISODES [CAMERA]
"""

import io
import logging
import os
import sys

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
# It says at length that it cannot decode videos where FFmpeg is missing.
logging.disable(logging.WARNING)

import lcm
import numpy as np
import pandas as pd
from classes import of_folder
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from PIL import Image

log, out, folder, fps, episodes = sys.argv[1:6]
camera = sys.argv[6] if len(sys.argv) > 6 else None
FPS, TOLERANCE = int(fps), 200_000
STATE, ACTION, PICTURE = "observation.state", "action", "observation.images.front"

known = of_folder(folder)
channels = {"POSE": {STATE: lambda m: (*m.pos, *m.orientation),
                     ACTION: lambda m: (*m.vel, *m.rotation_rate)}}
if camera:
    channels[camera] = {PICTURE: lambda m: m.image}
found = {channel: ([], []) for channel in channels}
for event in lcm.EventLog(log):
    if event.channel in found:
        times, messages = found[event.channel]
        times.append(event.timestamp)
        messages.append(known[event.data[:8]].decode(event.data))

step = 1_000_000 // FPS
begin, end = min(min(t) for t, _ in found.values()), max(max(t) for t, _ in found.values())
rows = pd.DataFrame({"timestamp": np.arange(-(-begin // step) * step, end + TOLERANCE, step)})
for channel, fields in channels.items():
    times, messages = found[channel]
    columns = {name: list(map(take, messages)) for name, take in fields.items()}
    values = pd.DataFrame({"timestamp": times, **columns}).sort_values("timestamp", kind="stable")
    rows = pd.merge_asof(rows, values, on="timestamp", tolerance=TOLERANCE)
rows = rows.dropna()


def feature(length):
    return {"dtype": "float32", "shape": (length,), "names": None}


features = {STATE: feature(7), ACTION: feature(6)}
if camera:
    width, height = Image.open(io.BytesIO(rows[PICTURE].iloc[0])).size
    features[PICTURE] = {"dtype": "image", "shape": (height, width, 3),
                         "names": ["height", "width", "channels"]}
dataset = LeRobotDataset.create("bench/drive", FPS, features, root=out, use_videos=False,
                                image_writer_threads=4 if camera else 0)
table = pd.read_csv(episodes)
for since, until in zip(*(pd.to_datetime(table[name]).astype("int64") // 1000
                          for name in ("start", "end"))):
    for row in rows[(rows["timestamp"] >= since) & (rows["timestamp"] < until)].to_dict("records"):
        frame = {name: np.array(row[name], dtype=np.float32) for name in (STATE, ACTION)}
        if camera:
            picture = Image.open(io.BytesIO(row[PICTURE])).convert("RGB")
            frame[PICTURE] = np.asarray(picture)
        dataset.add_frame({**frame, "task": "drive"})
    dataset.save_episode()
dataset.finalize()
