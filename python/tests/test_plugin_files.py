"""Files of plugins in Python: each is run once for each node, as a module of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import sluice

SLOW = """
from __future__ import annotations
import dataclasses, pickle, sys, time, typing
import sluice

with open("runs", "a") as file:
    file.write("run ")
# Other threads come meanwhile.
time.sleep(0.3)

@dataclasses.dataclass
class Options:
    count: int = 1

@sluice.stage
class Stage:
    def __init__(self):
        with open("runs", "a") as file:
            file.write("made ")

    def __call__(self, batch):
        made = dataclasses.make_dataclass("Made", ["x"], namespace={"y": Options})
        assert pickle.loads(pickle.dumps(Options(3))) == Options(3)
        assert typing.get_type_hints(Options) == {"count": int}
        assert sys.modules[__name__].Options is Options and made(1).x == 1
        return batch
"""
FAILS = """
import time
with open("runs", "a") as file:
    file.write("run ")
time.sleep(0.3)
raise ValueError("no model")
"""
KEEPS_EXCEPTIONS = """
import sluice

try:
    import no_such_module
except ImportError as error:
    why_not = error

@sluice.stage
class Stage:
    def __init__(self):
        try:
            raise ValueError("no model")
        except ValueError as error:
            self.why_not = error
            Stage.latest = self

    def __call__(self, batch):
        return batch
"""
TWO_NODES = """
[sources.log]
plugin = "lcm-log"
path = "drive.lcm"

[stages.one]
plugin = "python"
from = "log"
file = "plugins.py"
name = "Stage"

[stages.two]
plugin = "python"
from = "one"
file = "plugins.py"
name = "Stage"

[sinks.out]
plugin = "lcm-log"
from = "two"
path = "out.lcm"
"""
ONE_NODE = TWO_NODES.replace('from = "two"', 'from = "one"').replace(
    TWO_NODES[TWO_NODES.index("[stages.two]") : TWO_NODES.index("[sinks.out]")], ""
)


@pytest.fixture(autouse=True)
def log(drive: Path, tmp_path: Path) -> None:
    """A drive in the working folder."""
    (tmp_path / "drive.lcm").symlink_to(drive)


def plugin_modules() -> list[str]:
    return [name for name in sys.modules if name.startswith("sluice_plugins")]


@pytest.mark.parametrize(("pipeline", "nodes"), [(ONE_NODE, 1), (TWO_NODES, 2)])
def test_a_file_is_run_once_for_each_node_however_many_threads_need_it(
    drive: Path, pipeline: str, nodes: int
) -> None:
    Path("plugins.py").write_text(SLOW)
    Path("p.toml").write_text(pipeline)
    arguments = list(sys.argv)
    assert sluice.run("p.toml", allow_exec=True, jobs=8)
    assert sorted(Path("runs").read_text().split()) == ["made"] * nodes + ["run"] * nodes
    assert Path("out.lcm").read_bytes() == drive.read_bytes()
    assert sys.argv == arguments and not plugin_modules()
    # A file that was changed just now is run as it is.
    assert not Path("__pycache__").exists()


def test_a_file_that_fails_is_run_once() -> None:
    Path("plugins.py").write_text(FAILS)
    Path("p.toml").write_text(ONE_NODE)
    with pytest.raises(sluice.SluiceError, match=r"no model \(.*plugins.py, line 6\)"):
        sluice.run("p.toml", allow_exec=True, jobs=8)
    assert Path("runs").read_text() == "run " and not plugin_modules()


def test_a_file_that_keeps_an_exception_ends_with_its_run(drive: Path) -> None:
    Path("plugins.py").write_text(KEEPS_EXCEPTIONS)
    Path("p.toml").write_text(TWO_NODES)
    assert sluice.run("p.toml", allow_exec=True)
    assert Path("out.lcm").read_bytes() == drive.read_bytes()
    assert not plugin_modules()
