"""Effects of calls: sends, container methods, builtins, functions of modules, inner functions."""

from __future__ import annotations

import ast

from batos.guardian.allowlist import (
    COPIES,
    ELEMENTS,
    FLAT,
    KEYED,
    MUTATING_FUNCTIONS,
    MUTATORS,
    PARTIAL,
    SCALARS,
    TAKERS,
    VALUE_METHODS,
    VIEWS,
)
from batos.guardian.effects.abstract_state import SELF, Activation, Arguments, Function, LoopFrame, all_parameters, joined
from batos.guardian.effects.tool_calls import ToolCalls
from batos.guardian.rules.tool_use import PASSED, READERS
from batos.guardian.subject import tool_of

_OPENED = SCALARS - {"str", "bytes", "repr", "format", "slice"}
"""Builtins whose result is a number or a truth value: nothing can be said with it."""
_SHRINKING = frozenset({"pop", "remove", "clear", "sort", "reverse", "popitem", "discard", "popleft", "difference_update", "rotate"})


class Calls(ToolCalls):
    """Whatever is called."""

    def call(self, node: ast.Call) -> int:
        function = node.func
        member = self.subject.function_of(function)
        if member is not None:
            return self._call_member(node, *member)
        if isinstance(function, ast.Attribute):
            return self._call_attribute(node, function)
        if isinstance(function, ast.Name) and function.id not in self.subject.bound:
            return self._call_builtin(node, function.id)
        called = self.evaluate(function)
        arguments = self._arguments(node)
        self.may_raise()
        if called & self.lazy and not isinstance(function, ast.Name):  # for a name, reading it has counted the write already
            self.write(node)
        found = self._call_functions(called, arguments)
        self._passed(arguments, 0)
        found |= self.heap.unknown(node) | self.heap.origins_in(called | arguments.all)
        return found | (self._elements(arguments) if called & ~self.callables else 0)

    def _arguments(self, node: ast.Call) -> Arguments:
        arguments = Arguments([], {}, 0)
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                arguments.rest |= self.heap.inside(self.evaluate(argument.value))
            elif arguments.rest:
                arguments.rest |= self.evaluate(argument)
            else:
                arguments.positional.append(self.evaluate(argument))
        for keyword in node.keywords:
            if keyword.arg is None:
                arguments.rest |= self.heap.inside(self.evaluate(keyword.value))
            else:
                arguments.keywords[keyword.arg] = self.evaluate(keyword.value)
        return arguments

    # --- methods

    def _call_attribute(self, node: ast.Call, function: ast.Attribute) -> int:
        name = function.attr
        if isinstance(function.value, ast.Call) and self.subject.is_builtin(function.value.func, "super"):
            arguments = self._arguments(node)
            self._passed(arguments, 0)
            self._sent(name)
            return self.heap.unknown(node) | self.heap.origins_in(arguments.all)
        receiver = self.evaluate(function.value)
        arguments = self._arguments(node)
        self.may_raise()
        self._passed(arguments, receiver)
        if tool_of(function) is not None:  # a send, also where the tool is called `append` or `update`
            self.subject.sends.add(name)
            tool = self.subject.tool_calls.get(id(node))
            return self.heap.unknown(node) if tool is None else self.call_tool(node, tool, arguments)
        answer = self._call_other(node, receiver, name, arguments)
        if self.is_sealed and name in READERS:  # a number, or one of the method's own texts
            return answer & ~self.heap.origins
        return answer | self.heap.origins_in((receiver & ~SELF) | arguments.all)

    def _call_other(self, node: ast.Call, receiver: int, name: str, arguments: Arguments) -> int:
        """Return what a message or a method of a value answers."""
        if not receiver & ~self.heap.origins:  # a text, a builtin type or a function: `", ".join`, `dict.fromkeys`, `chain.from_iterable`
            return self._groups(node, arguments)
        found = 0
        if receiver & SELF:
            self._sent(name)
            if receiver == SELF and name == self.subject.selector:
                self.state.sent_itself = True
            found = self.heap.unknown((node, "answer"))
            receiver &= ~SELF
            if not receiver:
                return found
        return found | self._call_value(node, receiver, name, arguments)

    def _call_value(self, node: ast.Call, receiver: int, name: str, arguments: Arguments) -> int:
        heap, passed = self.heap, arguments.all
        if name in KEYED:
            passed = arguments.rest  # all arguments but the key
            for objects in (*arguments.positional[1:], *arguments.keywords.values()):
                passed |= objects
        if name in MUTATORS:
            self.change(node, receiver, heap.inside(passed) if name in PARTIAL else passed, grows=name not in _SHRINKING)
            if name in PARTIAL:
                self.may_raise()
            return heap.inside(receiver) | passed if name in TAKERS else 0
        if name == "get":
            return heap.inside(receiver) | passed
        if name in ("_asdict", "_make", "_replace"):  # methods of a named tuple
            return self.container(node, heap.inside(receiver) | passed | heap.inside(passed))
        if name in VIEWS:
            inside = heap.inside(receiver) | heap.inside(passed)
            return self.container(node, inside | self.container((node, "pair"), inside))
        if name not in VALUE_METHODS:
            self._sent(name)
        return heap.unknown(node)

    def _sent(self, name: str) -> None:
        """Note a message to an object of the image."""
        self.subject.sends.add(name)
        self.sends_itself = self.sends_itself or name == self.subject.selector

    # --- builtins and modules

    def _call_builtin(self, node: ast.Call, name: str) -> int:
        writes = self.writes
        arguments = self._arguments(node)
        self.may_raise()
        self._passed(arguments, 0)
        if name == "getattr" and len(arguments.positional) > 1:
            return self._getattr(node, arguments)
        if name in COPIES:
            copy = self._flat(node, arguments) if name in FLAT else self._groups(node, arguments)
            if name in ("map", "filter") and self.writes > writes:
                self.lazy |= copy
            return copy
        if name in ELEMENTS:
            return self._elements(arguments)
        if name in _OPENED:
            return 0
        found = self.heap.origins_in(arguments.all)
        return found if name in SCALARS else found | self.heap.unknown(node)

    def _getattr(self, node: ast.Call, arguments: Arguments) -> int:
        name = node.args[1]
        if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
            return arguments.all
        found = self.attribute_of(arguments.positional[0], name.value, node)
        for default in arguments.positional[2:]:
            found |= default
        return found

    def _call_member(self, node: ast.Call, module: str, member: str) -> int:
        arguments = self._arguments(node)
        self.may_raise()
        self._passed(arguments, 0)
        return self._answer_of_member(node, module, member, arguments) | self.heap.origins_in(arguments.all)

    def _answer_of_member(self, node: ast.Call, module: str, member: str, arguments: Arguments) -> int:
        if (module, member) in MUTATING_FUNCTIONS:
            first = arguments.positional[0] if arguments.positional else arguments.all
            self.change(node, first, arguments.all & ~first)
            return self._elements(arguments)  # the popped element
        if (module, member) == ("copy", "deepcopy"):
            return self.heap.unknown(node)
        if member == "defaultdict":
            return self._defaultdict(node, arguments)
        if member in FLAT:
            return self._flat(node, arguments)
        if module in ("itertools", "collections"):
            return self._groups(node, arguments)
        if module in ("functools", "operator") or member == "choice":
            return self._elements(arguments) | self.heap.unknown(node)
        return self.heap.unknown(node)

    def _flat(self, node: ast.Call, arguments: Arguments) -> int:
        """Return a new container of the elements of the arguments."""
        return self.container(node, self.heap.inside(arguments.all))

    def _groups(self, node: ast.Call, arguments: Arguments) -> int:
        """Return a new container of the arguments, their elements, and new groups of these."""
        inside = arguments.all | self.heap.inside(arguments.all)
        inside |= self.heap.inside(inside)
        if not inside:
            return self.heap.unknown(node)
        return self.container(node, inside | self.container((node, "group"), inside))

    def _defaultdict(self, node: ast.Call, arguments: Arguments) -> int:
        values = self.heap.at((node, "value"), known=True)
        for bit, function in self.functions.items():
            if bit & arguments.all:
                values |= function.result
        return self.container(node, values | self.heap.inside(self.heap.inside(arguments.all)))

    def _elements(self, arguments: Arguments) -> int:
        return arguments.all | self.heap.inside(arguments.all)

    # --- inner functions

    def _passed(self, arguments: Arguments, receiver: int) -> None:
        """Call the functions among the arguments: the receiver may call them with the other arguments."""
        passed = arguments.all
        functions = (passed | self.heap.inside(passed)) & self.callables
        if functions:
            beside = passed | self.heap.inside(passed) | self.heap.inside(receiver)
            beside |= self.heap.inside(beside)
            sent_itself = self.state.sent_itself
            self.frames.append(LoopFrame(PASSED, None))  # they may be called any number of times
            self._call_functions(functions, Arguments([], {}, beside))
            self.frames.pop()
            self.state.sent_itself = sent_itself  # the functions may also not be called

    def _call_functions(self, called: int, arguments: Arguments) -> int:
        found = 0
        for bit, function in list(self.functions.items()):
            if bit & called:
                self._bind_arguments(function, arguments)
                found |= self._run(function)
        return found

    def _bind_arguments(self, function: Function, arguments: Arguments) -> None:
        parameters = function.parameters()
        given: dict[str, int] = dict.fromkeys((parameter.arg for parameter in all_parameters(function.node.args)), arguments.rest)
        more = function.node.args.vararg
        for number, objects in enumerate(arguments.positional):
            if number < len(parameters):
                given[parameters[number]] |= objects
            elif more:
                given[more.arg] |= objects
        others = function.node.args.kwarg
        for name, objects in arguments.keywords.items():
            if name in given:
                given[name] |= objects
            elif others:
                given[others.arg] |= objects
        for parameter in (more, others):
            if parameter:
                given[parameter.arg] = self.container(parameter, given[parameter.arg])
        for name, objects in given.items():
            key = function.key(name)
            before = self.state.env.get(key, 0)
            objects = objects or self.heap.unknown((function, name))
            if objects & ~before:
                self.state.env[key] = before | objects
                self.heap.version += 1

    def _run(self, function: Function) -> int:
        """Run an inner function until nothing more is learned from it."""
        if any(isinstance(frame, Activation) and frame.function is function for frame in self.frames):
            self.recursive.add(function)
            return function.result  # a recursive call: its result is known only after the outer call
        before, caller = self.state.copy(), self.function
        self.function = function
        while True:
            version, result = self.heap.version, function.result
            self.frames.append(activation := Activation(function))
            self._run_once(function, activation)
            self.frames.pop()
            if version == self.heap.version and result == function.result:
                break
        self.function = caller
        if activation.ends is None:
            self.state = before  # it always raises, or never ends
        return function.result

    def _run_once(self, function: Function, activation: Activation) -> None:
        body = function.node.body
        if isinstance(body, list):
            ends = joined(self.run_body(body), activation.ends)
        else:
            function.result |= self.evaluate(body)
            ends = self.state
        activation.ends = ends
        if ends is not None:
            self.state = ends


Calls.EVALUATORS[ast.Call] = Calls.call
