//! The pack as a native upstream of the gateway: the tools as published, confirmed and recorded by the gateway. Without a permit a
//! tool that changes something only shows what it would change. Asks for no second agreement and keeps no ledger of its own.

mod preview;

use countersign_gateway::upstreams::UpstreamFault;
use countersign_gateway::upstreams::native::{NativeCall, NativeServer};
use countersign_mcp::client::BoxFuture;
use countersign_mcp::fault::DeliveryState;
use countersign_mcp::jsonrpc::RpcError;
use countersign_policy::call::Arguments;
use countersign_policy::digest::Digest;
use countersign_policy::envelope::Envelope;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{RecordedPermit, Store};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub(crate) use preview::ChangePreview;

use crate::apply::ApplyRecovery;
use crate::audit_row;
use crate::deploy::ConfirmedPlan;
use crate::error::{PackError, PackResult};
use crate::evolve;
use crate::lock::{self, DeployLock};
use crate::overlay::OverlayLayer;
use crate::place::PackEnvironment;
use crate::plan::AdoptPolicy;
use crate::reply::{PackCommandReply, envelope};
use crate::rollback as back;
use crate::server::token_refusal;
use crate::survey::DeploymentSurvey;
use crate::system::RealFileSystem;
use crate::tools::{self, ToolArguments, blocking, changes, command_name, planned, run_read, take_survey};
use crate::views::{self, ProposeRequest};

/// How long the token of `deploy` names the plan that was looked at, in seconds.
const LOOKED_AT: i64 = 600;

/// Who gives out the tokens of `deploy`, and checks what comes with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenIssuer {
    /// `deploy` itself: its token only names the plan that was looked at, and a person agrees in the gateway.
    Deploy,
    /// The pack's own server: its token is the gateway's.
    Server,
}

/// The tools, behind a gateway that governs them.
#[derive(Clone)]
pub struct PackUpstream {
    place: PackEnvironment,
    store: Store,
    issuer: TokenIssuer,
}

impl NativeServer for PackUpstream {
    fn tools(&self) -> Vec<Value> {
        tools::definitions().into_iter().map(Value::Object).collect()
    }

    /// Fills in what the gateway itself asks for: a caller need not say `yes` to the pack as well.
    fn filled(&self, tool: &str, arguments: Arguments) -> Arguments {
        let fill = |arguments: Arguments, name: &str, value: Value| {
            if arguments.value().get(name).is_none() { arguments.with(name, value) } else { arguments }
        };
        match tool {
            "deploy_apply" => {
                fill(fill(arguments, "yes", Value::Bool(true)), "confirm_token", Value::String(String::new()))
            }
            "rollback" | "evolve_propose" | "evolve_restore" => fill(arguments, "yes", Value::Bool(true)),
            _ => arguments,
        }
    }

    fn call<'a>(&'a self, call: NativeCall<'a>) -> BoxFuture<'a, Result<Value, UpstreamFault>> {
        let read = serde_json::from_str::<Map<String, Value>>(call.arguments);
        Box::pin(async move {
            let members = read.map_err(|error| UpstreamFault::Unavailable {
                why: error.to_string(),
                sent: DeliveryState::No,
            })?;
            let Some(name) = command_name(call.tool, &members) else {
                let message = format!("unknown tool: {}", call.tool);
                return Err(UpstreamFault::Rpc(RpcError::invalid_params(&message)));
            };
            let (outcome, texts) = match call.permitted {
                None => self.preview(call.tool, &members).await,
                Some(permitted) => (self.act(call.tool, &members, permitted).await, Vec::new()),
            };
            let outcome = match (outcome, call.permitted) {
                (Ok(reply), Some(permitted)) if changes(call.tool) => {
                    Ok(audit_row::note(&self.store, permitted.permit().record(), reply).await)
                }
                (outcome, _) => outcome,
            };
            Ok(result(&envelope(name, outcome), texts))
        })
    }

    fn server_info(&self) -> Value {
        json!({"name": "agentpack", "title": "Agent assets", "version": env!("CARGO_PKG_VERSION")})
    }
}

/// A result as `tools/call` has it. A person who decides reads the list and the difference; a program reads the envelope.
pub(crate) fn result(envelope: &Envelope, texts: Vec<String>) -> Value {
    let value = envelope.to_value();
    let content: Vec<Value> = if texts.is_empty() {
        vec![json!({"type": "text", "text": format!("{value:#}")})]
    } else {
        let for_people = |text| json!({"type": "text", "text": text, "annotations": {"audience": ["user"]}});
        texts.into_iter().map(for_people).collect()
    };
    json!({"content": content, "structuredContent": value, "isError": !envelope.ok})
}

impl PackUpstream {
    pub fn new(place: PackEnvironment, store: Store, issuer: TokenIssuer) -> Self {
        Self { place, store, issuer }
    }

    /// What a call would do, and the same for a person.
    async fn preview(
        &self,
        tool: &str,
        members: &Map<String, Value>,
    ) -> (PackResult<PackCommandReply>, Vec<String>) {
        match self.show(tool, members).await {
            Err(stop) => (Err(stop), Vec::new()),
            // The server answers with the dry run itself, differences included; nobody reads its texts.
            Ok(shown) if self.issuer == TokenIssuer::Server => (Ok(shown.reply), Vec::new()),
            Ok(shown) => {
                let texts = shown.texts();
                let mut reply = shown.reply;
                // The difference is in the texts; once is enough.
                reply.data.remove("files");
                (Ok(reply), texts)
            }
        }
    }

    async fn show(&self, tool: &str, members: &Map<String, Value>) -> PackResult<ChangePreview> {
        let given = ToolArguments::read(tool, members, &self.place)?;
        let (tool, issuer) = (tool.to_owned(), self.issuer);
        blocking(move || match tool.as_str() {
            "deploy" | "deploy_apply" => {
                let survey = take_survey(&given)?;
                if given.has("confirm_token") && issuer == TokenIssuer::Deploy {
                    // Before anybody is asked: what can't be applied is not shown for agreement.
                    check_token(&given, &survey, Timestamp::now())?;
                    survey.plan.check_adopt(adopt(&given))?;
                }
                ChangePreview::deployment(&survey, &RealFileSystem)
            }
            "rollback" => {
                let to = given.text("to").unwrap_or_default();
                ChangePreview::rollback_preview(
                    &back::plan(&given.place, to, &RealFileSystem)?,
                    &RealFileSystem,
                )
            }
            "evolve_propose" => {
                let (survey, request) = (take_survey(&given)?, request(&given));
                let module = request.module_id.as_deref();
                let found =
                    evolve::survey_proposal(&given.place, &survey, module, request.layer, &RealFileSystem)?;
                ChangePreview::proposal(&survey, &found, &RealFileSystem)
            }
            "evolve_restore" => {
                let survey = take_survey(&given)?;
                let missing = evolve::missing(&survey, given.text("module_id"));
                ChangePreview::restoration(&survey, &missing, given.text("module_id"), &RealFileSystem)
            }
            read => run_read(read, &given).map(ChangePreview::plain),
        })
        .await
    }

    async fn act(
        &self,
        tool: &str,
        members: &Map<String, Value>,
        opened: &RecordedPermit,
    ) -> PackResult<PackCommandReply> {
        let given = ToolArguments::read(tool, members, &self.place)?;
        match tool {
            "deploy" => {
                let issuer = self.issuer;
                blocking(move || deploy(&given, issuer)).await
            }
            "deploy_apply" => self.deploy_apply(given, opened).await,
            "rollback" => self.rollback(given, opened).await,
            "evolve_propose" if given.says("dry_run") => {
                self.show(tool, members).await.map(|shown| shown.reply)
            }
            "evolve_restore" if given.says("dry_run") => {
                self.show(tool, members).await.map(|shown| shown.reply)
            }
            "evolve_propose" => {
                locked(given, |given| {
                    views::propose(&given.place, &given.selection, &request(given), &RealFileSystem)
                })
                .await
            }
            "evolve_restore" => {
                locked(given, |given| {
                    let survey = take_survey(given)?;
                    let module_id = given.text("module_id");
                    let missing = evolve::missing(&survey, module_id);
                    evolve::restore(&survey, &missing, module_id, &RealFileSystem)
                })
                .await
            }
            read => {
                let read = read.to_owned();
                blocking(move || {
                    let tended = lock::recover_if_stale(&given.place)?;
                    Ok(run_read(&read, &given)?.warn(recovery_messages(tended.as_ref())))
                })
                .await
            }
        }
    }

    async fn deploy_apply(
        &self,
        given: ToolArguments,
        opened: &RecordedPermit,
    ) -> PackResult<PackCommandReply> {
        if given.says("dry_run") {
            return blocking(move || Ok(PackCommandReply::new(planned(&take_survey(&given)?)))).await;
        }
        let reviewed = self.reviewed(opened, "changes").await?;
        let (given, (lock, recovered), survey) = blocking(move || {
            let locked = lock::acquire(&given.place)?;
            let survey = take_survey(&given)?;
            Ok((given, locked, survey))
        })
        .await?;
        same(reviewed.as_ref(), &survey.plan.changes_value())?;
        // The server asked before it spent the token, and `adopt` is no part of what the token is bound to.
        if self.issuer == TokenIssuer::Deploy {
            survey.plan.check_adopt(adopt(&given))?;
        }
        let confirmed = ConfirmedPlan::by(opened, survey);
        blocking(move || {
            let reply = views::applied(&confirmed, &given.place, &RealFileSystem);
            drop::<DeployLock>(lock);
            Ok(reply?.warn(recovery_messages(recovered.as_ref())))
        })
        .await
    }

    async fn rollback(&self, given: ToolArguments, opened: &RecordedPermit) -> PackResult<PackCommandReply> {
        let reviewed = self.reviewed(opened, "changes").await?;
        locked(given, move |given| {
            let to = given.text("to").unwrap_or_default();
            let plan = back::plan(&given.place, to, &RealFileSystem)?;
            let changes: Vec<Value> = plan.changes().iter().map(back::RollbackChange::to_value).collect();
            same(reviewed.as_ref(), &Value::Array(changes))?;
            views::rollback_answer(&plan, &given.place, &RealFileSystem)
        })
        .await
    }

    /// What was shown to the person who agreed; none where no preview of ours was.
    async fn reviewed(&self, opened: &RecordedPermit, part: &str) -> PackResult<Option<Value>> {
        let Some(id) = opened.plan_id() else { return Ok(None) };
        let row = self.store.plan(id).await.map_err(|fault| PackError::from(fault.refusal()))?;
        let Some(row) = row else { return Ok(None) };
        let permit = opened.permit();
        let of_step = row.plan.steps.iter().find(|step| {
            step.tool.tool == permit.tool().name && step.arguments.canonical() == permit.arguments()
        });
        let preview = of_step.map_or(&row.plan.preview, |step| &step.preview);
        Ok(preview.shown.pointer(&format!("/structuredContent/data/{part}")).cloned())
    }
}

/// Something that changes, with the right to change and after what a crash left behind.
async fn locked(
    given: ToolArguments,
    work: impl FnOnce(&ToolArguments) -> PackResult<PackCommandReply> + Send + 'static,
) -> PackResult<PackCommandReply> {
    blocking(move || {
        let (_lock, recovered) = lock::acquire(&given.place)?;
        Ok(work(&given)?.warn(recovery_messages(recovered.as_ref())))
    })
    .await
}

fn recovery_messages(recovered: Option<&ApplyRecovery>) -> Vec<String> {
    recovered.iter().map(|recovery| recovery.message()).collect()
}

fn adopt(given: &ToolArguments) -> AdoptPolicy {
    if given.says("adopt") { AdoptPolicy::Agreed } else { AdoptPolicy::Refused }
}

fn request(given: &ToolArguments) -> ProposeRequest {
    ProposeRequest {
        module_id: given.text("module_id").map(str::to_owned),
        layer: given.text("scope").and_then(|scope| scope.parse().ok()).unwrap_or(OverlayLayer::Global),
        branch: given.text("branch").map(str::to_owned),
    }
}

/// Refuses where the plan is not the one that was shown: the gateway compared before it let the call out, and this is under the lock.
fn same(reviewed: Option<&Value>, now: &Value) -> PackResult<()> {
    if reviewed.is_none_or(|reviewed| reviewed == now) {
        return Ok(());
    }
    let message = "what would change is not what was shown any more; nothing was written";
    Err(Refusal::new(Code::ApplyDrifted, message).into())
}

/// `deploy` as it is published: the plan, and behind a gateway a token that names it. That token says which plan was looked at and
/// agrees to nothing, so nothing has to be stored for it.
fn deploy(given: &ToolArguments, issuer: TokenIssuer) -> PackResult<PackCommandReply> {
    let tended = lock::recover_if_stale(&given.place)?;
    let survey = take_survey(given)?;
    let shown = ChangePreview::deployment(&survey, &RealFileSystem)?;
    if given.has("confirm_token") || issuer == TokenIssuer::Server {
        return Ok(shown.reply.warn(recovery_messages(tended.as_ref())));
    }
    let expires = Timestamp::now().as_second() + LOOKED_AT;
    let hash = plan_hash(given, &survey)?;
    let until = Timestamp::from_second(expires).unwrap_or(Timestamp::MAX);
    Ok(shown
        .reply
        .with("confirm_token", token(hash, expires))
        .with("confirm_plan_hash", hash.hex())
        .with("confirm_token_expires_at", until.to_string())
        .warn(recovery_messages(tended.as_ref())))
}

/// What names a plan: the resolved parameters and every change.
fn plan_hash(given: &ToolArguments, survey: &DeploymentSurvey) -> PackResult<Digest> {
    let bound: Arguments = given.bound()?;
    let text = json!({"bound": bound.canonical(), "changes": survey.plan.changes_value()}).to_string();
    Ok(Digest::plain(text.as_bytes()))
}

fn token(hash: Digest, expires: i64) -> String {
    let named: String =
        Digest::plain(format!("{expires} {hash}").as_bytes()).hex().chars().take(48).collect();
    format!("{expires:016x}{named}")
}

/// A token of `deploy` that was brought along must name this plan; none at all is the gateway's business alone.
fn check_token(given: &ToolArguments, survey: &DeploymentSurvey, now: Timestamp) -> PackResult<()> {
    let Some(confirm_input) = given.text("confirm_token").filter(|token| !token.is_empty()) else {
        return Ok(());
    };
    let refuse = |code, message: &str| Err(token_refusal(code, message));
    let expires = confirm_input.get(..16).and_then(|hex| i64::from_str_radix(hex, 16).ok());
    let fits = match expires {
        Some(expires) => token(plan_hash(given, survey)?, expires) == confirm_input,
        None => false,
    };
    match expires {
        Some(expires) if fits && expires > now.as_second() => Ok(()),
        Some(_) if fits => refuse(Code::ConfirmTokenExpired, "the token of `deploy` is too old; look again"),
        Some(_) | None => refuse(
            Code::ConfirmTokenMismatch,
            "the token is not that of this plan; call `deploy` and look again",
        ),
    }
}
