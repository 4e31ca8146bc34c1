"""Logs for tests and doctests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import sluice

DEMO = """
[sources.demo]
plugin = "demo"
seconds = 2

[sinks.log]
plugin = "lcm-log"
from = "demo"
path = "drive.lcm"
"""


@pytest.fixture(scope="session")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds of a drive: 5,755 events on 22 channels."""
    folder = tmp_path_factory.mktemp("drive")
    (folder / "demo.toml").write_text(DEMO)
    assert sluice.run(folder / "demo.toml")
    return folder / "drive.lcm"


@pytest.fixture(scope="session")
def torn(drive: Path) -> Path:
    """The same drive with 3,000 wrong bytes in its middle."""
    log = bytearray(drive.read_bytes())
    middle = len(log) // 2
    log[middle : middle + 3000] = bytes(3000)
    path = drive.with_name("torn.lcm")
    path.write_bytes(log)
    return path


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What datasets need of PyTorch, which is too large for tests: this process has no worker."""
    modules = [ModuleType(name) for name in ("torch", "torch.utils", "torch.utils.data")]
    whole, utils, data = modules
    whole.utils, utils.data = utils, data  # type: ignore[attr-defined]
    data.IterableDataset = object  # type: ignore[attr-defined]
    data.get_worker_info = lambda: None  # type: ignore[attr-defined]
    for module in modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Doctests find the drive in the working folder."""
    monkeypatch.chdir(tmp_path)
    if isinstance(request.node, pytest.DoctestItem):
        (tmp_path / "drive.lcm").symlink_to(request.getfixturevalue("drive"))
        request.getfixturevalue("torch")
    yield
