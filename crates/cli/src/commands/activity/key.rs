//! `countersign activity key`: the public key that checkpoints of this machine are signed with.

use countersign_policy::refusal::{Code, Refusal};
use countersign_store::StoreUrl;
use countersign_store::ledger::{key_path, keys_beside};

use crate::command_result::{Answer, CommandError, CommandResult};
use crate::records;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign activity key > ledger.pem
  countersign activity key --json";

pub(crate) fn run(url: &StoreUrl) -> CommandResult {
    let options = records::reading(url);
    let keys = keys_beside(url, &options).map_err(|fault| records::trouble(&fault, url))?;
    let path = key_path(url, &options).map(|path| path.display().to_string());
    let key = keys.first().ok_or_else(|| {
        let place = path.clone().unwrap_or_else(|| url.to_string());
        let refusal =
            Refusal::new(Code::NotFound, format!("there is no key at `{place}`: nothing was signed yet"));
        CommandError::refused(refusal, "countersign serve, which makes it with the store")
    })?;
    Ok(Answer::text(key.pem())
        .with("fingerprint", key.fingerprint())
        .with("public_key", key.hex())
        .with("pem", key.pem())
        .with("key_file", path))
}
