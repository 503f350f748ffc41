"""In the place of `batos train methods`: `python fake_trainer.py WORK HOW` leaves an expert, or does not.

HOW: `good`; `nan`, whose loss is no number; `nothing` leaves none; `fails` ends with 4; `stays` says its pid in WORK and waits to be ended.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.lora import stage


def main(work: Path, how: str) -> int:
    (work / "idle").write_text(f"{os.nice(0)} {os.sched_getscheduler(0)}")
    if how == "stays":
        (work / "pid").write_text(str(os.getpid()))
        signal.pause()
    if how == "fails":
        print("no memory is left for it")
        return 4
    if how in ("good", "nan"):
        seed = 1 + len(list((work / "lora_staging").glob("*")))
        stage(work / "lora_staging", "method-writer", seed=seed, persona="brick", name="method-writer", version=7, role="methods")
    if how == "nan":
        with (work / "lora_staging" / "method-writer" / "expert.toml").open("a") as file:
            file.write("[lineage]\nfigures = { loss = nan }\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
