//! The pack served on its own, as `pack mcp serve` does: a gateway with the pack as its only upstream. Translates the published
//! two-step protocol (`deploy` gives a token, `deploy_apply` brings it back with `yes`) into the gateway's plans and tokens, and
//! the gateway's answers into the published ones. Opens no transport.

use std::sync::Arc;
use std::time::Duration;

use countersign_config::{self as config, Source as ConfigSource};
use countersign_gateway::answer::{Answer, TextForm};
use countersign_gateway::assemble::CannotBuild;
use countersign_gateway::request::ToolCallRequest;
use countersign_gateway::standalone::{
    GovernedCall, StandaloneGateway, StandaloneServer, StandaloneSetup, tool_request,
};
use countersign_mcp::client::BoxFuture;
use countersign_mcp::jsonrpc::Reply;
use countersign_mcp::raw;
use countersign_policy::confirm::{ConfirmInput, PendingPlan, PlanState};
use countersign_policy::digest::Digest;
use countersign_policy::envelope::{Envelope, ErrorEntry};
use countersign_policy::gate::token_digest;
use countersign_policy::ids::{FullName, PrincipalId, SessionId};
use countersign_policy::plan::{Plan, PlanHashInput, Preview};
use countersign_policy::record::Source;
use countersign_policy::refusal::{Code, NextAction, Refusal};
use countersign_policy::role::Role;
use countersign_store::{PENDING_LIMIT, PlanFilter, PlanRow, Store};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::error::{PackError, PackResult};
use crate::lock;
use crate::place::PackEnvironment;
use crate::plan::AdoptPolicy;
use crate::reply::envelope;
use crate::tools::{self, ToolArguments, blocking, command_name, take_survey};
use crate::upstream::{PackUpstream, TokenIssuer};

pub(crate) const UPSTREAM: &str = "pack";
/// How long a token lives where no configuration says otherwise.
pub const TOKEN_LIFE: Duration = Duration::from_secs(300);

/// Only `deploy_apply` takes two steps here; behind a gateway the built-in rules ask for more.
const RULES: &str = r#"
[[rules]]
match = "pack:deploy_apply"
confirm = "preview"
strength = "caller"

[[rules]]
match = ["pack:rollback", "pack:evolve_*"]
effect = "write"
confirm = "none"

# Looking again and again is no offence.
[limits]
drafts = "100000/min"
"#;

/// The parts of phase 1's answer that `deploy` gives its caller.
const TOKEN_FIELDS: [&str; 4] = ["confirm_token", "confirm_plan_hash", "confirm_token_expires_at", "plan_id"];

/// Opens the gateway of a pack for callers of this role. A session's tokens are good in every process that names the same session.
pub async fn open(
    store: Store,
    place: PackEnvironment,
    role: Role,
    session: &str,
    life: Duration,
) -> Result<StandaloneGateway, CannotBuild> {
    let setup = StandaloneSetup {
        config: configured(RULES, life)?,
        native: Arc::new(PackUpstream::new(place.clone(), store.clone(), TokenIssuer::Server)),
        server: Arc::new(PackServer { store: store.clone(), place: place.clone() }),
        folder: place.state(),
        role,
        session: SessionId::new(session),
        source: Source::Mcp,
    };
    StandaloneGateway::open(store, setup).await
}

/// A gateway's configuration with the pack alone, under these rules.
pub(crate) fn configured(rules: &str, life: Duration) -> Result<config::Config, CannotBuild> {
    let text = format!(
        "[gateway]\nmode = \"execute\"\nsurface = \"direct\"\n\n[upstreams.{UPSTREAM}]\nkind = \"pack\"\nprefix = false\n{rules}"
    );
    let mut config = config::parse(&[ConfigSource::new("built-in", text.as_str())]).map_err(|_| {
        CannotBuild { upstream: UPSTREAM.to_owned(), why: "the built-in rules can't be read".to_owned() }
    })?;
    config.confirm.ttl = life;
    Ok(config)
}

struct PackServer {
    store: Store,
    place: PackEnvironment,
}

impl StandaloneServer for PackServer {
    fn server_info(&self) -> Value {
        json!({"name": "agentpack", "version": env!("CARGO_PKG_VERSION")})
    }

    fn instructions(&self) -> &'static str {
        tools::INSTRUCTIONS
    }

    fn call<'a>(&'a self, request: ToolCallRequest, governed: GovernedCall<'a>) -> BoxFuture<'a, Answer> {
        Box::pin(self.run(request, governed))
    }

    fn unknown_tool(&self, name: &str, _: &ErrorEntry) -> Reply {
        let text = format!("unknown tool: {name}");
        Ok(raw::to_raw(&json!({"content": [{"type": "text", "text": text}], "isError": true})))
    }

    fn text_form(&self) -> TextForm {
        TextForm::Envelope
    }
}

impl PackServer {
    async fn run(&self, request: ToolCallRequest, governed: GovernedCall<'_>) -> Answer {
        let tool = request.name.tool.as_str();
        let Some(name) = command_name(tool, request.arguments.value()) else {
            return governed.run(request).await;
        };
        let answer = match self.translate(tool, &request, &governed).await {
            Ok(answer) => answer,
            Err(PackError::Refused(refusal)) => governed.refuse(&request, &refusal).await,
            Err(broken @ PackError::Broken(_)) => Answer::Envelope(envelope(name, Err(broken))),
        };
        match answer {
            Answer::Envelope(mut envelope) => {
                name.put_into(&mut envelope);
                Answer::Envelope(envelope)
            }
            other @ (Answer::Carded(..) | Answer::Upstream(_) | Answer::Rpc(_)) => other,
        }
    }

    /// Runs a call of the published protocol as a call of the gateway's.
    async fn translate(
        &self,
        tool: &str,
        request: &ToolCallRequest,
        governed: &GovernedCall<'_>,
    ) -> PackResult<Answer> {
        let members = request.arguments.value();
        // Before anything else that is wrong with it: a change that nobody agreed to is refused as just that.
        if lacks_yes(tool, members) {
            return Err(unconfirmed(command_name(tool, members).map_or(tool, |name| name.id)));
        }
        let given = ToolArguments::read(tool, members, &self.place)?;
        let to = |tool: &str, arguments| {
            tool_request(FullName::new(request.name.upstream.clone(), tool), arguments)
        };
        Ok(match tool {
            "deploy" if !given.has("confirm_token") => {
                let call = to("deploy_apply", given.resolved()?);
                self.deploy(given, call, governed).await?
            }
            "deploy" => governed.run(to("deploy", given.resolved()?)).await,
            "deploy_apply" if given.says("dry_run") => {
                match governed.run(to("deploy", given.resolved()?)).await {
                    Answer::Upstream(result) => Answer::Envelope(dry_run_answer(result.get())),
                    other @ (Answer::Envelope(_) | Answer::Carded(..) | Answer::Rpc(_)) => other,
                }
            }
            "deploy_apply" => {
                let call = to("deploy_apply", given.resolved()?);
                self.deploy_apply(given, call, governed).await?
            }
            // `yes` was said, or it is a dry run: either way the schema wants it.
            "rollback" | "evolve_propose" | "evolve_restore" => {
                governed.run(to(tool, request.arguments.clone().with("yes", true.into()))).await
            }
            read => governed.run(to(read, request.arguments.clone())).await,
        })
    }

    /// Phase 1: the plan, held by the gateway, and a token for it. Changes nothing.
    async fn deploy(
        &self,
        given: ToolArguments,
        call: ToolCallRequest,
        governed: &GovernedCall<'_>,
    ) -> PackResult<Answer> {
        let place = given.place.clone();
        let recovered = blocking(move || lock::recover_if_stale(&place)).await?;
        self.make_room(given, governed.principal()).await?;
        Ok(match governed.run(call).await {
            Answer::Envelope(held) if held.ok => {
                let warnings = recovered.iter().map(|recovery| recovery.message()).collect();
                Answer::Envelope(plan_answer(&held).warn(warnings))
            }
            other @ (Answer::Envelope(_) | Answer::Carded(..) | Answer::Upstream(_) | Answer::Rpc(_)) => {
                other
            }
        })
    }

    /// Phase 2: the plan that was shown, or nothing.
    async fn deploy_apply(
        &self,
        given: ToolArguments,
        mut call: ToolCallRequest,
        governed: &GovernedCall<'_>,
    ) -> PackResult<Answer> {
        let token = given.text("confirm_token").filter(|token| !token.is_empty()).map(str::to_owned);
        let held = match &token {
            Some(token) => self
                .store
                .held(token_digest(token))
                .await
                .map_err(|fault| PackError::from(fault.refusal()))?,
            None => None,
        };
        if let Some(held) = held.as_ref().filter(|held| held.state == PlanState::Pending)
            && !given.says("adopt")
        {
            check_adopt(given, held).await?;
        }
        call.confirm_input = ConfirmInput { token, yes: Some(true), text: None };
        Ok(match governed.run(call).await {
            Answer::Envelope(mut envelope) => {
                envelope.errors.iter_mut().for_each(|error| reword(error, held.as_ref()));
                Answer::Envelope(envelope)
            }
            other @ (Answer::Carded(..) | Answer::Upstream(_) | Answer::Rpc(_)) => other,
        })
    }

    /// Withdraws the oldest pending plans where one more would be too many: only the caller decides them, and looking again is no
    /// offence.
    async fn make_room(&self, given: ToolArguments, principal: &PrincipalId) -> PackResult<()> {
        let (limit, now) = (usize::try_from(PENDING_LIMIT).unwrap_or(usize::MAX), Timestamp::now());
        let filter = PlanFilter {
            state: Some(PlanState::Pending),
            principal: Some(principal.clone()),
            limit: Some(1000),
            cursor: None,
        };
        let rows = self.store.plans(filter).await.map_err(|fault| PackError::from(fault.refusal()))?;
        let pending: Vec<&PlanRow> = rows.iter().filter(|row| row.plan.expires > now).collect();
        if pending.len() < limit {
            return Ok(());
        }
        // An equal plan that is pending is joined and needs no room.
        let bound = given.resolved()?;
        let changes = blocking(move || Ok(take_survey(&given)?.plan.changes_value())).await?;
        let is_equal = |row: &&&PlanRow| {
            row.plan.arguments.canonical() == bound.canonical()
                && changes_shown(&row.plan.preview) == Some(&changes)
        };
        if pending.iter().find(is_equal).is_some() {
            return Ok(());
        }
        // Newest first: those past the last place that is left.
        for row in pending.iter().skip(limit.saturating_sub(1)) {
            // Somebody else may have been faster; then there is room as well.
            let _ = self.store.cancel(&row.plan.id, principal, now).await;
        }
        Ok(())
    }
}

/// Refuses to overwrite files of others without `adopt`, before the token is spent: the same plan may be agreed to with it.
async fn check_adopt(given: ToolArguments, held: &PendingPlan) -> PackResult<()> {
    let plan = blocking(move || Ok(take_survey(&given)?.plan)).await?;
    // A plan that is not the one shown is refused as that, by the gateway.
    if changes_shown(&held.plan.preview) == Some(&plan.changes_value()) {
        plan.check_adopt(AdoptPolicy::Refused)?;
    }
    Ok(())
}

fn changes_shown(preview: &Preview) -> Option<&Value> {
    preview.shown.pointer("/structuredContent/data/changes")
}

/// Whether a call would change something and nobody said yes to it. Only `true` is a yes.
fn lacks_yes(tool: &str, members: &Map<String, Value>) -> bool {
    let says = |name: &str| members.get(name) == Some(&Value::Bool(true));
    match tool {
        "deploy_apply" | "rollback" => !says("yes"),
        "evolve_propose" | "evolve_restore" => !says("yes") && !says("dry_run"),
        _ => false,
    }
}

/// The answer of `deploy`: its dry run as it is stored in the plan, and the token.
fn plan_answer(held: &Envelope) -> Envelope {
    let shown = held.data.get("preview").and_then(|preview| preview.pointer("/shown/structuredContent"));
    let part = |name: &str| shown.and_then(|shown| shown.get(name)).cloned().unwrap_or_default();
    let mut data = part("data").as_object().cloned().unwrap_or_default();
    for name in TOKEN_FIELDS {
        data.extend(held.data.get(name).map(|value| (name.to_owned(), value.clone())));
    }
    Envelope::ok("deploy", data).warn(serde_json::from_value(part("warnings")).unwrap_or_default())
}

/// The answer of `deploy_apply` with `dry_run`: that of `deploy` without the differences.
fn dry_run_answer(result: &str) -> Envelope {
    let shown: Value = serde_json::from_str(result).unwrap_or_default();
    let part = |name: &str| shown.pointer(&format!("/structuredContent/{name}")).cloned().unwrap_or_default();
    let mut data = part("data").as_object().cloned().unwrap_or_default();
    data.remove("files");
    let mut envelope = Envelope::ok("deploy", data);
    if let Some(error) = part("errors").get(0) {
        envelope.ok = false;
        envelope.errors.push(ErrorEntry {
            code: error.get("code").and_then(Value::as_str).unwrap_or_default().to_owned(),
            message: error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
            details: error.get("details").cloned(),
        });
    }
    envelope
}

/// A refusal of the gateway in the words of `deploy` and `deploy_apply`.
fn reword(error: &mut ErrorEntry, held: Option<&PendingPlan>) {
    let Some(details) = error.details.as_mut().and_then(Value::as_object_mut) else { return };
    let now = details.remove("now");
    // Both plans in full may be megabytes; `deploy` shows the new one.
    details.remove("reviewed");
    if let (Some(now), Some(held)) = (now, held) {
        let changes = now.pointer("/structuredContent/data/changes");
        let decisive = json!({"data.changes": changes});
        let fresh = Preview::new(held.plan.preview.source, Value::Null, &decisive);
        details.insert("confirm_plan_hash".into(), hash_with(&held.plan, &fresh).hex().into());
        details.insert("expected_confirm_plan_hash".into(), held.plan.hash.hex().into());
    }
    if TOKEN_CODES.iter().any(|code| code.as_str() == error.code) {
        details.insert("next_actions".into(), json!([NextAction::CallDeploy, NextAction::RetryDeployApply]));
        details.insert("hint".into(), TOKEN_HINT.into());
    }
}

/// The hash of a plan, had its preview been this one.
fn hash_with(plan: &Plan, preview: &Preview) -> Digest {
    PlanHashInput {
        principal: &plan.principal,
        session: &plan.session,
        upstream: &plan.tool.upstream,
        tool: &plan.tool.tool,
        fingerprint: plan.fingerprint,
        arguments: &plan.arguments,
        meta: plan.meta.as_ref(),
        preview_digest: preview.digest,
        policy_digest: plan.policy_digest,
        hash_salt: plan.hidden.map(|hidden| hidden.hash_salt),
    }
    .hash()
}

const TOKEN_CODES: [Code; 5] = [
    Code::ConfirmTokenRequired,
    Code::ConfirmTokenMismatch,
    Code::ConfirmTokenUsed,
    Code::ConfirmTokenExpired,
    Code::PlanCancelled,
];

const TOKEN_HINT: &str =
    "call `deploy`, show what it answers, then call `deploy_apply` with its confirm_token and yes=true";

/// The refusal of a token, with what its caller can do.
pub(crate) fn token_refusal(code: Code, message: &str) -> PackError {
    let next = [NextAction::CallDeploy, NextAction::RetryDeployApply];
    Refusal::new(code, message).next(&next).with("hint", TOKEN_HINT).into()
}

/// The refusal of a change nobody said yes to.
pub fn unconfirmed(command: &str) -> PackError {
    let message = format!("`{command}` changes something and needs `yes`");
    Refusal::new(Code::ConfirmRequired, message)
        .next(&[NextAction::RetryWithYes])
        .with("command", command)
        .into()
}
