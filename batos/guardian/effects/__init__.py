"""What a method does to the image, on every path through it.

An abstract interpretation of the syntax tree: names stand for sets of abstract objects (`heap.py`), a state says what has
been written since the flag was set (`state.py`), statements move it along every path (`statements.py`) and expressions find
reads, sends and writes (`expressions.py`, `calls.py`). It says `may write` where it cannot tell, never the reverse.
"""

from batos.guardian.effects.statements import analyse

__all__ = ["analyse"]
