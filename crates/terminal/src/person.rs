//! The person at this machine: one secret in a file only they can read, known to each store by its digest.
//! Every decision is proved with it. It is never printed, never an argument, never in a child's environment.

pub mod ask;
pub mod diff;
pub mod value;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use countersign_policy::ids::{CredentialId, PrincipalId, Secret};
use countersign_policy::record::{RowKind, RowStatus, Source};
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use countersign_store::{Credential, Entry, Store, StoreUrl, secret_digest};
use jiff::Timestamp;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Value, json};

use crate::command_result::CommandError;
use crate::output::{Format, OutputSettings, WARN, paint};
use crate::{config_file, environment, private_file, records};

const FILE: &str = "human.credential";
const HUMAN: &str = "csg_human_";
const AGENT: &str = "csg_agent_";
/// Random characters of a secret: 32 bytes in base 64.
const LETTERS: usize = 43;

/// A person whose credential the store knows.
#[derive(Debug)]
pub struct Person {
    pub name: PrincipalId,
    pub credential: CredentialId,
    /// What they should know: that a credential was made, or enrolled.
    pub warnings: Vec<String>,
}

/// Proves to the store that the person of this machine is here. Their credential is made on first use; a store without
/// any person takes the first one in.
///
/// INVARIANT (agents never approve): what no agent's line can read, this file, is the only proof taken here.
pub async fn prove(store: &Store, url: &StoreUrl, voice: OutputSettings) -> Result<Person, CommandError> {
    let path = path()?;
    let (secret, made) = read_or_make(&path)?;
    let mut warnings = Vec::new();
    if made == SecretOrigin::Now {
        let path = path.display();
        let notice =
            format!("your credential was made: `{path}`; anyone who can read that file can decide as you");
        match voice.format {
            // Said at once: what follows may be refused.
            Format::Text => voice.tell(&format!("{} {notice}\n", paint(WARN, "warning:"))),
            Format::Json => warnings.push(notice),
        }
    }
    let digest = secret_digest(&secret);
    let now = Timestamp::now();
    let fault = |fault| records::trouble(&fault, url);
    let known = match store.credential(digest).await.map_err(fault)? {
        Some(known) => known,
        None => {
            let fresh = new_credential(&our_name(), Role::Human, now)?;
            if let Err(refused) = admit(store, url, voice, &path, &fresh).await {
                return Err(record_refused(store, refused).await);
            }
            store.add_credential(&fresh, digest, &fresh.name.as_str().into(), now).await.map_err(fault)?;
            fresh
        }
    };
    if !known.is_live(now) || known.role != Role::Human {
        let message =
            format!("the credential in `{}` is revoked, expired or an agent's in `{url}`", path.display());
        let refusal = Refusal::new(Code::CredentialRequired, message).because("credential_invalid");
        return Err(record_refused(store, CommandError::refused(refusal, elsewhere(&path))).await);
    }
    Ok(Person { name: known.name.as_str().into(), credential: known.id, warnings })
}

/// Someone tried to decide and could not prove who they are: that is a row, too.
async fn record_refused(store: &Store, refused: CommandError) -> CommandError {
    let mut entry = Entry::new(RowKind::System, RowStatus::Refused)
        .with_detail(&json!({"action": "prove_person", "entity_type": "credential"}));
    entry.source = Some(Source::Cli);
    entry.code = Some(Code::CredentialRequired.as_str().into());
    // A row that can't be written changes nothing about the no.
    let _ = store.append(entry, Timestamp::now()).await;
    refused
}

/// Whether a secret the store has never seen may come in: the first person of a store may; a later one is asked, so that
/// a lost file locks nobody out of their own store, and nobody slips in unseen.
async fn admit(
    store: &Store,
    url: &StoreUrl,
    voice: OutputSettings,
    path: &Path,
    fresh: &Credential,
) -> Result<(), CommandError> {
    let all = store.credentials().await.map_err(|fault| records::trouble(&fault, url))?;
    let people: Vec<&str> =
        all.iter().filter(|one| one.role == Role::Human).map(|one| one.name.as_str()).collect();
    if people.is_empty() {
        return Ok(());
    }
    let message = format!("`{url}` does not know the credential in `{}`", path.display());
    if ask::can_ask(voice) && matches!(url, StoreUrl::Sqlite(_)) {
        let others = people.join(", ");
        let question =
            format!("{message}; {others} decided there before. Let `{}` decide there, too?", fresh.name);
        if ask::yes(voice, &question) {
            return Ok(());
        }
    }
    let refusal = Refusal::new(Code::CredentialRequired, message).because("credential_invalid");
    Err(CommandError::refused(refusal, elsewhere(path)))
}

fn elsewhere(path: &Path) -> String {
    format!(
        "let someone who decides there run `countersign token create --role human`, and keep what it prints in {}",
        path.display()
    )
}

/// A credential's facts, without its secret.
pub fn new_credential(name: &str, role: Role, now: Timestamp) -> Result<Credential, CommandError> {
    Ok(Credential {
        id: CredentialId::mint(now, chance()?),
        role,
        name: name.to_owned(),
        scopes: json!({}),
        created: now,
        expires: None,
        revoked: None,
    })
}

/// Makes a credential for an agent, keeps its digest in the store and gives its secret.
pub async fn add_agent(
    store: &Store,
    url: &StoreUrl,
    name: &str,
    scopes: Value,
    by: &PrincipalId,
) -> Result<Secret, CommandError> {
    let (now, secret) = (Timestamp::now(), new_secret(Role::Agent)?);
    let credential = Credential { scopes, ..new_credential(name, Role::Agent, now)? };
    let added = store.add_credential(&credential, secret_digest(&secret), by, now).await;
    added.map_err(|fault| records::trouble(&fault, url))?;
    Ok(secret)
}

/// A new secret of a role.
pub fn new_secret(role: Role) -> Result<Secret, CommandError> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bytes = [0; LETTERS];
    fill(&mut bytes)?;
    let letters =
        bytes.iter().filter_map(|byte| ALPHABET.get(usize::from(byte % 64)).map(|b| char::from(*b)));
    let kind = match role {
        Role::Human => HUMAN,
        Role::Agent => AGENT,
    };
    Ok(Secret::new(format!("{kind}{}", letters.collect::<String>())))
}

pub fn chance() -> Result<u128, CommandError> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}

fn fill(bytes: &mut [u8]) -> Result<(), CommandError> {
    SystemRandom::new().fill(bytes).map_err(|_| {
        let refusal = Refusal::new(Code::CredentialRequired, "the system gives no randomness");
        CommandError::refused(refusal, "try again later")
    })
}

/// What the person of this machine is called.
pub fn our_name() -> String {
    let name = environment::variable("USER").or_else(|| environment::variable("USERNAME"));
    name.unwrap_or_else(|| "person".to_owned())
}

fn path() -> Result<PathBuf, CommandError> {
    let folder = environment::config_folder().ok_or_else(|| {
        let refusal =
            Refusal::new(Code::CredentialRequired, "there is no home folder to keep a credential in");
        CommandError::refused(refusal, "set HOME")
    })?;
    Ok(folder.join("countersign").join(FILE))
}

/// Whether the secret was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecretOrigin {
    Before,
    Now,
}

fn read_or_make(path: &Path) -> Result<(Secret, SecretOrigin), CommandError> {
    match read(path) {
        Ok(Some(secret)) => return Ok((secret, SecretOrigin::Before)),
        Ok(None) => {}
        Err(why) => return Err(unusable(path, &why)),
    }
    let secret = new_secret(Role::Human)?;
    match keep(path, &secret) {
        Ok(()) => Ok((secret, SecretOrigin::Now)),
        // Another process was faster: theirs counts.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match read(path) {
            Ok(Some(secret)) => Ok((secret, SecretOrigin::Before)),
            Ok(None) => Err(unusable(path, "it came and went")),
            Err(why) => Err(unusable(path, &why)),
        },
        Err(error) => Err(unusable(path, &config_file::why(&error))),
    }
}

fn unusable(path: &Path, why: &str) -> CommandError {
    let message = format!("the credential in `{}` can't be used: {why}", path.display());
    let refusal = Refusal::new(Code::CredentialRequired, message);
    CommandError::refused(refusal, format!("mend {}, or move it away and decide again", path.display()))
}

/// The secret of the file; none where there is no file.
fn read(path: &Path) -> Result<Option<Secret>, String> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(config_file::why(&error)),
    };
    if !meta.is_file() {
        return Err("it is no plain file".to_owned());
    }
    refuse_shared(path, &meta)?;
    let text = config_file::read_text(path, 4096)?;
    let text = text.trim_ascii();
    let letters = text.strip_prefix(HUMAN).unwrap_or_default();
    let url_safe = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if letters.len() != LETTERS || !letters.bytes().all(url_safe) {
        return Err("it holds no human credential".to_owned());
    }
    Ok(Some(Secret::new(text)))
}

/// A file that others can read proves nothing, nor does one in a folder where others can replace it.
#[cfg(unix)]
fn refuse_shared(path: &Path, meta: &fs::Metadata) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;
    if meta.permissions().mode() & 0o077 != 0 {
        return Err("others can read it: chmod 600".to_owned());
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let mode = fs::metadata(folder).map_err(|error| config_file::why(&error))?.permissions().mode();
    if mode & 0o022 != 0 {
        return Err("others can write to its folder: chmod 700".to_owned());
    }
    Ok(())
}

#[cfg(not(unix))]
fn refuse_shared(_: &Path, _: &fs::Metadata) -> Result<(), String> {
    Ok(())
}

/// Writes the whole file aside and then gives it its name, which fails where there is one: nobody ever reads half a secret.
fn keep(path: &Path, secret: &Secret) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    private_file::make_folder(folder)?;
    let aside = folder.join(format!(".{FILE}.{}", std::process::id()));
    let written = private_file::write(&aside, format!("{}\n", secret.expose()).as_bytes())
        .and_then(|()| fs::hard_link(&aside, path));
    let removed = fs::remove_file(&aside);
    written.and(removed)
}
