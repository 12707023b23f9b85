"""Compares `countersign pack` with the original agentpack, command by command.

    compare.py BINARY               with what the original printed when it was recorded
    compare.py BINARY ORIGINAL      with the original itself; also checks that the recording is true, and mixes
                                    deploys and rollbacks of both programs
    compare.py --record ORIGINAL    writes the recording anew

Every field the original prints must be there and equal; ours may add some. Prose is ours: where the original
has a sentence, there must be one. A failure without a code of its own there (E_UNEXPECTED) may have one here.
In `scenes.json`, a step with `differs` is done and not compared, and says why; `own` names fields whose content
is ours: the digests of files whose text is our own, and the head of a patch that creates a file.
"""

import json
import sys
from pathlib import Path

import mixed
from scene import play

HERE = Path(__file__).parent
RECORDING = HERE / "recorded.json"
# Sentences.
PROSE = {"message", "hint", "reason_message", "suggestions", "notes", "error", "native", "posix"}


def differences(theirs, ours, own: list[str], where: str = "") -> list[str]:
    """Where a value lacks something the original has."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found = []
        for name, value in theirs.items():
            place = f"{where}/{name}"
            if name not in ours:
                found.append(f"{place}: missing; the original has {json.dumps(value)[:200]}")
            elif place == "/version" or name in own or (name == "code" and value == "E_UNEXPECTED"):
                continue
            elif name in PROSE or place == "/warnings":
                if bool(value) != bool(ours[name]):
                    found.append(f"{place}: the original says {value!r}, we say {ours[name]!r}")
            elif place == "/command" and theirs.get("ok") is False:
                # The original leaves out the second word of a command that failed.
                if not ours[name].startswith(value):
                    found.append(f"{place}: {value!r} is {ours[name]!r} here")
            else:
                found += differences(value, ours[name], own, place)
        return found
    if isinstance(theirs, list) and isinstance(ours, list):
        # Commands and arguments have names: ours may have more of them.
        if where.endswith(("/commands", "args")) and all(isinstance(item, dict) for item in theirs):
            known = {item.get("id"): item for item in ours if isinstance(item, dict)}
            return [
                line
                for item in theirs
                for line in differences(item, known.get(item["id"]), own, f"{where}[{item['id']}]")
            ]
        if len(theirs) != len(ours):
            return [f"{where}: the original has {json.dumps(theirs)[:300]}, we have {json.dumps(ours)[:300]}"]
        return [
            line for nth, pair in enumerate(zip(theirs, ours)) for line in differences(*pair, own, f"{where}/{nth}")
        ]
    if theirs != ours:
        return [f"{where}: {json.dumps(theirs)[:300]} is {json.dumps(ours)[:300]} here"]
    return []


def compare(scenes: dict, theirs: dict, ours: dict) -> int:
    compared, wrong = 0, 0
    for name, steps in scenes.items():
        for step, original, mine in zip(steps, theirs[name], ours[name]):
            if original is None or "differs" in step:
                continue
            compared += 1
            found = differences(original, mine, step.get("own", []))
            wrong += bool(found)
            for line in found:
                print(f"{name}: {step.get('run', step)}: {line}")
    print(f"agentpack: {compared} outputs compared, {wrong} differ")
    return 1 if wrong else 0


def main(words: list[str]) -> int:
    given = json.loads((HERE / "scenes.json").read_text())
    scenes, files = given["scenes"], given["files"]

    def play_all(program: list[str]) -> dict:
        return {name: play(program, steps, files) for name, steps in scenes.items()}

    if words[0] == "--record":
        RECORDING.write_text(json.dumps(play_all([words[1]]), indent=1, sort_keys=True) + "\n")
        return 0
    program, recorded = [str(Path(words[0]).resolve()), "pack"], json.loads(RECORDING.read_text())
    code = compare(scenes, recorded, play_all(program))
    if len(words) > 1:
        original = [str(Path(words[1]).resolve())]
        if play_all(original) != recorded:
            print("agentpack: the recording is not what the original prints: compare.py --record ORIGINAL")
            code = 1
        code |= mixed.main(program, original)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
