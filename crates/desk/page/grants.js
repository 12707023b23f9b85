// Approvals given ahead: for which tool, which values, how often, until when; taken back with one button.
import { get, remove } from "./api.js";
import { bundle, h, put } from "./dom.js";
import { act, cells, command, empty, grid, head, notice, question, showTrouble, state, toolName } from "./parts.js";
import { line, plain } from "./safe.js";
import { ago, left } from "./time.js";
import { value } from "./value.js";

const COLUMNS = ["Tool and values", "State", "Uses left", "Ends", "For", "Given by", "Actions"];

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
  const node = h("div", { class: "page" }, head("Grants", "Approvals given ahead, each use recorded", h("label", { class: "check" }, every, "Also those that ended")), troubles, list);
  const row = (grant) => cells(COLUMNS, [
    bundle(h("div", null, toolName(grant.tool)), values(grant.arguments), h("div", { class: "dim mono clamp" }, line(grant.grant_id))), state(grant.state), String(grant.uses_left), grant.state === "live" ? left(grant.expires_at) : ago(grant.revoked_at ?? grant.expires_at), line(grant.principal), bundle(line(grant.by), " ", h("span", { class: "dim" }, ago(grant.created_at))),
    grant.state === "live" ? act("Revoke", { class: "danger", "aria-label": `Revoke the grant for ${plain(grant.tool)}` }, async () => {
      if (!(await question("Take this grant back?", h("p", null, "The next such call of ", toolName(grant.tool), " asks again."), "Revoke", "primary danger"))) return;
      await remove(`/grants/${encodeURIComponent(grant.grant_id)}`);
      notice("", "Revoked the grant for ", toolName(grant.tool));
      await load();
    }) : null,
  ], { data: { grant: grant.grant_id } });
  const load = async () => {
    try {
      const { grants } = await get("/grants", { all: every.checked ? "true" : undefined });
      showTrouble(troubles, null);
      put(list, grants.length === 0 ? empty("No grants", "When you approve a plan you can also allow calls like it ahead: this tool, these values, so many times, until then. They are listed here and can be taken back at any time.", command("countersign approve ID --grant --uses 5 --expires 2h")) : grid("Grants", COLUMNS, grants.map(row)));
    } catch (error) {
      if (error.code === undefined) throw error;
      showTrouble(troubles, error);
    }
  };
  await load();
  return { title: "Grants", node, heard: (kind) => (kind.startsWith("grant") || kind.startsWith("activity")) && load() };
}
