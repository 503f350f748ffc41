"""The object model: prototypes, slots, delegation, cloning. No I/O, no asyncio.

Persistent classes are written into every record under the name `batos.objects.<Class>`; that name never changes,
whatever file the class lives in.
"""

from batos.objects.json_form import Example
from batos.objects.slot_values import Intent, Method, Primitive, SlotDict, SlotList, SlotSet
from batos.objects.uvm import Root, SlotsView, UvmObject, add_missing, check_slot, find, is_new, lookup_order, parents_of, understands

__all__ = [
    "Example",
    "Intent",
    "Method",
    "Primitive",
    "Root",
    "SlotDict",
    "SlotList",
    "SlotSet",
    "SlotsView",
    "UvmObject",
    "add_missing",
    "check_slot",
    "find",
    "is_new",
    "lookup_order",
    "parents_of",
    "understands",
]
