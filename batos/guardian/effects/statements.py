"""Effects of statements along every path, and their sum at each exit."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from batos.guardian.effects.abstract_state import (
    DIRTY,
    LATE,
    SELF,
    Activation,
    Catcher,
    FinallyFrame,
    LoopFrame,
    State,
    TooManySteps,
    all_parameters,
    joined,
)
from batos.guardian.effects.assignments import Assignments
from batos.guardian.rules import covenant, loops, source
from batos.guardian.subject import AuditSubject, is_covenant

_FLAG = "self._p_changed = True"
_QUIET = (ast.Pass, ast.Break, ast.Continue, ast.Nonlocal)


def analyse(subject: AuditSubject) -> None:
    """Follow every path through the subject's method; findings and effects go into the subject."""
    assert subject.method is not None
    try:
        Statements(subject, subject.method).run_method()
    except (TooManySteps, RecursionError):
        subject.refuse(
            source.SIZE_ID, subject.method, "the method's effects cannot be followed: too many paths, or nested too deeply", source.HINT
        )


class Statements(Assignments):
    """All statements."""

    def run_method(self) -> None:
        """Run the method, and check each way out of it."""
        node = self.method.node
        assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        self.state = State({})
        for number, parameter in enumerate(all_parameters(node.args)):
            self.state.env[parameter.arg] = SELF if number == 0 else self.heap.unknown(parameter)
        self.returns = self.loops_itself = 0
        self.frames.append(Activation(self.method))
        end = self.run_body(node.body)
        if end is not None:
            self._leave(end, None)
        self.check_acting()
        if self.returns and self.returns == self.loops_itself:
            self.subject.refuse(
                loops.ID, node, "every way through the method sends the method again", "Answer a simple case without the send."
            )

    # --- sequences

    def run_body(self, body: list[ast.stmt]) -> State | None:
        for node in body:
            self.step()
            if self.catchers and not (isinstance(node, _QUIET) or is_covenant(node) or _returns_plainly(node)):
                self.catchers[-1].note(self.state)
            runner = RUNNERS.get(type(node))
            if runner is not None and not runner(self, node):
                return None
        return self.state

    def _branch(self, state: State, body: list[ast.stmt]) -> State | None:
        self.state = state
        return self.run_body(body)

    def _go_on(self, state: State | None) -> bool:
        """Continue after a statement, if any path does."""
        if state is None:
            return False
        self.state = state
        return True

    # --- simple statements

    def expression(self, node: ast.Expr) -> bool:
        if not isinstance(node.value, ast.Constant):
            self.evaluate(node.value)
            self.effect(node)
        return True

    def check(self, node: ast.Assert) -> bool:
        self.evaluate(node.test)
        if node.msg:
            facts = self.state.facts()
            self.evaluate(node.msg)
            self.state.add_facts(facts)
        self._may_leave()
        self.may_raise()
        return True

    def define(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        self.bind(node.name, self.definition(node))
        return True

    # --- ways out

    def leave_by_return(self, node: ast.Return) -> bool:
        objects = self.evaluate(node.value) if node.value else 0
        self.function.result |= objects
        return self._jump("return", node)

    def leave_by_raise(self, node: ast.Raise) -> bool:
        for part in (node.exc, node.cause):
            if part:
                self.evaluate(part)
        self._may_leave()
        if self.catchers:
            self.catchers[-1].note(self.state)
        self._activation().exits += 1
        return False

    def leave_loop(self, node: ast.Break) -> bool:
        return self._jump("break", node)

    def next_round(self, node: ast.Continue) -> bool:
        return self._jump("continue", node)

    def _jump(self, kind: str, node: ast.AST) -> bool:
        """Go to where a statement leads: through the finally clauses, to the loop or out of the function."""
        state = self.state.copy()
        if kind == "return":
            self._activation().exits += 1
        for frame in reversed(self.frames):
            if isinstance(frame, FinallyFrame):
                frame.hold(kind, node, state)
                return False
            if isinstance(frame, LoopFrame) and kind != "return":
                if kind == "break":
                    frame.breaks = joined(frame.breaks, state)
                else:
                    frame.continues = joined(frame.continues, state)
                return False
            if isinstance(frame, Activation):
                if frame.function is self.method:
                    self._leave(state, node)
                else:
                    frame.ends = joined(frame.ends, state)
                return False
        return False

    def _activation(self) -> Activation:
        return next(frame for frame in reversed(self.frames) if isinstance(frame, Activation))

    def _may_leave(self) -> None:
        """Record an exit by an error: it counts against endless recursion."""
        if not self.state.sent_itself:
            self.returns += 1

    def _leave(self, state: State, node: ast.AST | None) -> None:
        """Record an exit of the method: by a return, or at the end of the body (None). Here the Covenant must hold."""
        self.returns += 1
        self.loops_itself += state.sent_itself
        if not state.covenant & (DIRTY | LATE):
            return
        last = self.method.node.body[-1]  # type: ignore[index]  # a method is no lambda
        place = node or last
        way = f"on the way out in line {getattr(node, 'lineno', 0)}" if node else "at the end of the method"
        if state.covenant & DIRTY:
            wrote = getattr(state.written, "lineno", 0)
            reason = f"what line {wrote} writes is not followed by {_FLAG} {way}"
            self.subject.refuse(covenant.RULE.id, place, reason, _hint(node, state.written))
            self.subject.unflagged.append((node, state.written))
        else:
            reason = f"line {getattr(state.late, 'lineno', 0)} does something after {_FLAG}"
            self.subject.refuse(covenant.ORDER.id, state.late, reason, f"Move {_FLAG} behind it: the flag comes last, before the return.")
            self.subject.late.append((node, state.late))

    # --- branches

    def choose(self, node: ast.If) -> bool:
        self.evaluate(node.test)
        before = self.state
        taken = None if truth(node.test) is False else self._branch(before.copy(), node.body)
        return self._go_on(joined(taken, self._branch(before, node.orelse)))

    def match(self, node: ast.Match) -> bool:
        objects = self.heap.reach(self.evaluate(node.subject))
        left: State | None = self.state
        after: State | None = None
        for case in node.cases:
            assert left is not None
            self.state = left.copy()
            self._capture(case.pattern, objects)
            if case.guard:
                self.evaluate(case.guard)
            matched = self.state.copy()
            left = joined(left, self.state) if case.guard else left
            after = joined(after, self._branch(matched, case.body))
            if case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                left = None
                break
        return self._go_on(joined(after, left))

    def _capture(self, pattern: ast.pattern, objects: int) -> None:
        for part in ast.walk(pattern):
            name = part.rest if isinstance(part, ast.MatchMapping) else getattr(part, "name", None)
            if isinstance(part, ast.MatchStar):
                objects |= self.container(part, objects)
            if isinstance(name, str):
                self.bind(name, objects)

    # --- loops

    def loop_over(self, node: ast.For) -> bool:
        walked = self.evaluate(node.iter)
        limit = self.loop_limits.of(node.iter)
        head = self.state

        def enter() -> None:
            self.may_raise()
            self.assign(node.target, self.heap.inside(walked))

        head, frame = self._repeat(head, LoopFrame(node, limit), node.body, enter)
        return self._go_on(joined(self._branch(head.copy(), node.orelse), frame.breaks))

    def loop_while(self, node: ast.While) -> bool:
        always = truth(node.test)
        exits = self._activation().exits
        if always is False:
            self.evaluate(node.test)
            return self._go_on(self._branch(self.state, node.orelse))
        head, frame = self._repeat(self.state, LoopFrame(node, None), node.body, lambda: self.evaluate(node.test))
        if always is not True:
            self.state = head.copy()
            self.evaluate(node.test)
            return self._go_on(joined(self._branch(self.state, node.orelse), frame.breaks))
        if frame.breaks is None and self._activation().exits == exits and not (self.catchers and loops.raises_its_way_out(node)):
            self.subject.refuse(loops.ID, node, "the loop has no way out", loops.HINT)
        return self._go_on(frame.breaks)

    def _repeat(self, head: State, frame: LoopFrame, body: list[ast.stmt], enter: Callable[[], object]) -> tuple[State, LoopFrame]:
        """Run a loop's body until nothing new holds at its head."""
        while True:
            version = self.heap.version
            self.state = head.copy()
            frame.continues = None
            self.frames.append(frame)
            enter()
            back = self.run_body(body)
            self.frames.pop()
            back = joined(back, frame.continues)
            if back is None or (version == self.heap.version and back.says_no_more_than(head)):
                return head, frame
            head = head.copy()
            head.add(back)

    # --- with, try

    def use(self, node: ast.With) -> bool:
        for item in node.items:
            objects = self.evaluate(item.context_expr)
            self.effect(node)
            if item.optional_vars:
                self.assign(item.optional_vars, objects | self.heap.inside(objects) | self.heap.unknown(item))
        self.catchers.append(catcher := Catcher())
        after = self.run_body(node.body)
        self.catchers.pop()
        if catcher.state and self.catchers:
            self.catchers[-1].note(catcher.state)
        return self._go_on(joined(after, catcher.state))  # the context manager may swallow an exception

    def attempt(self, node: ast.Try) -> bool:
        if not node.finalbody:
            return self._go_on(self._guarded(node))
        self.frames.append(frame := FinallyFrame())
        self.catchers.append(catcher := Catcher())
        after = self._guarded(node)
        self.catchers.pop()
        self.frames.pop()
        if catcher.state:
            raised = self._branch(catcher.state.copy(), node.finalbody)
            if raised and self.catchers:
                self.catchers[-1].note(raised)
        for (kind, place), state in frame.jumps.items():
            if self._go_on(self._branch(state, node.finalbody)):
                self._jump(kind, place)
        return after is not None and self._go_on(self._branch(after, node.finalbody))

    def _guarded(self, node: ast.Try) -> State | None:
        """Return the statement without its finally clause."""
        if not node.handlers:
            return self._then(self.run_body(node.body), node.orelse)
        self.catchers.append(catcher := Catcher())
        tried = self.run_body(node.body)
        self.catchers.pop()
        after = self._then(tried, node.orelse)
        if catcher.state is None:
            return after
        if self.catchers:
            self.catchers[-1].note(catcher.state)  # perhaps no handler fits
        for handler in node.handlers:
            entered = catcher.state.copy()
            if handler.name:
                entered.env[self.function.key(handler.name)] = self.heap.at(handler)
            after = joined(after, self._branch(entered, handler.body))
        return after

    def _then(self, state: State | None, body: list[ast.stmt]) -> State | None:
        return state and self._branch(state, body)


def truth(node: ast.expr) -> bool | None:
    """Return True if a condition always holds, False if it never does; None if that depends."""
    match node:
        case ast.Constant(value=value):
            return bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            found = truth(operand)
            return None if found is None else not found
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return bool(elements)
        case ast.BoolOp(op=ast.Or(), values=values):
            return True if any(truth(value) is True for value in values) else None
        case ast.BoolOp(op=ast.And(), values=values):
            return False if any(truth(value) is False for value in values) else None
        case ast.Compare(left=ast.Constant(value=left), ops=[operator], comparators=[ast.Constant(value=right)]):
            same = left == right
            return same if isinstance(operator, (ast.Eq, ast.Is)) else not same if isinstance(operator, (ast.NotEq, ast.IsNot)) else None
    return None


def _returns_plainly(node: ast.stmt) -> bool:
    return isinstance(node, ast.Return) and (node.value is None or isinstance(node.value, (ast.Constant, ast.Name)))


def _hint(node: ast.AST | None, written: ast.AST | None) -> str:
    if node is None:
        return f"Add `{_FLAG}` as the last line of the method, indented as its body."
    if written is not None and any(part is written for part in ast.walk(node)):
        return f"Put the value into a local name first, then `{_FLAG}`, then return the name."
    return f"Insert `{_FLAG}` directly before this return."


RUNNERS: dict[type[ast.AST], Callable[[Statements, Any], bool]] = {
    ast.Expr: Statements.expression,
    ast.Assign: Statements.store,
    ast.AnnAssign: Statements.annotated,
    ast.AugAssign: Statements.augmented,
    ast.Delete: Statements.delete,
    ast.Assert: Statements.check,
    ast.FunctionDef: Statements.define,
    ast.AsyncFunctionDef: Statements.define,
    ast.Return: Statements.leave_by_return,
    ast.Raise: Statements.leave_by_raise,
    ast.Break: Statements.leave_loop,
    ast.Continue: Statements.next_round,
    ast.If: Statements.choose,
    ast.Match: Statements.match,
    ast.For: Statements.loop_over,
    ast.While: Statements.loop_while,
    ast.With: Statements.use,
    ast.Try: Statements.attempt,
}
