// Sign-in: with the one-time link of `countersign open`, a name and pass phrase, or a human credential. Stores none of them.
import { post } from "./api.js";
import { h } from "./dom.js";
import { command, field, showTrouble } from "./parts.js";

/** Exchanges the code of a one-time link for a session, and removes it from the address first. */
export async function exchange(notice) {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code === null) return;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    await post("/session", { code });
  } catch (error) {
    if (error.code === undefined) throw error;
    notice("bad", `That link can't be used: ${error.message}. Create a new one with: countersign open`);
  }
}

/** One way to sign in: a form under its summary that posts what `body` returns. */
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

/** The sign-in page. Calls `done` after a successful sign-in. */
export function node(done) {
  const name = h("input", { type: "text", name: "username", autocomplete: "username", required: true, spellcheck: "false" });
  const secret = h("input", { type: "password", name: "passphrase", autocomplete: "current-password", required: true });
  const credential = h("input", { type: "password", name: "credential", autocomplete: "off", required: true, spellcheck: "false" });
  // Do not leave typed secrets on the page.
  const into = async () => {
    secret.value = credential.value = "";
    await done();
  };
  return h("div", { class: "page signin" },
    h("img", { src: "/page/mark.svg", alt: "", width: 44, height: 44 }),
    h("h1", null, "Sign in to approve"),
    h("p", { class: "about" }, "People approve here what agents want to change. On the computer that runs the gateway, this command opens the page signed in:"),
    command("countersign open"),
    /^\/plans\/./.test(location.pathname) ? h("p", { class: "about" }, "Then come back to this tab: it goes on to the plan of your link.") : null,
    way("Sign in with a pass phrase", h("div", { class: "two" }, field("Name", name), field("Pass phrase", secret)), "You can set one under Credentials after you have signed in.", () => ({ name: name.value.trim(), passphrase: secret.value }), into),
    way("Sign in with a human credential", field("Credential", credential), "As `countersign token create --role human` printed it. An agent's credential never opens this page.", () => ({ credential: credential.value.trim() }), into));
}
