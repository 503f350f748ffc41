"""Evaluation where a session stands: expressions, and messages to objects. Nothing of it is kept, and nothing leaves the mirror.

An expression becomes a method that passes the guardian and runs in the sandbox, as any other. What it asks models for is paid for within
the allowance of the request; tools answer as they are recorded, or not at all.
"""

from __future__ import annotations

import ast
import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from batos import scope
from batos.errors import BatosSignal, DeadlineExceeded, InvalidInput
from batos.image import effects, history
from batos.image.effects import DONE
from batos.methods.runtime import parameters_in
from batos.mind.inference import PromptTooLong
from batos.mind.messages import deliver
from batos.objects import Method, Root, UvmObject
from batos.objects.json_form import plain
from batos.stepping.session import StepSession

_SELECTOR = "step_"


async def evaluate(session: StepSession, expression: str, inferences: int) -> Any:
    """Return the value of an expression, in its plain form. Names are `cycle`, `mission`, `lobby`, and the lobby's objects.

    :raises InvalidInput: for what is not one expression.
    :raises MethodRefused: where the guardian refuses it.
    :raises BatosError: as running it failed.
    """
    names = _names(expression)
    root = _root(session)
    given = _objects(session, root, names)
    source = f"def {_SELECTOR}(self{''.join(f', {name}' for name in given)}):\n    return (\n{expression.strip()}\n    )\n"
    verdict = session.ground.audit(source, _SELECTOR)
    verdict.check()
    method = Method(
        _SELECTOR,
        source,
        parameters=tuple(parameters_in(source)),
        contract=verdict.contract,
        provenance={"policy": verdict.policy, "mission": session.id},
    )
    cycle = session.run.cycles[session.run.standing]
    receiver = cycle if cycle is not None else root["lobby"]
    attempt = session.run.attempt
    sandbox = await session.stage.services.methods.sandbox()

    async def run() -> Any:
        activity = attempt.making.new_activity()
        activity.trace = None
        return await sandbox.run(receiver, method, tuple(given.values()), {}, activity=activity, holder=receiver)

    return await _within(session, run, inferences)


async def send_message(
    session: StepSession, target: str, selector: str, args: Sequence[Any], kwargs: dict[str, Any], inferences: int
) -> Any:
    """Return the answer to a message, in its plain form.

    :raises UnknownTarget: if the receiver is not there.
    :raises BatosError: as the message failed.
    """
    cycle = session.run.cycles[session.run.standing]
    receiver = cycle if target == "cycle" and cycle is not None else history.resolve(_root(session), target)
    return await _within(session, lambda: deliver(receiver, selector, list(args), kwargs), inferences)


async def _within(session: StepSession, work: Any, inferences: int) -> Any:
    """Do some work in the place of the cycle that stands, as a trial. What it asks for does not count as asked by the mission."""
    attempt, cycle, source = session.run.attempt, session.run.cycles[session.run.standing], session.source
    asked, runs, failure = list(source.asked), list(session.runs), session.memory.error
    session.memory.allowance, session.memory.error = inferences, None
    session.touched()
    try:
        with scope.begin(attempt), attempt.trial(), scope.enter(cycle=cycle):
            exchanges = defaultdict(list)
            for one in session.stage.image.read(effects.load, session.id):
                if one.state == DONE and not one.failed and one.result is not None:
                    exchanges[one.tool, one.arguments].append(json.loads(one.result))
            scope.current().trial.exchanges = exchanges
            async with asyncio.timeout(session.limits.go_s):
                value = await work()
        return plain(value)
    except TimeoutError:
        raise DeadlineExceeded(f"it was not done within {session.limits.go_s:g} s") from None
    except PromptTooLong as found:
        raise found.cause from None
    except BatosSignal as signal:  # a question, a call of a tool that was not made then, a model to be provided
        raise InvalidInput(f"a mission would wait here, which is not tried: {type(signal).__name__} {signal}".strip()) from None
    finally:
        session.memory.allowance, session.memory.error = 0, failure
        source.asked[:], session.runs[:] = asked, runs


def _root(session: StepSession) -> Root:
    assert session.run.unit is not None
    return session.run.unit.root


def _names(expression: str) -> list[str]:
    """Return the free names of an expression.

    :raises InvalidInput: if it is none.
    """
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise InvalidInput(f"{expression[:200]!r} is not one expression of Python ({e.msg if isinstance(e, SyntaxError) else e})") from None
    return list(dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)))


def _objects(session: StepSession, root: Root, names: Sequence[str]) -> dict[str, UvmObject]:
    lobby, found = root["lobby"], dict[str, UvmObject]()
    own = {"cycle": session.run.cycles[session.run.standing], "lobby": lobby}
    for name in names:
        if name == "mission":
            found[name] = history.resolve(root, session.id)
        elif (held := own.get(name)) is not None:
            found[name] = held
        elif isinstance(one := lobby._slots.get(name), UvmObject):
            found[name] = one
        elif name == "cycle":
            raise InvalidInput("there is no cycle here: go on to a state first")
    return found
