"""Living image: storage, units of work, ledger, journal, history, undo and upkeep.

Its persistent classes are written into every record under the name `batos.image.<Class>`; that name never changes.
"""

from batos.image import tree_families  # isort: skip  # noqa: F401  # before anything imports BTrees
from batos.image.answered_turns import AnsweredTurns, TurnTree
from batos.image.blobs import Picture, Pictures
from batos.image.effects import EffectIndex, RecordedEffect
from batos.image.grants import GrantTable
from batos.image.journal import Decision, Journal, JournalEntry, PartialText, Recalled
from batos.image.kernels import KernelRecord, Kernels, Lead
from batos.image.ledger import Costs, Ledger, MissionTree, Newest, PendingSet
from batos.image.living_image import LivingImage
from batos.image.method_doubts import MethodDoubts
from batos.image.mission_index import Ended, EndedTree, Folded, LineTree, NumberTree
from batos.image.model_registry import KnownModels
from batos.image.notices import NoticeOutbox
from batos.image.server import ImageUse
from batos.image.taught_examples import Taught

__all__ = [
    "AnsweredTurns",
    "Costs",
    "Decision",
    "EffectIndex",
    "Ended",
    "EndedTree",
    "Folded",
    "GrantTable",
    "ImageUse",
    "Journal",
    "JournalEntry",
    "KernelRecord",
    "Kernels",
    "KnownModels",
    "Lead",
    "Ledger",
    "LineTree",
    "LivingImage",
    "MethodDoubts",
    "MissionTree",
    "Newest",
    "NoticeOutbox",
    "NumberTree",
    "PartialText",
    "PendingSet",
    "Picture",
    "Pictures",
    "Recalled",
    "RecordedEffect",
    "Taught",
    "TurnTree",
]
