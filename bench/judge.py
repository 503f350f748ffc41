"""What judges say of two answers to each brief, who do not know which is whose: wins and half of the ties, in both orders.

`bench/answers.py --open --sheets FOLDER` writes `sheet-1.jsonl` and `sheet-2.jsonl`: a line a brief, with the answers `first` and `second`.
Each pair stands in one order on one sheet and in the other on the other. `key.json` says which is the mission's; judges do not get it.
A judge gets one sheet at a time, and writes a file of verdicts for it:

    {"judge": "ada", "sheet": 1, "verdicts": {"open-061": "first", "open-062": "tie", "open-063": "second"}}

    python bench/judge.py FOLDER ada-1.json ada-2.json bob-1.json bob-2.json

`points` is the share of the verdicts that the mission won, a tie counting half; `first` is the share that the answer in the first place
won, so far from 0.5 as the order mattered to the judges; `agree` the share of briefs on which a judge said the same in both orders.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import statistics
from pathlib import Path
from typing import Any

SHEETS = (1, 2)
PLACES = ("first", "second")
VERDICTS = (*PLACES, "tie")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="that the sheets are in")
    parser.add_argument("verdicts", type=Path, nargs="+", help="the judges' files")
    args = parser.parse_args()
    key = json.loads((args.folder / "key.json").read_text("utf-8"))
    try:
        print(json.dumps(points(key, [json.loads(path.read_text("utf-8")) for path in args.verdicts])))
    except ValueError as e:
        raise SystemExit(str(e)) from None


def write_sheets(folder: Path, told: list[tuple[str, str, str, dict[str, str]]], chance: random.Random) -> None:
    """Write the sheets and the key.

    :param told: of each brief its id, its half, its words, and the answers of `mission` and `direct`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    order = list(told)
    chance.shuffle(order)
    key = {id: {"half": half, "mission": chance.choice(PLACES)} for id, half, _, _ in order}
    for sheet in SHEETS:
        lines = []
        for id, _, brief, answers in order:
            mission = place_of(key[id]["mission"], sheet)
            pair = {place: answers["mission" if place == mission else "direct"] for place in PLACES}
            lines.append(json.dumps({"id": id, "brief": brief, **pair}, ensure_ascii=False) + "\n")
        (folder / f"sheet-{sheet}.jsonl").write_text("".join(lines), "utf-8")
    (folder / "key.json").write_text(json.dumps(key, indent=1), "utf-8")


def place_of(mission: str, sheet: int) -> str:
    """Where the mission's answer stands on a sheet, by where it stands on the first."""
    return mission if sheet == SHEETS[0] else PLACES[mission == PLACES[0]]


def points(key: dict[str, dict[str, str]], files: list[dict[str, Any]]) -> dict[str, Any]:
    """What came of the verdicts, over all and by judge, half and sheet.

    :raises ValueError: where a file has another sheet, brief or verdict than there are, or lacks one.
    """
    rows: list[dict[str, Any]] = []
    for file in files:
        judge, sheet, verdicts = file["judge"], file["sheet"], file["verdicts"]
        if sheet not in SHEETS:
            raise ValueError(f"{judge}: there is no sheet {sheet!r}; there are {SHEETS}")
        if odd := sorted(verdicts.keys() ^ key.keys()):
            raise ValueError(
                f"{judge}, sheet {sheet}: {odd[0]!r} and {len(odd) - 1} more are not both in the key and judged; judge every brief once"
            )
        for id, verdict in verdicts.items():
            if verdict not in VERDICTS:
                raise ValueError(f"{judge}, sheet {sheet}, {id}: {verdict!r} is no verdict; say one of {VERDICTS}")
            mission = place_of(key[id]["mission"], sheet)
            point = 0.5 if verdict == "tie" else float(verdict == mission)
            rows.append({"id": id, "judge": judge, "sheet": sheet, "half": key[id]["half"], "point": point, "verdict": verdict})
    told: dict[str, Any] = {"bench": "judge", "verdicts": len(rows), "points": _mean([row["point"] for row in rows])}
    for name in ("judge", "half", "sheet"):
        own = sorted({row[name] for row in rows})
        told[f"by_{name}"] = {str(one): _mean([row["point"] for row in rows if row[name] == one]) for one in own}
    told["first"] = _mean([{"first": 1.0, "tie": 0.5, "second": 0.0}[row["verdict"]] for row in rows])
    twice = collections.defaultdict(list)
    for row in rows:
        twice[row["judge"], row["id"]].append(row["point"])
    both = [one[0] == one[1] for one in twice.values() if len(one) == len(SHEETS)]
    return told | {"agree": _mean([float(same) for same in both])}


def _mean(values: list[float]) -> float | None:
    return round(statistics.fmean(values), 3) if values else None


if __name__ == "__main__":
    main()
