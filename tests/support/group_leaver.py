"""Leave a process behind that is in another session and process group, and write its number: `group_leaver.py FILE`."""

from __future__ import annotations

import os
import sys
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for stream in (0, 1, 2):
            os.close(stream)
        with open(f"{sys.argv[1]}.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(f"{sys.argv[1]}.new", sys.argv[1])
        time.sleep(600)
    os._exit(0)
os.wait()
