//! What a person reads of a plan before deciding and after it was carried out, and what programs get. Shows; changes nothing.

use std::collections::BTreeMap;

use countersign_host_config::{
    Host, HostEnvironment, HostFile, HostFileError, HostFileScope, OfferedTools, RiskySetting, SettingRisk,
    risky_settings,
};
use countersign_policy::effect::Effect;
use countersign_policy::ids::Secret;
use serde_json::{Value, json};

use super::http::HttpHosts;
use super::rules::HostRuleOffer;
use super::secrets::{is_secret_name, is_secret_value};
use super::service::ServiceRunner;
use super::{InitPlan, tools};
use crate::command_result::Answer;
use crate::commands::tools::classify;
use crate::output::{BOLD, DIM, WARN, paint, plural, shell_word, visible};
use crate::person::diff;

impl InitPlan<'_> {
    /// What was found, and what becomes of it.
    pub(super) fn found(&self, needs: &BTreeMap<String, tools::ToolRequirements>) -> String {
        let mut text = String::new();
        if !self.import.upstreams.is_empty() {
            text.push_str(&tools::table(&self.import.upstreams, needs, self.voice.width()));
            text.push_str(&tools::reasons(needs));
            text.push('\n');
        }
        for one in &self.import.upstreams {
            let Some(preset) = &one.preset else { continue };
            let line = format!(
                "`{}`: {} of ours for {}",
                one.id,
                plural(preset.rule_count(), "rule"),
                preset.packages().join(" or ")
            );
            text.push_str(&format!("{}\n", paint(DIM, line)));
        }
        for limited in &self.import.limited {
            let (host, id) = (limited.host.title, &limited.id);
            let names = |names: &[String]| match names {
                [] => "no tool".to_owned(),
                names => names.iter().map(|name| visible(name)).collect::<Vec<_>>().join(", "),
            };
            if let Some(only) = &limited.offers.only {
                let line = format!("{host}: offers only {} of `{id}`: a rule denies the rest\n", names(only));
                text.push_str(&paint(WARN, line));
            }
            if !limited.offers.without.is_empty() {
                let off = names(&limited.offers.without);
                text.push_str(&paint(
                    WARN,
                    format!("{host}: offers all of `{id}` but {off}: a rule denies that\n"),
                ));
            }
        }
        for left in &self.import.left {
            let line = format!("{}: `{}` stays there: {}", left.host.title, visible(&left.name), left.why);
            text.push_str(&format!("{}\n", paint(WARN, line)));
        }
        text
    }

    pub(super) fn shown(&self) -> String {
        let mut text = String::new();
        for (place, why) in &self.survey.broken {
            let line =
                format!("{}:{}: {}; the file is left alone", place.path.display(), why.line, why.reason);
            text.push_str(&format!("{}\n", paint(WARN, line)));
        }
        for note in &self.notes {
            text.push_str(&format!("{}\n", paint(DIM, note)));
        }
        if self.survey.before.is_none() && !self.asks {
            for line in self.setup.lines() {
                text.push_str(&format!("{}\n", paint(DIM, line)));
            }
        }
        let secrets = self.import.secrets().count();
        if secrets > 0 {
            let line =
                format!("{} will be kept in the keyring, readable by you alone", plural(secrets, "secret"));
            text.push_str(&format!("{}\n", paint(BOLD, line)));
        }
        for change in &self.changes {
            let path = change.path.display().to_string();
            // A difference would show in clear what is about to be kept apart.
            let before = self.masked(change.before.as_deref().unwrap_or_default());
            let after = self.masked(&change.after);
            text.push_str(&format!("{}\n", diff::unified((&path, &before), (&path, &after))));
        }
        text
    }

    /// A text without what is kept apart, nor any other secret of a host's file: those stay where they are, unseen.
    fn masked(&self, text: &str) -> String {
        let made = self.http.iter().flat_map(HttpHosts::secrets);
        let secrets = self.import.secrets().map(|(_, secret)| secret).chain(made).map(Secret::expose);
        let secrets = secrets.filter(|secret| secret.len() >= 4);
        let text = secrets.fold(text.to_owned(), |text, secret| {
            let escaped = serde_json::to_string(secret).unwrap_or_default();
            text.replace(secret, "***").replace(escaped.trim_matches('"'), "***")
        });
        without_secrets(&text)
    }

    pub(super) fn answer(&self, needs: &BTreeMap<String, tools::ToolRequirements>) -> Answer {
        let upstreams: Vec<Value> = self
            .import
            .upstreams
            .iter()
            .map(|one| {
                let from: Vec<Value> = one
                    .from
                    .iter()
                    .map(|(host, scope)| json!({"host": host.name, "scope": scope.name()}))
                    .collect();
                json!({
                    "name": one.id, "from": from, "new": one.table.is_some(), "shared": self.args.share,
                    "preset": one.preset.as_ref().map(|preset| &preset.name),
                    "tools": needs.get(&one.id).map(tools::ToolRequirements::value),
                })
            })
            .collect();
        let files: Vec<Value> = self
            .changes
            .iter()
            .map(|change| {
                let path = change.path.display().to_string();
                let before = self.masked(change.before.as_deref().unwrap_or_default());
                let patch = diffy::create_patch(&before, &self.masked(&change.after)).to_string();
                json!({"path": path, "new": change.before.is_none(), "diff": patch})
            })
            .collect();
        let left: Vec<Value> = self
            .import
            .left
            .iter()
            .map(|left| json!({"host": left.host.name, "name": left.name, "why": left.why}))
            .collect();
        let limited: Vec<Value> = self
            .import
            .limited
            .iter()
            .map(|one| {
                let OfferedTools { only, without } = &one.offers;
                json!({"name": one.id, "host": one.host.name, "only": only, "without": without})
            })
            .collect();
        let broken: Vec<Value> = self
            .survey
            .broken
            .iter()
            .map(|(place, why)| json!({"path": place.path, "line": why.line, "why": why.reason}))
            .collect();
        let next: Vec<Value> = self
            .pointed
            .iter()
            .map(|(host, scope)| {
                json!({"host": host.name, "scope": scope.name(), "do": host.next_steps.step(*scope)})
            })
            .collect();
        let mut answer = Answer::default()
            .with("config", self.survey.config.display().to_string())
            .with("profile", self.setup.profile.as_str())
            .with("mode", self.setup.mode.as_str())
            .with("service", self.setup.service.map(ServiceRunner::name))
            .with("upstreams", upstreams)
            .with("files", files)
            .with("left", left)
            .with("limited", limited)
            .with("broken", broken)
            .with("notes", self.notes.clone())
            .with("proposals", classify::described(&self.proposals))
            .with("accepted", self.accepted.iter().map(classify::name).collect::<Vec<_>>())
            .with("next_steps", next)
            .with("credentials", self.http.as_ref().map(HttpHosts::described).unwrap_or_default())
            .with("secrets", self.import.secrets().map(|(name, _)| name.clone()).collect::<Vec<_>>());
        let named = |(place, why): &(HostFile, HostFileError)| {
            format!("`{}` line {}: {}; it was left alone", place.path.display(), why.line, why.reason)
        };
        answer.warnings.extend(self.survey.broken.iter().map(named));
        answer.warnings.extend(self.shut.iter().cloned());
        answer
    }

    /// The last screen: what is governed now, what is not and why, what is left to do, and how to see it work.
    pub(super) fn summary(
        &self,
        needs: &BTreeMap<String, tools::ToolRequirements>,
        unstarted: Option<&str>,
    ) -> String {
        let mut text = self.governed(needs);
        text.push_str(&self.ungoverned());
        if !self.pointed.is_empty() {
            text.push_str(&heading("left to do"));
        }
        for (host, scope) in &self.pointed {
            text.push_str(&format!("  {}: {}\n", host.title, host.next_steps.step(*scope)));
        }
        if let Some(line) = unstarted {
            text.push_str(&format!("  start the gateway: {line}\n"));
        } else if self.http.is_some() && self.setup.service.is_none() {
            text.push_str(&format!(
                "  start the gateway they call: countersign serve --http --config {}\n",
                shell_word(&self.survey.config.display().to_string())
            ));
        }
        let offered = self.offer.as_ref().map(HostRuleOffer::titles).filter(|titles| !titles.is_empty());
        if let Some(titles) = offered {
            text.push_str(&format!(
                "  to be asked once for a change in {titles}, by countersign: countersign init --permissions\n"
            ));
        }
        if self.accepted.len() < self.proposals.len() || self.args.no_start {
            text.push_str("  to let agents look without asking: countersign tools classify\n");
        }
        text.push_str("  to take it back: countersign init --undo\n");
        text.push_str(&heading("see it work"));
        text.push_str("  countersign plans watch\n");
        text.push_str("  and ask an agent to change something: the change waits there for you\n");
        text
    }

    /// What agents can do from now on, by server.
    fn governed(&self, needs: &BTreeMap<String, tools::ToolRequirements>) -> String {
        let mut text = heading("governed");
        for one in &self.import.upstreams {
            let hosts: Vec<&str> = one.from.iter().map(|(host, _)| host.title).collect();
            let said = match needs.get(&one.id) {
                Some(needs) if needs.is_down() => "did not answer; governed as soon as it does".to_owned(),
                Some(needs) => {
                    let reads = needs.tools_of(Effect::Read) + self.accepted_of(&one.id);
                    let all: usize = EFFECTS.iter().map(|effect| needs.tools_of(*effect)).sum();
                    let rest = plural(all - reads.min(all), "change");
                    format!("{} free, {rest} asked about", plural(reads, "read"))
                }
                None => "its tools were not looked at".to_owned(),
            };
            text.push_str(&format!("  {} ({}): {said}\n", visible(&one.id), hosts.join(", ")));
        }
        if self.import.upstreams.is_empty() {
            text.push_str("  nothing yet: countersign upstreams add --help\n");
        } else if !self.args.share {
            let note = "  each only for the hosts and the folder it came from (else: init --share)\n";
            text.push_str(&paint(DIM, note));
        }
        text
    }

    fn accepted_of(&self, id: &str) -> usize {
        self.accepted.iter().filter(|one| classify::upstream(one) == id).count()
    }

    /// What goes around us, and why.
    fn ungoverned(&self) -> String {
        let left = self
            .import
            .left
            .iter()
            .map(|left| format!("  {}: `{}`: {}\n", left.host.title, visible(&left.name), left.why));
        let broken = self.survey.broken.iter().map(|(place, why)| {
            format!("  {}: {} line {}: {}\n", place.host.title, place.path.display(), why.line, why.reason)
        });
        let shut = self.shut.iter().map(|line| format!("  {line}\n"));
        let lines: String = left.chain(broken).chain(shut).collect();
        if lines.is_empty() { lines } else { format!("{}{}", heading("not governed"), paint(WARN, lines)) }
    }
}

const EFFECTS: [Effect; 3] = [Effect::Read, Effect::Write, Effect::Destructive];

fn heading(text: &str) -> String {
    format!("{}\n", paint(BOLD, text))
}

/// Settings by which these hosts do not use what we write.
pub(super) fn shut_out(ground: &HostEnvironment, pointed: &[(Host, HostFileScope)]) -> Vec<String> {
    let mut settings = risky_settings(ground);
    settings.retain(|one| {
        one.risk == SettingRisk::DisablesGateway && pointed.iter().any(|(host, _)| *host == one.host)
    });
    let line = |one: RiskySetting| {
        let (title, path) = (one.host.title, one.path.display());
        format!("{title} does not use countersign: {} in {path}; {}", one.setting, one.fix)
    };
    settings.into_iter().map(line).collect()
}

/// JSON or TOML with texts that look like secrets, or are called so, left out. Whatever is quoted counts; references are none.
fn without_secrets(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    let mut name = String::new();
    while let Some((before, after)) = rest.split_once('"') {
        let between = before.trim_matches(|one: char| one.is_whitespace() || "{[,".contains(one));
        // In TOML the name of a value need not be quoted, in JSON it is the text before the colon.
        let called = match between.strip_suffix(['=', ':']).map(str::trim_end) {
            Some("") => is_secret_name(&name),
            Some(bare) => is_secret_name(bare.rsplit(char::is_whitespace).next().unwrap_or(bare)),
            None => false,
        };
        let (quoted, behind) = closed(after);
        let secret = quoted.len() >= 4 && !quoted.contains("${") && (called || is_secret_value(quoted));
        shown.push_str(before);
        shown.push('"');
        shown.push_str(if secret { "***" } else { quoted });
        name = quoted.to_owned();
        rest = behind;
        if let Some(behind) = rest.strip_prefix('"') {
            shown.push('"');
            rest = behind;
        }
    }
    shown + rest
}

/// What is inside a quoted text that was opened, and everything from its closing mark, or the end of its line, on.
fn closed(text: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = text.find(|one: char| {
        let ends = (one == '"' && !escaped) || one == '\n';
        escaped = one == '\\' && !escaped;
        ends
    });
    end.map_or((text, ""), |end| text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_host_files_are_not_shown() {
        for (text, expect) in [
            (
                r#"{"env": {"ANTHROPIC_API_KEY": "sesame-open", "LOG": "info"}}"#,
                r#"{"env": {"ANTHROPIC_API_KEY": "***", "LOG": "info"}}"#,
            ),
            ("api_key = \"sesame-open\" # mine\nb = \"x\"\n", "api_key = \"***\" # mine\nb = \"x\"\n"),
            ("[\"a\", \"ghp_0123456789abcdefghijABCDEFGHIJ012345\"]", "[\"a\", \"***\"]"),
            (
                r#"headers = { Authorization = "Bearer ${env:TOKEN}" }"#,
                r#"headers = { Authorization = "Bearer ${env:TOKEN}" }"#,
            ),
            (r#"{"token": "a\"b\\", "c": "d"}"#, r#"{"token": "***", "c": "d"}"#),
            ("it's \"open\n\"token\": \"sesame\"", "it's \"open\n\"token\": \"***\""),
            (
                "{\"allow\": [\"mcp__countersign__call_tool_read\"]}",
                "{\"allow\": [\"mcp__countersign__call_tool_read\"]}",
            ),
            ("", ""),
        ] {
            assert_eq!(without_secrets(text), expect, "{text}");
        }
    }
}
