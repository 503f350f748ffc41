"""The units that systemd runs a daemon by: one of a user, one of the machine.

The hardening leaves what BAT OS itself needs: landlock and seccomp, by which a worker for generated methods gives up its rights
(systemd 252 knows no group of them); memory may be made executable, since models are computed by code that is made at run time;
devices are seen, since a GPU is one; and only the main process may speak to the manager, so that no child can.
"""

from __future__ import annotations

import sys
from pathlib import Path

MARK = "# made by `batos service install`: changed by hand it is not overwritten any more if this line is taken out"
NAME = "batos.service"
_STOP_S = 90  # shutdown_s, a last commit, and the end of Ollama

_SERVICE = """\
Type=notify
NotifyAccess=main
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
WatchdogSec=60
TimeoutStartSec=300
TimeoutStopSec={stop_s}
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=2
KillMode=mixed
OOMPolicy=continue
LimitNOFILE=65536
UMask=0077
"""
_WALLS = """\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp
SystemCallErrorNumber=EPERM
"""
_ROOMS = """\
CapabilityBoundingSet=
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
ProtectProc=invisible
RemoveIPC=yes
"""
"""What only a unit of the machine may ask for: they need rights that a user's manager has not."""


def unit(data: Path, config: Path | None, *, user: bool, python: str = sys.executable) -> str:
    """The text of a unit.

    :param data: the data folder; of a unit of the machine its last part is a folder of /var/lib.
    :param config: a settings file, where it is none of those that are found by themselves.
    :param python: the interpreter that has BAT OS.
    """
    words = [python, "-m", "batos", "run", "--data", str(data), *(["--config", str(config)] if config else [])]
    service = _SERVICE.format(command=" ".join(map(quoted, words)), stop_s=_STOP_S)
    if user:
        where, rooms, target = "", "", "default.target"
    else:
        home = quoted(str(data))
        where = f"DynamicUser=yes\nUser=batos\nStateDirectory={data.name}\nStateDirectoryMode=0700\nWorkingDirectory={home}\n"
        where += f"RuntimeDirectory={NAME.removesuffix('.service')}\n"  # of its socket: root finds it there
        where += f"Environment=HOME={home}\n"  # else a dynamic user's is /, and Ollama would keep its keys there
        rooms, target = _ROOMS, "multi-user.target"
    return (
        f"{MARK}\n[Unit]\nDescription=BAT OS, an agent that lasts\nDocumentation=man:systemd.service(5)\nAfter=network.target\n"
        f"StartLimitIntervalSec=300\nStartLimitBurst=5\n\n[Service]\n{service}{where}\n{_WALLS}{rooms}\n[Install]\nWantedBy={target}\n"
    )


def quoted(word: str) -> str:
    """A word of a command line as a unit has it; systemd.service(5), "Command lines"."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if any(c.isspace() or c in "\"'\\;" for c in word) or not word else escaped
