"""Effect analysis: the effects of a method on the image, on every path through it.

It is an abstract interpretation of the syntax tree: names stand for sets of abstract objects, a state says what was written since the flag
was set (`abstract_state.py`), statements move it along every path (`statements.py`), and expressions find reads, sends and writes
(`expressions.py`, `calls.py`). In doubt it says `may write`, never the reverse.
"""

from batos.guardian.effects.statements import analyse

__all__ = ["analyse"]
