"""Draws one revolution of the Velodyne in the local frame, from above and from behind the vehicle.

    sluice run quickstart --set SECONDS=3
    sluice run dgc-velodyne --set INPUT=quickstart-out/drive.lcm --set OUT=points/ \
        --set START=0.5 --set END=0.567 --set DROP_ZERO_RETURNS=true
    python3 revolution.py points/ revolution.png

Needs pyarrow and matplotlib.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as parquet


def main(folder: str, picture: str) -> None:
    file = next(Path(folder).glob("channel=VELODYNE/**/*.parquet"))
    table = parquet.ParquetFile(file).read(columns=["x", "y", "z", "laser"])
    x, y, z = (table[name].to_numpy() for name in ("x", "y", "z"))
    # Where the lasers that look down most meet is below the sensor.
    near = np.isin(table["laser"].to_numpy(), [6, 7])
    centre = np.median(x[near]), np.median(y[near])
    ground = np.percentile(z[near], 50)
    east, north, up = x - centre[0], y - centre[1], z - ground
    order = np.argsort(up)

    figure, (above, side) = plt.subplots(
        1, 2, figsize=(11, 5.2), gridspec_kw={"width_ratios": [1, 1.1]}, facecolor="#10141c"
    )
    colours = {"c": np.clip(up, -0.5, 3.0)[order], "cmap": "viridis", "linewidths": 0}
    above.scatter(east[order], north[order], s=0.6, **colours)
    above.set_aspect("equal")
    above.set_xlim(-45, 45)
    above.set_ylim(-45, 45)
    above.set_title(f"{len(x):,} points from above", color="white", fontsize=10)

    # A camera 14 m behind and 9 m above the vehicle looks along local y.
    depth = north + 14.0
    seen = depth > 3.0
    right, height = east[seen] / depth[seen], (up[seen] - 9.0) / depth[seen]
    far_first = np.argsort(-depth[seen])
    colour = np.clip(up[seen], -0.5, 3.0)[far_first]
    side.scatter(right[far_first], height[far_first], s=1.0, c=colour, cmap="viridis", linewidths=0)
    side.set_xlim(-1.1, 1.1)
    side.set_ylim(-0.95, 0.2)
    side.set_title("looking along local y", color="white", fontsize=10)

    above.set_xlabel("local x from the vehicle, m", color="white", fontsize=8)
    above.set_ylabel("local y from the vehicle, m", color="white", fontsize=8)
    for axes in (above, side):
        axes.set_facecolor("#10141c")
        axes.tick_params(colors="#8a93a6", labelsize=7)
        for spine in axes.spines.values():
            spine.set_color("#39414f")
    side.set_xticks([])
    side.set_yticks([])
    figure.tight_layout()
    figure.savefig(picture, dpi=90)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
