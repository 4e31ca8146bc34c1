"""Checks the LeRobot dataset in a folder by what its reader needs, with pyarrow, pandas and Pillow.

Mirrors LeRobot 0.6.1: what it refuses fails here, and so does what it accepts and then reads wrongly.
"""
import io
import json
import pathlib
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

DEFAULTS = {
    "timestamp": "float32", "frame_index": "int64", "episode_index": "int64", "index": "int64",
    "task_index": "int64",
}
QUANTILES = ["q01", "q10", "q50", "q90", "q99"]


def load(folder, kind):
    paths = sorted(folder.glob(f"{kind}/*/*.parquet"))
    assert paths, f"no files in {kind}"
    for path in paths:
        chunk, file = path.parent.name, path.stem
        assert chunk.startswith("chunk-") and len(chunk) >= 9, path
        assert file.startswith("file-") and len(file) >= 8, path
    return paths, [pq.read_table(path) for path in paths]


def check_info(info):
    assert info["codebase_version"] == "v3.0"
    assert info["fps"] > 0 and info["total_episodes"] > 0 and info["total_frames"] > 0
    assert info["splits"] == {"train": f"0:{info['total_episodes']}"}
    assert info["data_path"] == "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
    names = list(info["features"])
    assert names[-5:] == list(DEFAULTS)
    for name, feature in info["features"].items():
        assert "/" not in name and set(feature) >= {"dtype", "shape", "names"}, name
        if name in DEFAULTS:
            assert (feature["dtype"], feature["shape"]) == (DEFAULTS[name], [1])
        if feature["dtype"] == "image":
            assert feature["names"] == ["height", "width", "channels"] and len(feature["shape"]) == 3


def expected_type(feature):
    if feature["dtype"] == "string":
        return pa.string()
    if feature["dtype"] == "image":
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    value = pa.from_numpy_dtype(np.dtype(feature["dtype"]))
    shape = feature["shape"]
    if shape == [1]:
        return value
    if len(shape) == 1:
        return pa.list_(pa.field("element", value), shape[0])
    for _ in shape:
        value = pa.list_(pa.field("element", value))
    return value


def check_schema(table, info):
    assert table.column_names == list(info["features"])
    metadata = json.loads(table.schema.metadata[b"huggingface"])
    assert list(metadata["info"]["features"]) == table.column_names
    assert len(metadata["fingerprint"]) == 16
    for name, feature in info["features"].items():
        found = table.schema.field(name).type
        assert found == expected_type(feature), f"{name}: {found}"
        assert table[name].null_count == 0, name


def check_images(table, name, feature):
    for image in table[name].to_pylist():
        decoded = np.asarray(Image.open(io.BytesIO(image["bytes"])))
        if decoded.ndim == 2:
            decoded = decoded[:, :, None]
        assert list(decoded.shape) == feature["shape"], f"{name}: {decoded.shape}"


def sampled(frames):
    count = max(min(100, frames), min(int(frames**0.75), 10_000))
    return np.round(np.linspace(0, frames - 1, count)).astype(int)


def values(table, name, feature):
    """The values as rows of dimensions, and how many frames they are of."""
    if feature["dtype"] == "image":
        files = table[name].to_pylist()
        frames = sampled(len(files))
        step = 1 if max(feature["shape"][:2]) < 300 else int(max(feature["shape"][:2]) / 150)
        images = [np.asarray(Image.open(io.BytesIO(files[n]["bytes"]))) for n in frames]
        images = [image.reshape(feature["shape"])[::step, ::step] for image in images]
        return np.concatenate([image.reshape(-1, feature["shape"][2]) for image in images]) / 255, len(frames)
    rows = np.array(table[name].to_pylist(), dtype=np.float64)
    return rows.reshape(-1, feature["shape"][-1]), len(rows)


def check_stats(name, feature, rows, count, stats, is_image):
    near = lambda found, expected, within: np.testing.assert_allclose(
        np.array(found, dtype=np.float64).reshape(-1), expected, rtol=1e-5, atol=within, err_msg=name)
    span = rows.max(axis=0) - rows.min(axis=0)
    # Decoders of JPEG differ in rounding.
    within = 0.01 if is_image else 1e-9 + 1e-6 * span.max()
    near(stats["min"], rows.min(axis=0), max(within, 0.02 if is_image else 0))
    near(stats["max"], rows.max(axis=0), max(within, 0.02 if is_image else 0))
    near(stats["mean"], rows.mean(axis=0), within)
    near(stats["std"], rows.std(axis=0), within)
    assert np.array(stats["count"]).tolist() == [count], name
    found = np.array([np.array(stats[q], dtype=np.float64).reshape(-1) for q in QUANTILES])
    assert (np.diff(found, axis=0) >= -1e-9).all(), name


def check_episodes(folder, info, data):
    _, tables = load(folder, "meta/episodes")
    episodes = pa.concat_tables(tables).to_pylist()
    assert [row["episode_index"] for row in episodes] == list(range(info["total_episodes"]))
    tasks = pd.read_parquet(folder / "meta/tasks.parquet")
    assert tasks.index.name == "task" and tasks["task_index"].tolist() == list(range(len(tasks)))
    assert len(tasks) == info["total_tasks"]
    start = 0
    for row in episodes:
        assert (row["dataset_from_index"], row["dataset_to_index"]) == (start, start + row["length"])
        frames = data.slice(start, row["length"])
        start += row["length"]
        assert set(frames["episode_index"].to_pylist()) == {row["episode_index"]}
        assert frames["frame_index"].to_pylist() == list(range(row["length"]))
        expected = (np.arange(row["length"]) / info["fps"]).astype(np.float32)
        assert (frames["timestamp"].to_numpy() == expected).all()
        texts = [tasks.iloc[n].name for n in frames["task_index"].to_pylist()]
        assert row["tasks"] == list(dict.fromkeys(texts))
        path = folder / info["data_path"].format(
            chunk_index=row["data/chunk_index"], file_index=row["data/file_index"])
        assert row["episode_index"] in pq.read_table(path, columns=["episode_index"])["episode_index"].to_pylist()
        for name, feature in info["features"].items():
            if feature["dtype"] != "string":
                rows, count = values(frames, name, feature)
                stats = {key: row[f"stats/{name}/{key}"] for key in ["min", "max", "mean", "std", "count", *QUANTILES]}
                check_stats(name, feature, rows, count, stats, feature["dtype"] == "image")
    assert start == info["total_frames"]
    return episodes


def check_all_stats(info, stats, data):
    measured = [name for name, feature in info["features"].items() if feature["dtype"] != "string"]
    assert list(stats) == measured
    for name in measured:
        feature = info["features"][name]
        is_image = feature["dtype"] == "image"
        shape = (feature["shape"][2], 1, 1) if is_image else (feature["shape"][-1],)
        for key in ["min", "max", "mean", "std", *QUANTILES]:
            assert np.array(stats[name][key]).shape == shape, f"{name} {key}"
        if not is_image:
            rows, count = values(data, name, feature)
            check_stats(name, feature, rows, count, stats[name], False)


def main(folder):
    info = json.loads((folder / "meta/info.json").read_text())
    check_info(info)
    paths, tables = load(folder, "data")
    for table in tables:
        check_schema(table, info)
    data = pa.concat_tables(tables)
    assert data.num_rows == info["total_frames"]
    assert data["index"].to_pylist() == list(range(data.num_rows))
    for name, feature in info["features"].items():
        if feature["dtype"] == "image":
            check_images(data, name, feature)
    episodes = check_episodes(folder, info, data)
    groups = sum(pq.ParquetFile(path).num_row_groups for path in paths)
    assert groups == len(episodes), f"{groups} row groups"
    check_all_stats(info, json.loads((folder / "meta/stats.json").read_text()), data)
    print(f"{len(episodes)} episodes, {data.num_rows} frames, {info['total_tasks']} tasks: ok")


main(pathlib.Path(sys.argv[1]))
