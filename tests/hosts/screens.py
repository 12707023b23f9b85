"""What a person sees of our question in each host, in a terminal of 80 columns and 24 lines, and what their keys do.

The scripted model edits a file twice through the official filesystem server. The first line of our question says all that is needed to
decide, with the reason; it has to be on the screen when the host waits for an answer. Then keys accept the first edit and decline the
second.
A host without such a dialog is looked at all the same: `PLAIN` says what it shows, and the person decides at the command line.
"""

import time

import model
from programs import HERE, HOSTS, Failed, Scene
from terminal import Terminal

PEERS = HERE.parents[1] / ".cache/peers"
NODE = str(PEERS / "bin/node")
SERVER = [NODE, str(PEERS / "npm/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js")]

CONFIRM = '[confirm]\nhold = "30s"\n'
HEADLINE = "Edit ~/shop/cart.js (+1 −1)?"
REASONS = ("VAT went down to 16 %", "Books are cheaper")
# How long a host has for its start, and for its dialog, on a machine with much to do.
START, PATIENCE = 60, 30

# The keys that accept, and those that decline.
DIALOGS = {"claude-code": ("\r", "\x1b[B\r"), "codex": ("\r", "\x1b[B\r"), "copilot": ("\r", "\x04")}
# What the others show while the call waits.
PLAIN = {"gemini": HEADLINE, "opencode": "call_tool_destructive [name=files:edit_file]"}
# What a host asks on its first day in a folder, and the keys for it.
GREETINGS = {"Do you trust the files in this folder?": "\r"}


def edit(path, old, new, reason):
    args = {"path": str(path), "edits": [{"oldText": old, "newText": new}]}
    intent = {"operation_type": "destructive", "reason": reason}
    return {"tool": "call_tool_destructive", "args": {"name": "files:edit_file", "args": args, "intent": intent}}


def begin(screen, script, name):
    """Until the model was asked with our tools on offer."""
    until, greeted, typed = time.time() + START, set(), time.time()
    while script.at == 0:
        if time.time() > until:
            raise Failed(f"the model was not asked: {script.log}\n{screen.shown()}")
        for greeting, keys in GREETINGS.items():
            if greeting not in greeted and greeting in screen.shown():
                greeted.add(greeting)
                time.sleep(0.5)
                screen.keys(keys)
        # Claude Code begins a turn before its servers are up; the next one has them.
        if name == "claude-code" and time.time() - typed > 3:
            screen.keys("go")
            time.sleep(0.5)
            screen.keys("\r")
            typed = time.time()
        time.sleep(0.2)


def wait(test, what, screen, seconds=PATIENCE):
    until = time.time() + seconds
    while not test():
        if time.time() > until:
            raise Failed(f"{what}\n{screen.shown()}")
        time.sleep(0.2)


def wanted_line(name, turn):
    """What has to stand on one line: in a dialog, what happens and why."""
    return f"{HEADLINE} “{REASONS[turn]}”" if name in DIALOGS else PLAIN[name]


def answer(scene, screen, name, turn):
    """The person reads what is on the screen, longer than a program needs, and answers."""
    wanted = wanted_line(name, turn)
    lines = screen.wait_for(lambda shown: wanted in shown, PATIENCE)
    if lines is None:
        raise Failed(f"`{wanted}` is not on the screen:\n{screen.shown()}")
    time.sleep(1)
    if name in DIALOGS:
        for key in DIALOGS[name][turn].partition("\x1b[B"):
            if key:
                screen.keys(key)
                time.sleep(0.3)
        return lines
    plans = [plan for plan in scene.data("plans", "list")["plans"] if plan["state"] == "pending"]
    scene.ours(*(["approve", plans[0]["plan_id"], "--yes"] if turn == 0 else ["reject", plans[0]["plan_id"]]))
    return lines


def one(countersign, folder, name, program):
    scene = Scene(countersign, folder, f"{name}-screen", name)
    cart = scene.home / "shop/cart.js"
    scene.put(cart, "export const VAT = 19;\n")
    scene.take_over("files", [*SERVER, str(cart.parent)], CONFIRM)
    script = model.Script([
        edit(cart, "VAT = 19", "VAT = 16", REASONS[0]),
        edit(cart, "VAT = 16", "VAT = 7", REASONS[1]),
    ])
    server = model.serve(script)
    words, env = HOSTS[name].interactive(scene, program, f"http://127.0.0.1:{server.server_port}")
    words = [NODE if word == "node" else word for word in words]
    screen = Terminal(words, scene.project, dict(scene.env, **env))
    try:
        begin(screen, script, name)
        seen = answer(scene, screen, name, 0)
        wait(lambda: "16" in cart.read_text(), "accepted, and the file is as it was", screen)
        wait(lambda: script.at == 2, "the model was not asked again", screen)
        answer(scene, screen, name, 1)
        wait(lambda: len(script.results) == 2, "declined, and the model does not know", screen)
    finally:
        screen.end()
        server.shutdown()
    if cart.read_text() != "export const VAT = 16;\n":
        raise Failed(f"declined, and the file changed: {cart.read_text()}")
    if "was rejected" not in script.results[1]:
        raise Failed(f"declined, and the model reads: {script.results[1]}")
    rails = [row["approval"]["rail"] for row in scene.rows() if row.get("approval")]
    wanted = "elicitation" if name in DIALOGS else "cli"
    if not rails or set(rails) != {wanted}:
        raise Failed(f"decided over {rails}, not over {wanted}")
    at = next(number for number, line in enumerate(seen, 1) if wanted_line(name, 0) in line)
    return f"line {at} of 24 says `{seen[at - 1].strip(' │')}`; decided over {wanted}"
