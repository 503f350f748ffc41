"""The living image: storage, units of work, ledger, journal, history.

Its persistent classes are written into every record under the name `batos.image.<Class>`; that name never changes.
"""

from batos.image.capabilities import KnownModels
from batos.image.ended import Ended, EndedTree
from batos.image.examples import Taught
from batos.image.folded import Folded, LineTree, NumberTree
from batos.image.journal import Decision, Journal, JournalEntry, PartialText, Recalled
from batos.image.ledger import Costs, Ledger, MissionTree, Newest, PendingSet
from batos.image.living import LivingImage
from batos.image.pictures import Picture, Pictures

__all__ = [
    "Costs",
    "Decision",
    "Ended",
    "EndedTree",
    "Folded",
    "Journal",
    "JournalEntry",
    "KnownModels",
    "Ledger",
    "LineTree",
    "LivingImage",
    "MissionTree",
    "Newest",
    "NumberTree",
    "PartialText",
    "PendingSet",
    "Picture",
    "Pictures",
    "Recalled",
    "Taught",
]
