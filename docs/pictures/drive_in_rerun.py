#!/usr/bin/env python3
"""Makes plugins/foxglove/drive-in-rerun.png: a drive as Rerun's web viewer shows its MCAP file.

    pip install rerun-sdk pillow
    npm install --prefix TOOLS playwright-core
    apt install chromium-headless-shell
    NODE_PATH=TOOLS/node_modules docs/pictures/drive_in_rerun.py PATH/TO/sluice

Chromium draws with WebGL in software, and needs no network. Run it again when views change.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import rerun.blueprint as rrb
from PIL import Image

TARGET = Path(__file__).parents[2] / "plugins/foxglove/drive-in-rerun.png"
APPLICATION = "drive"
WEB_PORT, DATA_PORT = 19090, 19876
CAMERAS = ["RFL", "RFC", "RFR"]
# The viewer draws when data arrives; the picture is taken when it has not changed for a while.
BROWSER = """
const { chromium } = require('playwright-core');
(async () => {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell',
    args: ['--no-sandbox', '--use-angle=swiftshader', '--enable-unsafe-swiftshader'],
  });
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  await page.goto(process.argv[1], { waitUntil: 'domcontentloaded' });
  let last = Buffer.alloc(0);
  for (let same = 0; same < 3; ) {
    await page.waitForTimeout(5000);
    const next = await page.screenshot({ path: process.argv[2], timeout: 120000 });
    // Before the viewer has started, the page is nearly empty.
    same = next.length > 100000 && next.equals(last) ? same + 1 : 0;
    last = next;
  }
  await browser.close();
})();
"""


def blueprint():
    """A large view in space above the cameras, without panels around them."""
    cameras = [
        rrb.Spatial2DView(origin=f"/view/CAM_THUMB_{name}", name=f"CAM_THUMB_{name}")
        for name in CAMERAS
    ]
    return rrb.Blueprint(
        rrb.Vertical(
            rrb.Spatial3DView(origin="/", name="Vehicle, lasers and cameras"),
            rrb.Horizontal(*cameras),
            row_shares=[3, 2],
        ),
        rrb.TimePanel(state="collapsed"),
        rrb.SelectionPanel(state="collapsed"),
        rrb.BlueprintPanel(state="collapsed"),
    )


def main():
    program = Path(sys.argv[1]).resolve()
    rerun = Path(sys.executable).with_name("rerun")
    with tempfile.TemporaryDirectory() as folder:
        commands = [
            [program, "run", "quickstart", "--set", "SECONDS=4", "--set", "OUT=quick"],
            [program, "convert", "quick/drive.lcm", "--to", "drive.mcap"],
            [rerun, "mcap", "convert", "drive.mcap", "-o", "drive.rrd",
             "--application-id", APPLICATION],
        ]
        for command in commands:
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        blueprint().save(APPLICATION, Path(folder) / "drive.rbl")
        server = subprocess.Popen(
            [rerun, "--serve-web", "--bind", "127.0.0.1", "--web-viewer-port", str(WEB_PORT),
             "--port", str(DATA_PORT), "drive.rrd", "drive.rbl"],
            cwd=folder,
        )
        try:
            data = f"rerun%2Bhttp%3A%2F%2F127.0.0.1%3A{DATA_PORT}%2Fproxy"
            url = f"http://127.0.0.1:{WEB_PORT}/?renderer=webgl&persist=0&url={data}"
            taken = Path(folder) / "taken.png"
            subprocess.run(["node", "-e", BROWSER, url, taken], check=True, timeout=600)
        finally:
            server.terminate()
            server.wait()
        # 256 colours are enough for a viewer.
        Image.open(taken).convert("RGB").quantize(256).save(TARGET, optimize=True)
    print(TARGET, TARGET.stat().st_size)


if __name__ == "__main__":
    main()
