"""Settings and limits: one table, read once, passed on as a frozen object.

A value comes from, first found first: a flag of the command line, `BATOS_<NAME>` in the environment, what was chosen while
the daemon ran (`chosen.toml` in the data folder), the key in `batos.toml`, the default of the table. No other module reads the
environment. `batos config` prints the table.
"""

from batos.config.environment import Supervision, client_folder, local_endpoint, supervision, user_folder
from batos.config.settings import MIB, RELOADED, SettingRow, Settings, table
from batos.config.sources import CHOSEN_NAME, CONFIG_NAME, ENV_PREFIX, choose, load, load_with_sources, nearest, shown, unknown_variables

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
    "nearest",
    "shown",
    "supervision",
    "table",
    "unknown_variables",
    "user_folder",
]
