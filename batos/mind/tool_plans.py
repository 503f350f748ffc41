"""Plans: a brief that needs several calls of tools becomes one method, written before any tool has answered ("code mode").

brief ─ asks for it (`asks_for_plan`) ─ the forge writes a method from the brief alone ─ tried, never acting ─ run ─ its answer

A plan is an object of its own with little around it: the connections, `think_` and `ask_user_`. Free texts that tools answer it are sealed
(`batos.tools.sealed_text`), and so is whatever a model makes of them. So the calls that a plan makes are those of its text, which stood
before any page was read. Its policy is `default+sealed+tools`; grants, effects and limits are those of all methods.
"""

from __future__ import annotations

import re

from batos import scope
from batos.errors import EgressFailed, InvalidInput, MessageNotUnderstood, MethodError, MethodRefused, ToolFailed
from batos.image.effects import READS
from batos.image.living_image import add_missing
from batos.mind import sealed_sends
from batos.mind.attempt import current
from batos.mind.messages import send
from batos.mind.tool_use import Called
from batos.objects import Intent, Method, Primitive, UvmObject
from batos.tools import sealed_text

SELECTOR = "carry_out_"
"""Message by which a plan is carried out."""
NAME = f"plan.{SELECTOR}"
"""Name under which a prompt shows what came of a plan."""

_BRIEF_CHARS = 2000
_LOOPS = re.compile(
    r"\b(?:each|every|all|both|any of|one by one|those that|the ones|jede[rmns]?|alle[nrs]?|beide|chaque|tous|toutes|cada|todos|todas)\b",
    re.IGNORECASE,
)
_CONDITIONS = re.compile(r"\b(?:if|unless|otherwise|only when|in case|depending|wenn|falls|sonst|sinon|sino)\b", re.IGNORECASE)
_CHOICES = re.compile(
    r"\b(?:cheap|new|old|lat|earli|larg|small|high|low|long|short|great|few)est\b|\b(?:billigste|neueste|älteste|größte|kleinste)[nrs]?\b"
    r"|\b(?:more|less|fewer|greater|cheaper|older|newer|higher|lower|mehr|weniger|plus|moins|más|menos) (?:than|als|que)\b",
    re.IGNORECASE,
)
_THEN = re.compile(r"[.;,]\s|\s(?:and|then|und|dann|et|puis|y|luego)\s", re.IGNORECASE)


def asks_for_plan(brief: str) -> bool:
    """Return True if a brief asks for several calls with a loop or a condition over what they answer. Such a brief has two kinds of words:
    that go through results, choose by them, or make something depend on them. One kind is enough in a brief of more than one clause."""
    text = brief[:_BRIEF_CHARS]
    over = sum(bool(pattern.search(text)) for pattern in (_LOOPS, _CONDITIONS, _CHOICES))
    clauses = sum(len(part.split()) > 1 for part in _THEN.split(text))
    return over > 1 or (over == 1 and clauses > 1)


async def carry_out(brief: str) -> Called | None:
    """Have a plan written for the brief of the current cycle, and carry it out. Return it as a call with its value or its error; None where
    none could be written, and nothing was done.

    :raises InferenceFailed: if that model does not answer. Other errors that end a mission pass, too.
    """
    cycle = scope.current().cycle
    lobby = cycle.persona._p_jar.root()["lobby"]
    plan = lobby.traits.plan.derive(name="plan")
    plan._slots[SELECTOR] = Intent(brief)
    cycle.persona._p_jar.add(plan)  # gives it an id
    try:
        value = await send(plan, SELECTOR)
        sealed_text.check_no_formatted([value])
    except MethodRefused:
        return None
    except (MethodError, ToolFailed, EgressFailed, InvalidInput, MessageNotUnderstood) as e:
        return _told(cycle, plan, Called(NAME, {}, error=e))
    came = "done" if value is None else sealed_sends.plain(sealed_text.opened(value))
    return _told(cycle, plan, Called(NAME, {}, came, kind=READS))


def _told(cycle: UvmObject, plan: UvmObject, done: Called) -> Called:
    """Keep the plan with the thought, show what came of it to prompts, and return that."""
    method = plan._slots.get(SELECTOR)
    if isinstance(method, Method):
        cycle.program = method.source
    current().tools.called.append(done)
    return done


def install(lobby: UvmObject) -> None:
    """Make the prototype of plans. A step of genesis."""
    comment = "I am a brief that needs several calls of tools: my method was written before any of them answered."
    add_missing(lobby.traits, plan=lambda: UvmObject(name="plan", comment=comment, sealed=True))
    add_missing(lobby.traits.plan, tools=lobby.tools, think_=Primitive.of(sealed_sends.think_), ask_user_=Primitive.of(ask_user_))


@Primitive.register("plan.ask_user_")
async def ask_user_(plan: UvmObject, question: str) -> str:
    """Ask the user of the mission, and return his answer.

    :raises InvalidInput: for a question that is not a plain text, and where the mission may not ask.
    """
    sealed_text.check_no_formatted([question])
    if not isinstance(question, str):
        raise InvalidInput("ask_user_ takes a question, which is a text of the plan's own")
    if not current().mission.may_ask:
        raise InvalidInput("this mission may not ask its user; `--may-ask` lets it")
    return current().ask(question)
