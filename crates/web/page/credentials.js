// Credentials of agents and people: listed, created, revoked. A secret is shown once and never stored.
import { get, post, remove } from "./api.js";
import { bundle, h, put } from "./dom.js";
import { act, cells, command, empty, field, grid, head, notice, question, reportErrors, select, showTrouble, state } from "./parts.js";
import { line } from "./safe.js";
import { ago, left } from "./time.js";
import { value } from "./value.js";
import { EFFECTS, MODES, PASSPHRASE_LENGTH, ROLES } from "./vocabulary.js";

const COLUMNS = ["Name", "Role", "State", "Limits", "Created", "Expires", "Actions"];
const SPANS = [["", "never"], ["1h", "1 hour"], ["1d", "1 day"], ["7d", "7 days"], ["30d", "30 days"], ["90d", "90 days"]];

function words(text) {
  const all = text.split(/[\s,]+/).filter((word) => word !== "");
  return all.length === 0 ? undefined : all;
}

function form(made) {
  const role = select("role", ROLES, "agent");
  const name = h("input", { type: "text", name: "name", maxlength: 64, autocomplete: "off", placeholder: "laptop-agent" });
  const upstreams = h("input", { type: "text", name: "upstreams", autocomplete: "off", placeholder: "all" });
  const boxes = EFFECTS.map((word) => h("label", { class: "check" }, h("input", { type: "checkbox", name: "effects", value: word, checked: true }), word));
  const mode = select("max_mode", MODES, MODES.at(-1));
  const until = h("select", { name: "expires" }, SPANS.map(([of, label]) => h("option", { value: of, selected: of === "30d" }, label)));
  const vouch = h("input", { type: "checkbox", name: "may_vouch" });
  const limits = h("div", { class: "fields" }, field("Only these upstreams", upstreams, "Names, separated by commas; empty for all"), h("fieldset", { class: "field" }, h("legend", null, "Effects"), h("div", { class: "row" }, boxes)), field("Highest mode", mode), h("label", { class: "check field" }, vouch, "Its host's dialog may approve", h("span", { class: "hint" }, "For a host that you trust to ask you. Without it, an answer over HTTP counts as the agent's own.")));
  const troubles = h("div");
  role.addEventListener("change", () => (limits.hidden = role.value === "human"));
  const go = h("button", { type: "submit", class: "primary" }, "Create");
  const box = h("form", { class: "card make", on: { submit: async (event) => {
    event.preventDefault();
    go.disabled = true;
    const effects = boxes.map((label) => label.firstChild).filter((one) => one.checked).map((one) => one.value);
    const asked = { role: role.value };
    if (name.value.trim() !== "") asked.name = name.value.trim();
    if (until.value !== "") asked.expires_in = until.value;
    if (role.value === "agent") {
      if (words(upstreams.value)) asked.upstreams = words(upstreams.value);
      if (effects.length < EFFECTS.length) asked.effects = effects;
      if (mode.value !== MODES.at(-1)) asked.max_mode = mode.value;
      if (vouch.checked) asked.may_vouch = true;
    }
    try {
      const answer = await post("/credentials", asked);
      showTrouble(troubles, null);
      box.reset();
      made(answer);
    } catch (error) {
      if (error.code === undefined) throw error;
      showTrouble(troubles, error);
    } finally {
      go.disabled = false;
    }
  } } }, h("h2", null, "New credential"), h("div", { class: "fields" }, field("Role", role, "Agents call tools; people decide. A credential is for one of the two."), field("Name", name), field("Expires after", until)), limits, troubles, h("div", { class: "actions" }, go));
  return box;
}

/** The form that sets your own pass phrase. */
function phrase() {
  const secret = h("input", { type: "password", autocomplete: "new-password", minlength: PASSPHRASE_LENGTH.least, maxlength: PASSPHRASE_LENGTH.most, required: true });
  const troubles = h("div");
  return h("form", { class: "card", on: { submit: async (event) => {
    event.preventDefault();
    await reportErrors(troubles, async () => {
      await post("/me/passphrase", { passphrase: secret.value });
      secret.value = "";
      notice("good", "Your pass phrase is set");
    });
  } } }, h("h2", null, "Your pass phrase"), h("p", { class: "about" }, "Sign in with your name and pass phrase from a browser without a shell, such as on a phone."), field("New pass phrase", secret, `At least ${PASSPHRASE_LENGTH.least} characters; stored only as a hash.`), troubles, h("div", { class: "actions" }, h("button", { type: "submit" }, "Set")));
}

/** The view. */
export async function view() {
  const [list, troubles, fresh] = [h("div"), h("div"), h("div")];
  const node = h("div", { class: "page" }, head("Credentials", "Who may connect as an agent, and who may decide"), fresh, troubles, list, form((answer) => show(answer)), phrase());
  const show = (answer) => {
    const secret = h("input", { type: "text", readonly: true, value: answer.secret, class: "secret mono", "aria-label": "The secret, shown this once", on: { focus: (event) => event.target.select() } });
    const copy = act("Copy", { class: "primary" }, async () => {
      await navigator.clipboard.writeText(answer.secret);
      notice("good", "Copied");
    });
    put(fresh, h("div", { class: "banner good once", role: "alert" }, h("p", null, h("b", null, line(answer.credential?.name ?? "")), " is created. Copy its secret now; it is not shown again:"), h("div", { class: "row" }, secret, copy, h("button", { type: "button", on: { click: () => put(fresh) } }, "I have copied it"))));
    secret.focus();
    load();
  };
  const row = (one) => cells(COLUMNS, [
    bundle(h("b", null, line(one.name)), h("div", { class: "dim mono clamp" }, line(one.credential_id))), one.role, state(one.state),
    Object.keys(one.scopes ?? {}).length === 0 ? h("span", { class: "dim" }, "none") : value(one.scopes), ago(one.created_at), one.state === "live" ? (one.expires_at ? left(one.expires_at) : h("span", { class: "dim" }, "never")) : "",
    one.state === "live" ? act("Revoke", { class: "danger", "aria-label": `Revoke ${one.name}` }, async () => {
      if (!(await question("Revoke this credential?", h("p", null, h("b", null, line(one.name)), " stops working at once, in every gateway on this store."), "Revoke", "primary danger"))) return;
      await remove(`/credentials/${encodeURIComponent(one.credential_id)}`);
      notice("", "Revoked ", line(one.name));
      await load();
    }) : null,
  ], { data: { credential: one.credential_id } });
  const load = async () => {
    await reportErrors(troubles, async () => {
      const { credentials } = await get("/credentials");
      put(list, credentials.length === 0 ? empty("No credentials", "Agents on this computer need none. Create one for each agent elsewhere:", command("countersign token create --role agent --name laptop-agent")) : grid("Credentials", COLUMNS, credentials.map(row)));
    });
  };
  await load();
  return { title: "Credentials", node, heard: (kind) => kind.startsWith("credential") && load() };
}
