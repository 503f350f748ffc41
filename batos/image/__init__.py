"""The living image: storage, units of work, ledger, journal, history.

Its persistent classes are written into every record under the name `batos.image.<Class>`; that name never changes.
"""

from batos.image.examples import Taught
from batos.image.journal import Decision, Journal, JournalEntry, Recalled
from batos.image.ledger import Costs, Ledger, MissionTree, Newest
from batos.image.living import LivingImage
from batos.image.partials import PartialText

__all__ = [
    "Costs",
    "Decision",
    "Journal",
    "JournalEntry",
    "Ledger",
    "LivingImage",
    "MissionTree",
    "Newest",
    "PartialText",
    "Recalled",
    "Taught",
]
