"""Time what the chapter times, and store it: `python -m tools.measure`.

Writes chapters/data/attention.json, with the machine, the versions and the date, so that no
notebook stores a time of its own. Takes about half a minute of one core.
"""

import datetime
import json
import platform
import sys

import torch

from d2l_local import torch as d2l
from tools.notebooks import ROOT

SHAPES = [(32, 32, 64, 4), (8, 128, 128, 8), (4, 512, 256, 8), (1, 2048, 256, 4)]  # B, n, d, h


def processor():
    """The name of this machine's processor, as its system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def speed(shape):
    return {name: round(ratio, 3) for name, ratio in d2l.layer_speed(*shape).items()}


def main():
    torch.manual_seed(0)
    measured = {
        "command": "python -m tools.measure",
        "machine": processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
        "layer_speed": [{"shape": shape, "ratios": speed(shape)} for shape in SHAPES],
    }
    file = ROOT / "chapters" / "data" / "attention.json"
    file.parent.mkdir(exist_ok=True)
    text = json.dumps(measured, indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8", newline="\n")
    print(f"wrote {file.name}; now run python -m tools.save and python -m tools.run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
