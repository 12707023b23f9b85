// Proposals to the governed memory, in the inbox: what an agent would have everyone remember, approved or rejected whole.
import { get, post } from "./api.js";
import { h, put } from "./dom.js";
import { act, notice } from "./parts.js";
import { line, prose } from "./safe.js";
import { ago } from "./time.js";
import { table } from "./value.js";

const KNOWN = new Set(["id", "proposal_id", "kind", "type", "content", "text", "created_at", "status", "state", "title", "proposed_by", "principal"]);

function card(proposal, reload) {
  const id = proposal.proposal_id ?? proposal.id;
  const decide = (word, said) => async () => {
    const note = box.querySelector("input").value.trim();
    await post(`/memory/proposals/${encodeURIComponent(id)}/${word}`, note === "" ? {} : { note });
    notice("good", `${said}: `, line(id));
    await reload();
  };
  const rest = Object.fromEntries(Object.entries(proposal).filter(([name, value]) => !KNOWN.has(name) && value !== null));
  const box = h("article", { class: "proposal", "aria-label": `Proposal ${id}` },
    h("div", { class: "top" }, h("span", { class: "badge" }, line(proposal.kind ?? proposal.type ?? "memory")), h("b", null, line(proposal.title ?? id)), proposal.created_at ? h("span", { class: "dim" }, ago(proposal.created_at)) : null),
    prose(proposal.content ?? proposal.text ?? ""),
    Object.keys(rest).length > 0 ? h("details", null, h("summary", null, "All of it"), table(rest, "Proposal")) : null,
    h("div", { class: "actions" }, h("input", { type: "text", placeholder: "Note", "aria-label": "Note", maxlength: 1000 }),
      act("Reject", {}, decide("reject", "Rejected")), act("Approve", { class: "primary" }, decide("approve", "Approved"))));
  return box;
}

/** Fills the place with the proposals that wait; leaves it empty where there is no memory. */
export async function proposals(place) {
  const found = await get("/memory/proposals", { state: "pending" });
  const all = found.proposals ?? [];
  put(place, all.length === 0 ? null : [h("h2", null, "To remember"), h("p", { class: "about" }, "What agents propose for the memory everyone reads. Nothing is remembered before you say so."), all.map((one) => card(one, () => proposals(place)))]);
}
