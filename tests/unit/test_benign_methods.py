"""Harmless methods are accepted by the guardian, run in the sandbox, and do there what they do in CPython."""

# ruff: noqa: E501  the sources of methods

from __future__ import annotations

import pytest

from batos.errors import MethodFailed
from batos.guardian import PersistenceGuardian
from batos.sandbox import Sandbox
from tests.support.benign import Benign, benign, in_cpython, left, stored_object
from tests.support.sandbox import Sends, method

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("case", benign(), ids=lambda case: case.selector)
async def test_a_benign_method_is_accepted_and_does_what_it_does_in_cpython(sandbox: Sandbox, case: Benign) -> None:
    verdict = PersistenceGuardian().audit(case.source, case.selector)
    assert [(f.rule, f.line, f.reason) for f in verdict.findings if f.severity == "error"] == []
    await sandbox.compile(case.source)
    target = stored_object(case.slots)
    try:
        value = await sandbox.run(target, method(case.source), case.args, activity=Sends(sandbox).activity)
    except MethodFailed as e:
        value = ("raised", e.type)
    expected = in_cpython(case)
    assert repr(value) == repr(expected[0])
    assert left(target) == expected[1]


REFUSED = {
    "def m(self):\n    class Box:\n        pass\n    return Box()\n": "Use a dict, or collections.namedtuple",
    "def m(self):\n    class Bad(ValueError):\n        pass\n    raise Bad\n": "Use a dict, or collections.namedtuple",
    "def m(self):\n    from dataclasses import dataclass\n    return dataclass\n": "Use a dict, or collections.namedtuple",
    "def m(self):\n    from enum import Enum\n    return Enum\n": "Use plain strings or numbers",
    "def m(self):\n    def naturals():\n        n = 0\n        while True:\n            yield n\n            n += 1\n    return next(naturals())\n": "a `break` or `return` that can be reached",
    "def m(self, peers):\n    from operator import attrgetter\n    return list(map(attrgetter('name'), peers))\n": "Write a lambda",
    "def m(self, name, peers):\n    from operator import attrgetter\n    return sorted(peers, key=attrgetter(name))\n": "Write a lambda",
    "def m(self, peers):\n    from operator import attrgetter\n    return sorted(peers, key=attrgetter('name.__class__'))\n": "Write a lambda",
    "def m(self, peers):\n    import operator\n    get = operator.attrgetter\n    return sorted(peers, key=get('name'))\n": "Write a lambda",
    "def m(self, peers):\n    def by(name):\n        return attrgetter(name)\n    from operator import attrgetter\n    return sorted(peers, key=by('__class__'))\n": "Write a lambda",
    "def m(self, pair):\n    return pair._replace(x=1)\n": "public slots and messages only",
    "def m(self):\n    from collections import namedtuple\n    return self._replace(x=1)\n": "public slots and messages only",
    "def m(self):\n    from collections import namedtuple\n    pair = namedtuple('P', 'x')(self.rows)\n    pair._replace(x=self.rows).x.append(1)\n": "writes its own slots",
    "def m(self, data):\n    return '{0.__class__}'.format_map(data)\n": "f-string",
    "def m(self, text, data):\n    return text.format_map(data)\n": "f-string",
    "def m(self):\n    import urllib.parse, urllib.request\n    return urllib.request.urlopen('http://a')\n": "send a message to an object that fetches it",
    "def m(self):\n    import urllib.parse\n    return urllib.parse.sys.modules\n": "urllib.parse offers",
    "def m(self):\n    import urllib.parse\n    return urllib.request.urlopen('http://a')\n": "urllib.parse offers",
    "def m(self):\n    return urllib.parse.quote('a')\n    import urllib.parse\n": "urllib.parse offers",
    "def m(self):\n    from urllib import parse\n    return parse.sys.modules\n": "urllib.parse offers",
    "def m(self):\n    from urllib import parse\n    return parse\n": "Write parse.member",
    "def m(self):\n    from urllib import parse, request\n    return request.urlopen('http://a')\n": "send a message to an object that fetches it",
    "def m(self):\n    from urllib import request as parse\n    return parse.urlopen('http://a')\n": "send a message to an object that fetches it",
    "def m(self, peer):\n    d = {'k': []}\n    d['k'] += peer.rows\n    d['k'][0].append(1)\n": "writes its own slots",
    "def m(self, peer):\n    d = {'k': []}\n    xs = d['k']\n    d['k'] += peer.rows\n    xs[0].append(1)\n": "writes its own slots",
    "def m(self, peer):\n    d = {'k': peer.rows}\n    d['k'] += [1]\n": "writes its own slots",
    "def m(self):\n    d = {'k': []}\n    xs = d['k']\n    d['k'] += self.rows\n    for x in xs:\n        x.append(1)\n": "_p_changed",
    "def m(self):\n    d = {'k': self.rows}\n    d['k'] |= {'x': 1}\n": "_p_changed",
}  # fmt: skip


@pytest.mark.parametrize("source", REFUSED, ids=range(len(REFUSED)))
async def test_what_stays_refused_says_what_to_write_instead(source: str) -> None:
    verdict = PersistenceGuardian().audit(source, "m")
    assert not verdict.accepted
    assert any(REFUSED[source] in f.hint for f in verdict.findings), verdict.findings
