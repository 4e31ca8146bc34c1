#!/usr/bin/env python3
"""Makes the pictures of a report's page: plugins/report/page.png, page-dark.png, page-track.png.

    pip install pillow
    apt install chromium-headless-shell
    docs/pictures/report_page.py PATH/TO/sluice [CHROMIUM]

Run it again when the page looks different.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/suite"))
import browser  # noqa: E402

TARGET = ROOT / "plugins/report"
# Name, scheme, size of the window, and the element that is shown from its top; None: the page.
PICTURES = [
    ("page.png", "light", (1280, 1180), None),
    ("page-dark.png", "dark", (1280, 760), "#timeline"),
    ("page-track.png", "dark", (1280, 900), "#track"),
]


def small(path):
    """Fewer colours: enough for a page, and a third of the bytes."""
    picture = Image.open(path).convert("RGB")
    picture.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def main():
    program = Path(sys.argv[1]).resolve()
    chromium = browser.Browser(sys.argv[2] if len(sys.argv) > 2 else "chromium-headless-shell")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        for command in [
            ["run", "quickstart", "--set", "SECONDS=20"],
            ["report", "quickstart-out/drive.lcm", "--to", page.name],
        ]:
            subprocess.run([program, *command], cwd=folder, check=True)
        for name, scheme, (width, height), selector in PICTURES:
            browser.picture(chromium, page, TARGET / name, width, height, scheme, selector)
            small(TARGET / name)
    chromium.close()


main()
