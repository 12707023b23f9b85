// How a person gets in: with the one-time link of `countersign open`, or with their name and pass phrase. Keeps neither.
import { post } from "./api.js";
import { h } from "./dom.js";
import { command, field, showTrouble } from "./parts.js";

/** Trades the code of a one-time link for a session, and takes it out of the address at once. */
export async function exchange(notice) {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code === null) return;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    await post("/session", { code });
  } catch (error) {
    if (error.code === undefined) throw error;
    notice("bad", `That link can't be used: ${error.message}. A new one: countersign open`);
  }
}

/** A way in: a form that opens under its summary and sends what `body` says. */
function way(summary, parts, hint, body, done) {
  const troubles = h("div");
  const go = h("button", { type: "submit", class: "primary" }, "Sign in");
  return h("details", null, h("summary", null, summary),
    h("form", { on: { submit: async (event) => {
      event.preventDefault();
      go.disabled = true;
      try {
        await post("/session", body());
        await done();
      } catch (error) {
        if (error.code === undefined) throw error;
        showTrouble(troubles, error);
      } finally {
        go.disabled = false;
      }
    } } }, parts, h("p", { class: "hint" }, hint), troubles, h("div", { class: "actions" }, go)));
}

/** The page for who is not signed in. `done` is called once they are. */
export function node(done) {
  const name = h("input", { type: "text", name: "username", autocomplete: "username", required: true, spellcheck: "false" });
  const secret = h("input", { type: "password", name: "passphrase", autocomplete: "current-password", required: true });
  const credential = h("input", { type: "password", name: "credential", autocomplete: "off", required: true, spellcheck: "false" });
  // Whatever was typed does not stay behind on the page.
  const into = async () => {
    secret.value = credential.value = "";
    await done();
  };
  return h("div", { class: "page signin" },
    h("img", { src: "/page/mark.svg", alt: "", width: 44, height: 44 }),
    h("h1", null, "Sign in to decide"),
    h("p", { class: "about" }, "Agents draft; a person countersigns. This page is for the person. On the computer the gateway runs on, this opens it signed in:"),
    command("countersign open"),
    way("With a pass phrase instead", h("div", { class: "two" }, field("Name", name), field("Pass phrase", secret)), "You can set one under Credentials once you are in.", () => ({ name: name.value.trim(), passphrase: secret.value }), into),
    way("With a human credential instead", field("Credential", credential), "As `countersign token create --role human` printed it. An agent's credential never opens this page.", () => ({ credential: credential.value.trim() }), into));
}
