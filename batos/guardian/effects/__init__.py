"""Effect analysis: the effects of a method on the image, on every path through it.

The analysis is an abstract interpretation of the syntax tree. Names stand for sets of abstract objects, and a state records the writes
since the flag was set (`abstract_state.py`). Statements move the state along every path (`statements.py`). Expressions find reads,
sends and writes (`expressions.py`, `calls.py`). In doubt the analysis reports a write.
"""

from batos.guardian.effects.statements import analyse

__all__ = ["analyse"]
