//! `countersign plans resume`: a person lets a paused principal's writes go on.

use clap::Args;
use countersign_core::ids::PrincipalId;
use countersign_core::refusal::{Code, Refusal};
use countersign_store::StoreUrl;
use jiff::Timestamp;

use crate::answer::{Answer, Outcome, Trouble};
use crate::output::{GOOD, Voice, paint, visible};
use crate::{person, records};

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign plans resume local-agent";

/// What `plans resume` takes.
#[derive(Args, Debug)]
pub(crate) struct Resume {
    /// Whose writes, as `plans list` names them
    principal: String,
}

/// Resumes them.
pub(crate) fn run(args: &Resume, url: &StoreUrl, voice: Voice) -> Outcome {
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
            return Err(Trouble::refused(Refusal::new(Code::NotFound, message), "countersign plans list"));
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
