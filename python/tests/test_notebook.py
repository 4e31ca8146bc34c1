"""The notebook: its cells run in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parent.parent / "docs" / "from-a-log-to-a-plot.ipynb"


def test_every_cell_of_the_notebook_runs(drive: Path, tmp_path: Path) -> None:
    for module in ["polars", "duckdb", "pandas", "pyarrow", "matplotlib"]:
        pytest.importorskip(module)
    import matplotlib

    matplotlib.use("Agg")
    (tmp_path / "drive.lcm").symlink_to(drive)
    names: dict[str, Any] = {}
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)  # noqa: S102
    assert names["pose"].height == 200 and names["pose"]["x"].n_unique() > 1
    assert names["sizes"] and names["result"].written == 200
