"""Real hosts through the gateway, without any account: `init` points them at us, and their whole agent loops, against a scripted
model on loopback, list, read, write, are refused, hear nothing from anybody, and come too late.

    drive.py COUNTERSIGN FOLDER NAME=PROGRAM…

Nobody is at these hosts: they run headless, under the rules `init --permissions` wrote. The person is elsewhere, at the command line.
The witnesses are our own ledger, the file the upstream writes, and what the host passed on to its model. `screens.py` then puts them
into a terminal, with a person at the keys.
"""

import json
import subprocess
import sys
import threading
import time

import adapters
import model
import screens
import session
from programs import HERE, HOSTS, Failed, Scene, notes_server


def say(text):
    print(f"hosts: {text}", flush=True)


def call(tool, name, operation, **more):
    args = {"name": f"notes:{name}", "args": more.pop("args", {}), "intent": {"operation_type": operation}}
    return {"tool": tool, "wait": more.pop("wait", 0), "args": dict(args, **more)}


def add(text, **more):
    return call("call_tool_write", "add_note", "write", args={"text": text}, **more)


STEPS = [
    call("call_tool_read", "list_notes", "read"),
    add("approved"),
    add("rejected"),
    add("silence"),
    # The plan of the call before has ended by then.
    add("silence", wait=7, confirm_token="TOKEN", yes=True),
]

# It starts and never says a word.
HANGS = '\n[upstreams.hangs]\ncommand = "sleep"\nargs = ["600"]\n'

# Long enough for a person who is a program, short enough for a test.
CONFIRM = '[confirm]\nhold = "5s"\nttl = "6s"\nstrength = { write = "human", destructive = "human" }\n'

# Copilot CLI declines a form by itself when it runs headless: then the call waits for a person elsewhere, like the others'.
FORM = '[confirm]\nhold = "5s"\nttl = "6s"\n'

# The host's own dialog would do, if somebody were there to answer it.
DIALOG = '[confirm]\nhold = "2s"\n'


def decide(scene, stop):
    """The person: approves what is called so, rejects what is called so, takes longer than a call waits, and says nothing to the rest."""
    done, first_seen = set(), {}
    while not stop.is_set():
        try:
            plans = scene.data("plans", "list").get("plans", [])
        except Failed:
            plans = []
        for plan in plans:
            text = json.dumps(plan)
            if plan["plan_id"] in done or plan["state"] != "pending":
                continue
            seen = first_seen.setdefault(plan["plan_id"], time.time())
            for word, command, after in (('"approved"', "approve", 0), ('"rejected"', "reject", 0), ('"later"', "approve", LATER)):
                if time.time() < seen + after:
                    continue
                if word in text or word in json.dumps(scene.data("plans", "show", plan["plan_id"])):
                    scene.ours(command, plan["plan_id"], *(["--yes"] if command == "approve" else []))
                    done.add(plan["plan_id"])
        stop.wait(0.3)


def prepare(scene, confirm=CONFIRM):
    """The host has one server, and a file that server writes to."""
    (scene.folder / "notes.txt").write_text("first\n")
    scene.take_over("notes", notes_server(scene), confirm, HANGS)


def ended(scene, program, steps, more=(), notes="first\napproved\n", anchor="call_tool_read"):
    """One headless run of a host's agent loop over these steps: the script, and what there is to say about a failure."""
    script = model.Script(steps, anchor)
    server = model.serve(script)
    stop = threading.Event()
    person = threading.Thread(target=decide, args=(scene, stop))
    person.start()
    try:
        words, env = HOSTS[scene.host].headless(scene, program, f"http://127.0.0.1:{server.server_port}")
        ran = scene.run(*words, *more, env=env)
        if script.at == 0:
            # On a machine with much to do Codex begins its turn before its servers are up.
            ran = scene.run(*words, *more, env=env)
    finally:
        stop.set()
        person.join()
        server.shutdown()
    told = f"\n{script.log}\n{script.results}\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}"
    if script.at < len(steps):
        raise Failed(f"stopped at step {script.at} of {len(steps)}{told}")
    if (written := (scene.folder / "notes.txt").read_text()) != notes:
        raise Failed(f"the upstream was called otherwise: {written!r}{told}")
    principals = {row["principal"] for row in scene.rows() if row["kind"] == "call"}
    wanted = f"{scene.host}@ada:"
    if not principals or not all(one.startswith(wanted) for one in principals):
        raise Failed(f"rows are of {principals}, not of {wanted}")
    return script, told


def expect(script, told, wanted):
    """What the model has to have read of each answer: `(what, parts…)`, in the order of the steps."""
    # A host may tell its model about the last answer only when it is asked again.
    results = script.results + [""] * len(wanted)
    for result, (what, *parts) in zip(results, wanted):
        if missing := [part for part in parts if part not in result]:
            raise Failed(f"{what}: {missing} not in {result}{told}")


def expect_codes(scene, *wanted):
    codes = [row.get("code") for row in scene.rows()]
    for code in wanted:
        if code not in codes:
            raise Failed(f"no row has {code}: {codes}")


def play(scene, program):
    """All steps."""
    script, told = ended(scene, program, STEPS)
    expect(script, told, [
        ("read", "first"), ("write", "approved"), ("reject", "was rejected"), ("silence", "confirm_token"), ("expiry", "has expired"),
    ])
    expect_codes(scene, "E_APPROVAL_REJECTED", "E_CONFIRM_TOKEN_EXPIRED")
    return script


def one(countersign, folder, name, program):
    scene = Scene(countersign, folder, name)
    prepare(scene, FORM if name == "copilot" else CONFIRM)
    script = play(scene, program)
    scene.take_back()
    ours = sum("call_tool_" in tool for tool in script.offered)
    return f"listed ({ours} call tools), read, wrote what a person approved, was rejected, heard silence, came too late"


def page(countersign, folder, name, program):
    """Copilot CLI declares that it opens pages and fails the whole call when it is asked to. So it is not asked: where only a person with a
    credential may agree, its calls are held open like those of every other host, and the steps come out the same."""
    scene = Scene(countersign, folder, f"{name}-page", name)
    prepare(scene)
    play(scene, program)
    return "a plan for the page holds the call: approved, rejected, silent and late as in every other host, and nothing ran twice"


# What makes a host answer dialogs in its person's place, and what it then answers.
ALONE = {"codex": (["--dangerously-bypass-approvals-and-sandbox"], "accept"), "copilot": ([], "decline")}


def alone(countersign, folder, name, program):
    """A host that answers its dialog by itself decides nothing, however often it does: no approval, no rejection, no pause."""
    scene = Scene(countersign, folder, f"{name}-alone", name)
    prepare(scene, DIALOG)
    more, wanted = ALONE[name]
    texts = ["one", "two", "three", "four"]
    script, told = ended(scene, program, [*map(add, texts), STEPS[0]], more, notes="first\n")
    for result in script.results[:4]:
        if "confirm_token" not in result or "by itself" not in result:
            raise Failed(f"not a clear pending answer: {result}{told}")
    rows = scene.rows()
    answers = [row["detail"].get("answer") for row in rows if row.get("detail", {}).get("action") == "automatic"]
    codes = [row["code"] for row in rows if row.get("code")]
    states = [plan["state"] for plan in scene.data("plans", "list")["plans"]]
    if answers != [wanted] * 4 or codes or any(row.get("approval") for row in rows) or states != ["pending"] * 4:
        raise Failed(f"answers {answers}, codes {codes}, plans {states}{told}")
    return f"four dialogs answered by itself ({wanted}): recorded as automatic, four plans wait, nothing is paused"


# Permissions for the hosts, because `init` wrote rules for the router's tools only.
DIRECT = {
    "claude-code": ["--allowedTools", "mcp__countersign"], "gemini": ["--approval-mode", "yolo"], "opencode": [],
}
# A person who takes longer than a call waits, in seconds.
LATER = 6


def direct_scene(countersign, folder, name, part, more=""):
    scene = Scene(countersign, folder, f"{name}-{part}", name)
    (scene.folder / "notes.txt").write_text("first\n")
    scene.take_over("notes", notes_server(scene), '[confirm]\nhold = "5s"\nstrength = { write = "human" }\n', more)
    scene.config.write_text(scene.config.read_text().replace("[gateway]\n", '[gateway]\nsurface = "direct"\n', 1))
    return scene


def direct_play(scene, program, steps, wanted, notes):
    script, told = ended(scene, program, steps, DIRECT[scene.host], notes, steps[0]["tool"])
    expect(script, told, wanted)
    for step, result in zip(steps, script.results):
        # The one answer that breaks its schema shows that this host checks, and in which words.
        if ("output schema" in result) != ("misfit" in step["args"]):
            raise Failed(f"{step}: the host's own check of the output schema: {result}{told}")


def direct(countersign, folder, name, program):
    """The direct surface, with tools that declare an `outputSchema`: whatever we answer in a tool's place reaches the model."""
    scene = direct_scene(countersign, folder, name, "direct")
    read = {"tool": "notes__list_notes", "args": {}}

    def note(text, wait=0, **ours):
        args = {"text": text, **({"countersign": ours} if ours else {})}
        return {"tool": "notes__add_note", "wait": wait, "args": args}

    late = note("later", wait=LATER, confirm_token="TOKEN", yes=True)
    steps = [
        read, note("looked", mode="plan"), note("refused", mode="ask"), note("approved"), note("rejected"), note("later"), late, read,
    ]
    wanted = [
        ("result of a read", "first"), ("preview", "review", "othing"), ("refusal by mode", "E_MODE_ASK"),
        ("hold, approved", "first", "approved"), ("hold, rejected", "E_APPROVAL_REJECTED", "was rejected"),
        ("hold, nobody there", "confirm_token"), ("result with the token", "first", "approved", "later"),
    ]
    direct_play(scene, program, steps, wanted, "first\napproved\nlater\n")
    expect_codes(scene, "E_MODE_ASK", "E_APPROVAL_REJECTED")
    return "tools with an outputSchema: a result, a preview, two refusals, a hold that was approved, one that came back with its token"


def bare(countersign, folder, name, program):
    """With `prefix = false` a tool that never asks keeps its `outputSchema`: its results fit it, and a refusal needs no fit. A result
    of the server that does not fit is refused by the host: it does check."""
    more = 'prefix = false\n\n[[rules]]\nmatch = "notes:list_notes"\nlimit = "2/min"\n'
    scene = direct_scene(countersign, folder, name, "bare", more)
    read = {"tool": "list_notes", "args": {}}
    steps = [read, dict(read, args={"misfit": True}), read, read]
    wanted = [("result", "first"), ("misfit", "does not match the tool's output schema"), ("refusal", "E_LIMIT_EXCEEDED")]
    direct_play(scene, program, steps, wanted, "first\n")
    expect_codes(scene, "E_LIMIT_EXCEEDED")
    return "a listed outputSchema: a result and a refusal reach the model, a result that breaks it does not"


def by_hand(countersign, folder, _name, program):
    """The guide's own command, with the paths of this scene."""
    scene = Scene(countersign, folder, "by-hand")
    guide = (HERE.parents[1] / "docs/guide/gateway.md").read_text()
    said = next(line for line in guide.splitlines() if line.startswith("claude mcp add "))
    config = scene.project / "countersign.toml"
    config.write_text('[gateway]\nmode = "ask"\n')
    places = {"claude": program, "/absolute/path/countersign.toml": str(config)}
    words = [places.get(word, word) for word in said.split()]
    words[words.index("--") + 1] = str(scene.countersign)
    added = scene.run(*words)
    listed = scene.run(program, "mcp", "list")
    if added.returncode != 0 or not any("countersign" in line and "Connected" in line for line in listed.stdout.splitlines()):
        raise Failed(f"`{said}`: {added.stdout}{added.stderr}{listed.stdout}{listed.stderr}")
    return said


def work(jobs, failures):
    """Two at a time: what takes long in each is waiting."""
    lock = threading.Lock()

    def next_one():
        while True:
            with lock:
                if not jobs:
                    return
                what, play_it, words = jobs.pop(0)
            started = time.time()
            try:
                say(f"{what}: {play_it(*words)}; {time.time() - started:.0f} s")
            except (Failed, subprocess.TimeoutExpired) as failed:
                failures.append(what)
                say(f"FAILED: {what}: {failed}")
            except Exception as fault:  # a thread's fault must fail the run
                failures.append(what)
                say(f"FAILED: {what}: {type(fault).__name__}: {fault}")

    threads = [threading.Thread(target=next_one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    countersign, folder, *programs = sys.argv[1:]
    programs = dict(program.split("=", 1) for program in programs)
    failures, jobs = [], []
    for name, program in programs.items():
        words = (countersign, folder, name, program)
        jobs.append((name, one, words))
        jobs.append((f"{name} in a terminal", screens.one, words))
        if name in DIRECT:
            jobs.append((f"{name} on the direct surface", direct, words))
            jobs.append((f"{name} without a prefix", bare, words))
        if name == "copilot":
            jobs.append(("copilot and the page", page, words))
        if name in ALONE:
            jobs.append((f"{name} by itself", alone, words))
    if "claude-code" in programs:
        jobs.append(("by hand", by_hand, (countersign, folder, "claude-code", programs["claude-code"])))
        jobs.append(("langchain", adapters.one, (countersign, folder, "langchain", None)))
        jobs.append(("56 calls", session.one, (countersign, folder, "session", None)))
    work(jobs, failures)
    sys.exit(1 if failures else 0)


main()
