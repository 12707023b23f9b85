//! The words, sentences and limits that the page shares with the gateway, served as its module `vocabulary.js`. Everything comes
//! from the enums and constants the gateway itself uses, so that the page's JavaScript keeps no list of its own. How a word looks
//! (colours, layout) is the page's part.

use std::sync::LazyLock;

use countersign_config::{CallRoute, VerdictWord};
use countersign_gateway::approval::grants::MOST_USES;
use countersign_policy::confirm::{ApprovalStrength, Kind, PlanState};
use countersign_policy::effect::Effect;
use countersign_policy::mode::Mode;
use countersign_policy::plan::PreviewSource;
use countersign_policy::record::{ActorRole, RowKind, RowStatus};
use countersign_policy::redact::REDACTED_PREFIX;
use countersign_policy::refusal::Code;
use countersign_policy::role::Role;
use countersign_policy::visible_text::javascript_pattern;
use countersign_store::RunState;
use serde_json::{Map, Value, json};

use crate::api::activity;
use crate::events::EventName;
use crate::sign_in::{LONGEST_PHRASE, SHORTEST_PHRASE};
use crate::views::{CredentialState, GrantState, ToolState, UpstreamState};

/// The source of `vocabulary.js`.
pub(crate) fn module() -> &'static str {
    static MODULE: LazyLock<String> = LazyLock::new(|| {
        let constants = constants();
        let line = |(name, value): &(&str, Value)| format!("export const {name} = {value};\n");
        constants.iter().map(line).collect()
    });
    &MODULE
}

/// How a state looks: nothing special, good, needs attention, bad, or under way.
type Tone = &'static str;
const PLAIN: Tone = "";
const GOOD: Tone = "good";
const WARN: Tone = "warn";
const BAD: Tone = "bad";
const BUSY: Tone = "busy";

fn constants() -> Vec<(&'static str, Value)> {
    vec![
        ("MODES", words(Mode::ALL, Mode::as_str)),
        ("EFFECTS", words(Effect::ALL, Effect::as_str)),
        ("ROLES", words(Role::ALL, Role::as_str)),
        ("ACTOR_ROLES", words(ActorRole::ALL, ActorRole::as_str)),
        ("CALL_ROUTES", words(CallRoute::ALL, CallRoute::as_str)),
        ("ROW_KINDS", words(RowKind::ALL, RowKind::as_str)),
        ("ROW_STATUSES", words(RowStatus::ALL, RowStatus::as_str)),
        ("TOOL_STATES", words(ToolState::ALL, ToolState::as_str)),
        ("EVENT_NAMES", words(EventName::ALL, EventName::as_str)),
        ("ACTIVITY_FILTERS", activity::filter_names().into()),
        ("TONES", tones()),
        ("CODE_TONES", MILD_CODES.iter().map(|(code, tone)| (code.as_str(), *tone)).collect()),
        ("PLAN_SENTENCES", map(PlanState::ALL, PlanState::as_str, plan_sentence)),
        ("CONFIRM_LABELS", map(Kind::ALL, Kind::as_str, confirm_label)),
        ("CONFIRM_STEPS", map(Kind::ALL, Kind::as_str, confirm_step)),
        ("APPROVERS", map(ApprovalStrength::ALL, ApprovalStrength::as_str, approver)),
        ("VERDICTS", map(VerdictWord::ALL, VerdictWord::as_str, verdict_label)),
        ("PREVIEW_SOURCES", map(PreviewSource::ALL, PreviewSource::as_str, preview_source)),
        ("CALL_SENTENCES", map(RowStatus::ALL, RowStatus::as_str, call_sentence)),
        ("MOST_GRANT_USES", json!(MOST_USES)),
        ("PASSPHRASE_LENGTH", json!({"least": SHORTEST_PHRASE, "most": LONGEST_PHRASE})),
        ("REDACTED", json!(REDACTED_PREFIX)),
        ("HIDDEN", json!(javascript_pattern(r"\n\t"))),
        ("HIDDEN_ON_ONE_LINE", json!(javascript_pattern(""))),
    ]
}

fn words<T: Copy>(all: &[T], spelling: fn(T) -> &'static str) -> Value {
    all.iter().map(|one| Value::from(spelling(*one))).collect()
}

fn map<T: Copy>(all: &[T], spelling: fn(T) -> &'static str, text: fn(T) -> &'static str) -> Value {
    Value::Object(pairs(all, spelling, text))
}

fn pairs<T: Copy>(
    all: &[T],
    spelling: fn(T) -> &'static str,
    text: fn(T) -> &'static str,
) -> Map<String, Value> {
    all.iter().map(|one| (spelling(*one).to_owned(), Value::from(text(*one)))).collect()
}

/// One table for the states of everything: a word that several things share looks the same for all of them.
fn tones() -> Value {
    let mut all = pairs(PlanState::ALL, PlanState::as_str, plan_tone);
    all.extend(pairs(RowStatus::ALL, RowStatus::as_str, row_tone));
    all.extend(pairs(RUN_STATES, RunState::as_str, run_tone));
    all.extend(pairs(GrantState::ALL, GrantState::as_str, grant_tone));
    all.extend(pairs(CredentialState::ALL, CredentialState::as_str, credential_tone));
    all.extend(pairs(ToolState::ALL, ToolState::as_str, tool_tone));
    all.extend(pairs(UpstreamState::ALL, UpstreamState::as_str, upstream_tone));
    all.extend(pairs(VerdictWord::ALL, VerdictWord::as_str, verdict_tone));
    Value::Object(all)
}

fn plan_tone(state: PlanState) -> Tone {
    match state {
        PlanState::Pending => WARN,
        PlanState::Approved | PlanState::Done => GOOD,
        PlanState::Rejected | PlanState::Failed | PlanState::OutcomeUnknown => BAD,
        PlanState::Cancelled | PlanState::Expired => PLAIN,
        PlanState::Executing => BUSY,
    }
}

fn row_tone(status: RowStatus) -> Tone {
    match status {
        RowStatus::Allowed => PLAIN,
        RowStatus::Success => GOOD,
        RowStatus::Pending => WARN,
        RowStatus::Refused | RowStatus::Error => BAD,
    }
}

const RUN_STATES: &[RunState] = &[
    RunState::Queued,
    RunState::Running,
    RunState::Success,
    RunState::Failed,
    RunState::Cancelled,
    RunState::OutcomeUnknown,
];

/// Refusals that look milder than others, because nobody refused: somebody typed something else, or time ran out.
const MILD_CODES: [(Code, Tone); 3] =
    [(Code::ConfirmTextMismatch, WARN), (Code::ConfirmTokenExpired, PLAIN), (Code::PlanCancelled, PLAIN)];

fn run_tone(state: RunState) -> Tone {
    match state {
        RunState::Queued | RunState::Running => BUSY,
        RunState::Success => GOOD,
        RunState::Failed | RunState::OutcomeUnknown => BAD,
        RunState::Cancelled => PLAIN,
    }
}

fn grant_tone(state: GrantState) -> Tone {
    match state {
        GrantState::Live => GOOD,
        GrantState::UsedUp | GrantState::Expired | GrantState::Revoked => PLAIN,
    }
}

fn credential_tone(state: CredentialState) -> Tone {
    match state {
        CredentialState::Live => GOOD,
        CredentialState::Expired | CredentialState::Revoked => PLAIN,
    }
}

fn tool_tone(state: ToolState) -> Tone {
    match state {
        ToolState::Accepted => GOOD,
        ToolState::New => WARN,
        ToolState::Changed | ToolState::Withheld => BAD,
    }
}

fn upstream_tone(state: UpstreamState) -> Tone {
    match state {
        UpstreamState::Idle => PLAIN,
        UpstreamState::Starting => BUSY,
        UpstreamState::Up => GOOD,
        UpstreamState::Down => BAD,
    }
}

fn verdict_tone(verdict: VerdictWord) -> Tone {
    match verdict {
        VerdictWord::Go => GOOD,
        VerdictWord::Hold => WARN,
        VerdictWord::Preview | VerdictWord::Explain => PLAIN,
        VerdictWord::Refuse => BAD,
    }
}

fn verdict_label(verdict: VerdictWord) -> &'static str {
    match verdict {
        VerdictWord::Go => "runs at once",
        VerdictWord::Hold => "waits for confirmation",
        VerdictWord::Preview => "is previewed; nothing changes",
        VerdictWord::Explain => "is explained, not run",
        VerdictWord::Refuse => "is refused",
    }
}

fn plan_sentence(state: PlanState) -> &'static str {
    match state {
        PlanState::Pending => "It waits for a decision.",
        PlanState::Approved => {
            "It is approved. It runs once, when the agent repeats the call with its token."
        }
        PlanState::Executing => "It is running.",
        PlanState::Done => "It ran, exactly as shown.",
        PlanState::Failed => "It ran and failed.",
        PlanState::Rejected => "It was rejected and will not run.",
        PlanState::Cancelled => "It was cancelled. Nothing changed.",
        PlanState::Expired => "It expired before anyone decided. Nothing changed; the agent can ask again.",
        PlanState::OutcomeUnknown => {
            "The gateway stopped while it ran. Whether it took effect is not known; the gateway never runs it again by itself."
        }
    }
}

fn confirm_label(kind: Kind) -> &'static str {
    match kind {
        Kind::None => "nothing",
        Kind::Simple => "approve",
        Kind::Preview => "review and approve",
        Kind::Type => "type the name",
    }
}

fn confirm_step(kind: Kind) -> &'static str {
    match kind {
        Kind::None => "nothing",
        Kind::Simple => "an approval",
        Kind::Preview => "a review of the preview and an approval",
        Kind::Type => "a review of the preview and the typed name of the resource",
    }
}

fn approver(strength: ApprovalStrength) -> &'static str {
    match strength {
        ApprovalStrength::Caller => "the agent itself",
        ApprovalStrength::Host => "the host's user or a person",
        ApprovalStrength::Human => "a person",
    }
}

/// Who made a preview; where there is none, why.
fn preview_source(source: PreviewSource) -> &'static str {
    match source {
        PreviewSource::Argument => "the tool's own dry run",
        PreviewSource::Companion => "another tool of the same upstream",
        PreviewSource::Command => "a configured command",
        PreviewSource::Chained => {
            "a dry run that includes the steps above; repeated when this step is reached"
        }
        PreviewSource::Computed => {
            "The upstream offers no dry run. The tool will run with exactly the arguments shown here."
        }
        PreviewSource::WhenReached => {
            "It can’t be previewed before the steps above it have run. It runs with exactly the arguments shown here, and asks again at that point if its rules require a preview."
        }
    }
}

fn call_sentence(status: RowStatus) -> &'static str {
    match status {
        RowStatus::Pending => "requested; waits for a person",
        RowStatus::Refused => "requested and refused",
        RowStatus::Allowed => "sent to the upstream",
        RowStatus::Success => "ran",
        RowStatus::Error => "ran and failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_one_tone_whatever_has_that_state() {
        let all = tones();
        let check = |word: &str, tone: Tone| assert_eq!(all[word], tone, "{word}");
        PlanState::ALL.iter().for_each(|one| check(one.as_str(), plan_tone(*one)));
        RowStatus::ALL.iter().for_each(|one| check(one.as_str(), row_tone(*one)));
        RUN_STATES.iter().for_each(|one| check(one.as_str(), run_tone(*one)));
        GrantState::ALL.iter().for_each(|one| check(one.as_str(), grant_tone(*one)));
        CredentialState::ALL.iter().for_each(|one| check(one.as_str(), credential_tone(*one)));
        ToolState::ALL.iter().for_each(|one| check(one.as_str(), tool_tone(*one)));
        UpstreamState::ALL.iter().for_each(|one| check(one.as_str(), upstream_tone(*one)));
        VerdictWord::ALL.iter().for_each(|one| check(one.as_str(), verdict_tone(*one)));
    }
}
