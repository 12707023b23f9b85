#!/usr/bin/env -S python3 -B
"""Reads what the conformance suite wrote and says where two runs differ, check by check.

compare.py DIRECT THROUGH [NAME] [KNOWN]
                                   both folders as `conformance … -o` left them; exit 1 on any difference. KNOWN is a file of
                                   scenarios, or `scenario check` pairs, that may and must differ: one that does not is a
                                   difference too
compare.py --alone FOLDER [NAME] [KNOWN]
                                   one folder; exit 1 on any failure or warning that KNOWN does not name, or names in vain

A check can be made several times in one scenario: its outcomes are compared one by one, in order. Entries that are
only INFO on both sides are what the suite saw on the wire, not verdicts: they may differ, and are not counted.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

Outcomes = dict[tuple[str, str], list[tuple[str, str]]]
BAD = {"FAILURE", "WARNING"}


def read(folder: Path) -> Outcomes:
    """(scenario, check) → [(status, what the suite said)], in the order the checks were made."""
    outcomes: Outcomes = {}
    for file in sorted(folder.rglob("checks.json")):
        # The folder's name ends in the time of the run.
        where = file.parent.relative_to(folder).as_posix()
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", where)
        for check in json.loads(file.read_text()):
            said = check.get("errorMessage") or ""
            outcomes.setdefault((scenario, check["id"]), []).append((check["status"], said))
    return {key: seen for key, seen in outcomes.items() if seen}


def verdicts(outcomes: Outcomes) -> set[tuple[str, str]]:
    return {key for key, seen in outcomes.items() if any(status != "INFO" for status, _ in seen)}


def tally(outcomes: Outcomes) -> str:
    count = Counter(status for seen in outcomes.values() for status, _ in seen)
    names = [("SUCCESS", "passed"), ("FAILURE", "failed"), ("WARNING", "warned"), ("SKIPPED", "skipped")]
    return "  ".join(f"{count[status]:4d} {name}" for status, name in names)


def shown(seen: list[tuple[str, str]] | None) -> str:
    return ",".join(status.lower() for status, _ in seen) if seen else "absent"


def reasons(seen: list[tuple[str, str]] | None) -> list[str]:
    return [f"      {said}" for status, said in seen or [] if status in BAD and said]


def known_differences(file: str | None) -> set[tuple[str, ...]]:
    lines = (line.split("#")[0].split() for line in (Path(file).read_text().splitlines() if file else []))
    return {tuple(words) for words in lines if words}


def compare(direct: Outcomes, through: Outcomes, name: str, known: set[tuple[str, ...]] = frozenset()) -> int:
    differing, expected, met = [], 0, set()
    for key in sorted(verdicts(direct) | verdicts(through)):
        one, other = direct.get(key), through.get(key)
        if [status for status, _ in one or []] != [status for status, _ in other or []]:
            entry = next((entry for entry in (key, key[:1]) if entry in known), None)
            if entry is None:
                differing.append((key, one, other))
            else:
                expected, _ = expected + 1, met.add(entry)
    print(f"{name:12} direct   {tally(direct)}")
    print(f"{name:12} through  {tally(through)}   differing {len(differing)}"
          + (f", and {expected} that must" if known else ""))
    for (scenario, check), one, other in differing:
        print(f"  {scenario:48} {check:58} direct {shown(one)}  through {shown(other)}")
        print("\n".join(reasons(other)) or "      (the suite gave no reason)")
    for entry in sorted(known - met):
        print(f"  known to differ, and does not: {' '.join(entry)}")
    return 1 if differing or known - met or not direct else 0


def alone(outcomes: Outcomes, name: str, known: set[tuple[str, ...]] = frozenset()) -> int:
    bad = {key: seen for key, seen in outcomes.items() if any(status in BAD for status, _ in seen)}
    met = {entry for key in bad for entry in (key, key[:1]) if entry in known}
    bad = {key: seen for key, seen in bad.items() if key not in met and key[:1] not in met}
    print(f"{name:12} {tally(outcomes)}" + (f"   {len(bad)} of them not known" if known else ""))
    for (scenario, check), seen in sorted(bad.items()):
        print(f"  {scenario:48} {check:58} {shown(seen)}")
        print("\n".join(reasons(seen)))
    for entry in sorted(known - met):
        print(f"  known to fail, and does not: {' '.join(entry)}")
    return 1 if bad or known - met or not outcomes else 0


def main(words: list[str]) -> int:
    if len(words) in (2, 3, 4) and words[0] == "--alone":
        known = known_differences(words[3] if len(words) == 4 else None)
        return alone(read(Path(words[1])), words[2] if len(words) > 2 else "", known)
    if len(words) in (2, 3, 4):
        known = known_differences(words[3] if len(words) == 4 else None)
        return compare(read(Path(words[0])), read(Path(words[1])), words[2] if len(words) > 2 else "", known)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
