"""BAT OS: an agent that lasts. `python -m batos` runs the daemon; start reading at `batos/app/kernel.py`."""

__version__ = "0.2.0"
