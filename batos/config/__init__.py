"""Settings: one table in sections, read once, passed on as a frozen object.

A value comes from the first of these places that has it:

* a flag of the command line;
* a variable of the environment (`BATOS_MISSIONS_QUEUE` for `missions.queue`);
* a choice made while the daemon ran (`chosen.toml` in the data folder);
* `batos.toml`;
* the default.

No other module reads the environment. `batos config` prints the table. Bounds that no user turns are dataclasses
beside the code: `batos.config.limits`.
"""

from batos.config.environment import Supervision, client_folder, local_endpoint, supervision, user_folder
from batos.config.settings import MIB, RELOADED, SettingRow, Settings, names, table
from batos.config.sources import (
    CHOSEN_NAME,
    CONFIG_NAME,
    ENV_PREFIX,
    choose,
    load,
    load_with_sources,
    meant,
    nearest,
    shown,
    unknown_variables,
)

__all__ = [
    "CHOSEN_NAME",
    "CONFIG_NAME",
    "ENV_PREFIX",
    "MIB",
    "RELOADED",
    "SettingRow",
    "Settings",
    "Supervision",
    "choose",
    "client_folder",
    "load",
    "load_with_sources",
    "local_endpoint",
    "meant",
    "names",
    "nearest",
    "shown",
    "supervision",
    "table",
    "unknown_variables",
    "user_folder",
]
