"""`batos train methods` on a handful of tasks, for seconds in the place of minutes: `python short_training.py ARGUMENT ...`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from batos.cli import main
from batos.training import methods
from batos.training.dataset import generate

methods.training_tasks = lambda seed: generate("validation", seed, each=1)[:6]
methods.CHECKED = 2  # each loss on 48 takes minutes on a core without bfloat16

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
