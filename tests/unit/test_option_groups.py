"""Option groups: the fields of a dataclass are options of a verb."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from batos.cli.client import OptionGroup, grouped


@dataclass(frozen=True)
class Place(OptionGroup):
    town: Annotated[str | None, typer.Option("--town", help="A town.")] = None
    far: Annotated[bool, typer.Option("--far", help="Is it far?")] = False


NOWHERE = Place()


def verb() -> typer.Typer:
    app = typer.Typer()

    @app.command()
    @grouped
    def go(who: str, place: Place = NOWHERE, times: int = 1) -> None:
        """Go there."""
        print(who, place, times)

    return app


def test_fields_are_options_and_reach_the_verb_as_one_value() -> None:
    given = CliRunner().invoke(verb(), ["Ann", "--far", "--times", "2", "--town", "Bonn"])
    assert given.output == "Ann Place(town='Bonn', far=True) 2\n"
    assert CliRunner().invoke(verb(), ["Ann"]).output == "Ann Place(town=None, far=False) 1\n"


def test_help_lists_the_fields_in_the_place_of_the_group() -> None:
    text = CliRunner().invoke(verb(), ["--help"], env={"COLUMNS": "100"}).output
    assert text.index("--town") < text.index("--far") < text.index("--times")
    assert "--place" not in text
    assert "Go there." in text
