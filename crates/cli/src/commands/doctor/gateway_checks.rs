//! Checks the gateway: configuration, store, clock, port, page, and every upstream with its tools.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use countersign_config::{AgentAuth, Config};
use countersign_gateway::catalog::ToolStanding;
use countersign_gateway::state::GatewayState;
use countersign_gateway::upstreams::Condition;
use countersign_policy::confirm::ApprovalStrength;
use countersign_store::StoreUrl;
use countersign_store::ledger::{self, LedgerFilter};

use super::DoctorArgs;
use super::check::{Check, State, one_line, own_command};
use crate::cli::Cli;
use crate::config_file;
use crate::local_gateway::ResolvedConfig;
use crate::output::{OutputSettings, plural, shell_word};
use crate::records;

/// How long a connection to ourselves may take.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn check_gateway(args: &DoctorArgs, cli: &Cli, voice: OutputSettings, checks: &mut Vec<Check>) {
    let blueprint = match ResolvedConfig::read(cli) {
        Ok(blueprint) => blueprint,
        Err(trouble) => {
            let check = Check::new("configuration", State::Bad, one_line(&trouble));
            checks.push(check.fix(own_command(cli, "policy check")));
            return;
        }
    };
    let names = blueprint.files.names().join(", ");
    let file = blueprint.files.names().first().map(PathBuf::from).unwrap_or_default();
    checks.push(Check::new("configuration", State::Good, format!("{names} can be used")));
    let found = countersign_config::lint(&blueprint.config);
    if !found.is_empty() {
        let message = format!("{} about the rules", crate::output::counts(&found));
        let fix = own_command(cli, "policy check");
        checks.push(Check::new("configuration", State::Look, message).fix(fix));
    }
    let strengths = blueprint.config.confirm.strengths;
    if [strengths.write, strengths.destructive].contains(&Some(ApprovalStrength::Caller)) {
        let message = "`confirm.strength` lets an agent's own token run changes: no person has to agree";
        let check = Check::new("configuration", State::Look, message);
        checks.push(check.edit(&file, "remove `strength` from [confirm], or write \"host\" or \"human\""));
    }
    records(&blueprint.url, cli, checks);
    listening(&blueprint.config, &file, checks);
    if blueprint.config.gateway.agent_auth == AgentAuth::LoopbackOpen {
        let message = "agent_auth = \"loopback-open\": every program on this machine may call as an agent";
        let check = Check::new("configuration", State::Look, message);
        checks.push(check.edit(
            &file,
            "remove it from [gateway]; then: countersign token create --role agent --may-vouch",
        ));
    }
    if blueprint.config.upstreams.is_empty() {
        let check = Check::new("upstreams", State::Look, "the configuration has no upstream");
        checks.push(check.fix(own_command(cli, "init")));
    } else if !args.no_start {
        let seen = blueprint.with_gateway(voice, async |gateway| Ok(upstreams(&gateway, cli)));
        match seen {
            Ok(mut seen) => checks.append(&mut seen),
            Err(trouble) => checks.push(
                Check::new("upstreams", State::Bad, one_line(&trouble)).fix(own_command(cli, "policy check")),
            ),
        }
    }
}

/// How a clock is set right.
const SET_CLOCK: &str = if cfg!(target_os = "macos") {
    "sudo sntp -sS time.apple.com  # plans can't expire rightly"
} else {
    "sudo timedatectl set-ntp true  # plans can't expire rightly"
};

fn records(url: &StoreUrl, cli: &Cli, checks: &mut Vec<Check>) {
    const AREA: &str = "records";
    if records::require(url).is_err() {
        let message = format!("there are no records yet: {url} is made when first needed");
        checks.push(Check::new(AREA, State::Good, message));
        return;
    }
    let looked = records::with(url, async |store| {
        let trouble = |fault| records::trouble(&fault, url);
        let report = ledger::verify(&store, None).await.map_err(trouble)?;
        let newest = store
            .activity(LedgerFilter { limit: Some(1), ..LedgerFilter::default() })
            .await
            .map_err(trouble)?;
        Ok((report, newest.rows.into_iter().next().map(|row| row.time)))
    });
    let (report, newest) = match looked {
        Ok(looked) => looked,
        Err(trouble) => {
            let fix = own_command(cli, "activity verify");
            checks.push(Check::new(AREA, State::Bad, one_line(&trouble)).fix(fix));
            return;
        }
    };
    match &report.first_bad {
        None => {
            let rows = usize::try_from(report.rows).unwrap_or(usize::MAX);
            let stands = if rows == 1 { "is as it was" } else { "are as they were" };
            let message = format!("{} of the ledger {stands} written", plural(rows, "row"));
            checks.push(Check::new(AREA, State::Good, message));
        }
        Some(bad) => {
            let message = format!("the ledger was changed: row {} of writer {}", bad.sequence, bad.writer);
            checks.push(Check::new(AREA, State::Bad, message).fix(own_command(cli, "activity verify")));
        }
    }
    let now = jiff::Timestamp::now();
    match newest {
        Some(newest) if newest > now => {
            let message = format!("the clock is behind the ledger: now {now}, last row {newest}");
            checks.push(Check::new("clock", State::Bad, message).fix(SET_CLOCK));
        }
        Some(_) | None => checks.push(Check::new("clock", State::Good, "the clock is ahead of every row")),
    }
}

/// The gateway and the page people decide on, each where it should be.
fn listening(config: &Config, file: &Path, checks: &mut Vec<Check>) {
    let scheme = |tls: bool| if tls { "https" } else { "http" };
    let (gateway, desk) = (&config.gateway, &config.desk);
    let ours = ListenerProbe { address: gateway.listen, scheme: scheme(gateway.tls.is_some()), file };
    let is_there = ours.probe("/readyz", "gateway", checks);
    match desk.listen {
        Some(address) => {
            let tls = desk.tls.is_some() || gateway.tls.is_some();
            ListenerProbe { address, scheme: scheme(tls), file }.probe("/", "desk", checks);
        }
        None if is_there => {
            ours.probe("/", "page", checks);
        }
        None => {}
    }
}

/// An address that should be free, or answered by us.
struct ListenerProbe<'a> {
    address: SocketAddr,
    scheme: &'static str,
    /// Where the address is written.
    file: &'a Path,
}

impl ListenerProbe<'_> {
    /// Says what is there; true where it is us, as far as that can be told.
    fn probe(&self, path: &str, what: &'static str, checks: &mut Vec<Check>) -> bool {
        const AREA: &str = "listening";
        // Whatever listens everywhere listens here as well.
        let loopback = match self.address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        let ip = self.address.ip();
        let here = if ip.is_unspecified() { loopback } else { ip };
        let here = SocketAddr::new(here, self.address.port());
        let url = format!("{}://{here}{path}", self.scheme);
        let mut say = |state, message: String, fix: Option<&str>| {
            let check = Check::new(AREA, state, message);
            checks.push(match fix {
                Some(what) => check.edit(self.file, what),
                None => check,
            });
        };
        if self.scheme == "https" {
            // Who answers there would have to be asked in TLS, with a certificate that may be nobody's but ours.
            if TcpStream::connect_timeout(&here, PATIENCE).is_ok() {
                say(State::Good, format!("somebody listens at {url}, where the {what} should"), None);
                return false;
            }
        }
        match ask(here, path) {
            Some(200) => {
                say(State::Good, format!("the {what} answers at {url}"), None);
                return true;
            }
            Some(status) => {
                let message = format!("{url} answers {status}: it may be another program");
                say(State::Bad, message, Some("stop that program, or write another `listen`"));
            }
            None => match TcpListener::bind(self.address) {
                Ok(_) => {
                    let message = format!("{} is free: the {what} does not listen there now", self.address);
                    say(State::Good, message, None);
                }
                Err(error) => {
                    let why = config_file::why(&error);
                    let message = format!("{} can't be listened on: {why}", self.address);
                    say(State::Bad, message, Some("write another `listen`"));
                }
            },
        }
        false
    }
}

/// The status of a plain request; none where nobody answers.
fn ask(address: SocketAddr, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut head = [0_u8; 64];
    let count = stream.read(&mut head).ok()?;
    let text = String::from_utf8_lossy(head.get(..count)?).into_owned();
    text.strip_prefix("HTTP/1.1 ")?.split(' ').next()?.parse().ok()
}

fn upstreams(gateway: &GatewayState, cli: &Cli) -> Vec<Check> {
    const AREA: &str = "upstreams";
    let mut checks = Vec::new();
    let catalog = gateway.catalog.load();
    for (id, upstream) in gateway.upstreams.load().iter() {
        match upstream.health().condition {
            Condition::Down(why) => {
                let check = Check::new(AREA, State::Bad, format!("`{id}` does not answer: {why}"));
                checks.push(check.fix(own_command(cli, &format!("upstreams test {id}"))));
                continue;
            }
            Condition::Starting => {
                let check = Check::new(AREA, State::Bad, format!("`{id}` has not answered in time"));
                checks.push(check.fix(own_command(cli, &format!("upstreams test {id}"))));
                continue;
            }
            Condition::Idle | Condition::Up => {}
        }
        let tools: Vec<_> = catalog.tools().filter(|listed| listed.tool.upstream == *id).collect();
        checks.push(Check::new(
            AREA,
            State::Good,
            format!("`{id}` answers with {}", plural(tools.len(), "tool")),
        ));
        let bare = tools.iter().filter(|listed| {
            let hints = listed.tool.definition.get("annotations");
            let has = |name: &str| hints.is_some_and(|hints| hints.get(name).is_some());
            !has("readOnlyHint") && !has("destructiveHint")
        });
        let bare: Vec<String> = bare.map(|listed| listed.tool.name.to_string()).collect();
        if !bare.is_empty() {
            let some: Vec<&str> = bare.iter().take(5).map(String::as_str).collect();
            let more = if bare.len() > some.len() { ", …" } else { "" };
            let message = format!(
                "`{id}`: {} without annotations, governed as write or destructive: {}{more}",
                plural(bare.len(), "tool"),
                some.join(", ")
            );
            let fix = own_command(cli, &format!("tools classify --upstream {id}"));
            checks.push(Check::new(AREA, State::Look, message).fix(fix));
        }
        for listed in tools.iter().filter(|listed| matches!(listed.standing, ToolStanding::Changed(_))) {
            let name = listed.tool.full_name();
            let check = Check::new(AREA, State::Bad, format!("`{name}` is not the tool that was accepted"));
            let name = shell_word(&name.to_string());
            checks.push(check.fix(own_command(cli, &format!("tools diff {name}"))));
        }
        let waiting =
            tools.iter().filter(|listed| matches!(listed.standing, ToolStanding::Quarantined(_))).count();
        if waiting > 0 {
            let message = format!("`{id}`: {} withheld until accepted by a person", plural(waiting, "tool"));
            checks
                .push(Check::new(AREA, State::Look, message).fix(own_command(cli, "tools list --withheld")));
        }
    }
    checks
}
