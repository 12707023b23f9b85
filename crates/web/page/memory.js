// Proposals of agents to the shared memory, in the inbox: the text, the reason, similar and contradicting records. Approved or
// rejected as a whole.
import { get, post } from "./api.js";
import { bundle, h, put } from "./dom.js";
import { act, facts, field, notice } from "./parts.js";
import { hiddenBadge, line, prose } from "./safe.js";
import { ago, left } from "./time.js";
import { table } from "./value.js";

/** Members that are shown in words; the table below shows the rest. */
const SAID = new Set(["id", "as", "content", "rationale", "context", "tags", "scope", "scope_path", "status", "proposed_by", "created_at", "expires_at", "authority", "similar", "contradictions"]);

function isBare(of) {
  return of === null || of === "" || of === false || (Array.isArray(of) && of.length === 0);
}

/** Existing records, each in full. */
function known(list, title, tone) {
  if (!Array.isArray(list) || list.length === 0) return null;
  const one = (record) => h("li", null, h("div", { class: "reason" }, prose(record.content ?? JSON.stringify(record))), h("p", { class: "dim mono" }, line([record.why, record.similarity === undefined ? null : `similarity ${record.similarity}`, record.authority, record.scope, record.id].filter(Boolean).join(" · "))));
  return h("div", { class: `banner ${tone} known` }, h("p", null, h("b", null, title)), h("ul", null, list.map(one)));
}

function card(proposal, reload) {
  const text = h("textarea", { rows: 3, maxlength: 100_000, value: proposal.content ?? "" });
  const reword = h("details", null, h("summary", null, "Edit before approving"), field("Text to remember", text, "Both texts are kept."));
  const note = h("input", { type: "text", placeholder: "Note", "aria-label": "Note", maxlength: 1000 });
  const decide = (word, said) => async () => {
    const sent = note.value.trim() === "" ? {} : { note: note.value.trim() };
    if (word === "approve" && reword.open && text.value !== proposal.content) sent.content = text.value;
    await post(`/memory/proposals/${encodeURIComponent(proposal.id)}/${word}`, sent);
    notice(word === "approve" ? "good" : "", `${said} `, line(proposal.id));
    await reload();
  };
  const rest = Object.fromEntries(Object.entries(proposal).filter(([name, of]) => !SAID.has(name) && !isBare(of)));
  const words = (text) => (text ? bundle(hiddenBadge(text), prose(text)) : null);
  return h("article", { class: "proposal", "aria-label": `Proposal ${proposal.id}`, data: { proposal: proposal.id } },
    h("div", { class: "top" }, h("span", { class: "badge busy" }, line(proposal.as ?? "memory")), h("b", null, line(proposal.proposed_by ?? "")), proposal.created_at ? h("span", { class: "dim" }, ago(proposal.created_at)) : null, proposal.expires_at ? h("span", { class: "dim" }, "expires in ", left(proposal.expires_at)) : null),
    h("div", { class: "reason" }, words(proposal.content ?? "")),
    facts([["because", words(proposal.rationale)], ["context", words(proposal.context)], ["for", proposal.scope ? line([proposal.scope, proposal.scope_path].filter(Boolean).join(" ")) : null], ["tags", proposal.tags?.length > 0 ? line(proposal.tags.join(", ")) : null]]),
    known(proposal.contradictions, "Contradicts existing records", "bad"),
    known(proposal.similar, "Similar to existing records", ""),
    reword,
    Object.keys(rest).length > 0 ? h("details", null, h("summary", null, "Evidence and details"), table(rest, "Proposal")) : null,
    h("div", { class: "actions" }, note, act("Reject", {}, decide("reject", "Rejected")), act("Approve", { class: "primary" }, decide("approve", "Remembered"))));
}

/** Whether a person has begun to edit a card: redrawing must not discard their text. */
function isTouched(card) {
  return card.querySelector("details[open] textarea") !== null || card.querySelector('input[aria-label="Note"]').value !== "";
}

/** Fills the place with the pending proposals; leaves it empty where there is no memory. */
export async function proposals(place) {
  const { proposals: waiting } = await get("/memory/proposals", { status: "pending", limit: 200 });
  const touched = [...place.querySelectorAll("[data-proposal]")].filter(isTouched);
  const kept = new Map(touched.map((card) => [card.dataset.proposal, card]));
  const focus = document.activeElement;
  put(place, waiting.length === 0 ? null : [h("h2", null, "Memory proposals"), h("p", { class: "about" }, "What agents propose for the shared memory. Nothing is remembered until you approve it."), waiting.map((one) => kept.get(one.id) ?? card(one, () => proposals(place)))]);
  if (place.contains(focus)) focus.focus();
}
