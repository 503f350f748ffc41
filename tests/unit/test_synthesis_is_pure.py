"""The program search loads neither the image nor a model, not even by way of other modules."""

from __future__ import annotations

import subprocess
import sys

LOADED = """
import importlib, pkgutil, sys
import batos.synthesis

for found in pkgutil.iter_modules(batos.synthesis.__path__):
    importlib.import_module(f"batos.synthesis.{found.name}")
print(sorted({name for name in sys.modules if name.startswith("batos.") and name.count(".") == 1}
             | {"ZODB", "transaction", "ollama", "httpx", "zmq"} & sys.modules.keys()))
"""


def test_its_modules_load_no_part_of_the_house_above_the_objects() -> None:
    told = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True)
    assert told.stdout.strip() == str(["batos.concurrency", "batos.errors", "batos.objects", "batos.resources", "batos.synthesis"])
