// Grants: approvals of later calls, with tool, values, uses left and expiry. Each can be revoked.
import { get, remove } from "./api.js";
import { bundle, h, put } from "./dom.js";
import { act, cells, command, empty, grid, head, notice, question, reportErrors, state, toolName } from "./parts.js";
import { line, plain } from "./safe.js";
import { ago, left } from "./time.js";
import { value } from "./value.js";

const COLUMNS = ["Tool and values", "State", "Uses left", "Expires", "For", "Granted by", "Actions"];

function values(args) {
  const all = Object.entries(args ?? {});
  if (all.length === 0) return h("span", { class: "dim" }, "no arguments");
  const isAny = (of) => of !== null && typeof of === "object" && of.any === true && Object.keys(of).length === 1;
  return h("table", { class: "values tight" }, h("tbody", null, all.map(([name, of]) => h("tr", null, h("th", { scope: "row" }, line(name)), h("td", null, isAny(of) ? h("span", { class: "badge" }, "any value") : value(of))))));
}

/** The view. */
export async function view() {
  const [list, troubles] = [h("div"), h("div")];
  const every = h("input", { type: "checkbox", on: { change: () => load() } });
  const node = h("div", { class: "page" }, head("Grants", "Approvals of later calls; each use is recorded", h("label", { class: "check" }, every, "Show ended grants")), troubles, list);
  const row = (grant) => cells(COLUMNS, [
    bundle(h("div", null, toolName(grant.tool)), values(grant.arguments), h("div", { class: "dim mono clamp" }, line(grant.grant_id))), state(grant.state), String(grant.uses_left), grant.state === "live" ? left(grant.expires_at) : ago(grant.revoked_at ?? grant.expires_at), line(grant.principal), bundle(line(grant.by), " ", h("span", { class: "dim" }, ago(grant.created_at))),
    grant.state === "live" ? act("Revoke", { class: "danger", "aria-label": `Revoke the grant for ${plain(grant.tool)}` }, async () => {
      if (!(await question("Revoke this grant?", h("p", null, "The next call of ", toolName(grant.tool), " will need an approval again."), "Revoke", "primary danger"))) return;
      await remove(`/grants/${encodeURIComponent(grant.grant_id)}`);
      notice("", "Revoked the grant for ", toolName(grant.tool));
      await load();
    }) : null,
  ], { data: { grant: grant.grant_id } });
  const load = async () => {
    await reportErrors(troubles, async () => {
      const { grants } = await get("/grants", { all: every.checked ? "true" : undefined });
      put(list, grants.length === 0 ? empty("No grants", "When you approve a plan, you can also allow later calls like it: the same tool, chosen values, a number of uses, an expiry. Grants are listed here and can be revoked at any time.", command("countersign approve ID --grant --uses 5 --expires 2h")) : grid("Grants", COLUMNS, grants.map(row)));
    });
  };
  await load();
  return { title: "Grants", node, heard: (kind) => (kind.startsWith("grant") || kind.startsWith("activity")) && load() };
}
