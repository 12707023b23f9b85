//! `countersign plans resume`: a person lets a paused principal's writes go on.

use clap::Args;
use countersign_policy::ids::PrincipalId;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::StoreUrl;
use jiff::Timestamp;

use crate::command_result::{Answer, CommandError, CommandResult};
use crate::output::{GOOD, OutputSettings, paint, visible};
use crate::{person, records};

pub(crate) const EXAMPLES: &str = "Examples:
  countersign plans resume local-agent";

#[derive(Args, Debug)]
pub(crate) struct PlansResumeArgs {
    /// Whose writes, as `plans list` names them
    principal: String,
}

pub(crate) fn run(args: &PlansResumeArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    records::with(url, async |store| {
        let fault = |fault| records::trouble(&fault, url);
        let person = person::prove(&store, url, voice).await?;
        let principal = PrincipalId::new(args.principal.trim());
        let Some(ledger_id) =
            store.resume(&principal, &person.name, Timestamp::now()).await.map_err(fault)?
        else {
            let paused = store.all_paused().await.map_err(fault)?;
            let names: Vec<String> =
                paused.iter().map(|(who, _)| format!("`{}`", visible(who.as_str()))).collect();
            let others = if names.is_empty() {
                "nobody's are".to_owned()
            } else {
                format!("those of {} are", names.join(", "))
            };
            let message = format!("writes of `{}` are not paused; {others}", visible(&args.principal));
            return Err(CommandError::refused(
                Refusal::new(Code::NotFound, message),
                "countersign plans list",
            ));
        };
        let text = format!("{} writes of {}\n", paint(GOOD, "resumed"), visible(principal.as_str()));
        let mut answer = Answer::text(text)
            .with("principal", principal.as_str())
            .with("by", person.name.as_str())
            .with("ledger_id", ledger_id.as_str());
        answer.warnings = person.warnings;
        Ok(answer)
    })
}
