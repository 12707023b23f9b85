//! `policy check`: rules that can never match, never decide anything, or say something else than they seem to.
//! Says only what is certain: a rule it does not understand is taken for a good one.

use super::Config;
use super::diagnostic::{Diagnostic, Problem, Severity, tick};
use super::glob::Pattern;
use super::rule::{Author, RuleOrigin};
use super::source::Place;
use super::upstream::{Upstream, UpstreamKind, nearest_upstream};
use crate::confirm::{Kind, Strength};
use crate::effect::Effect;
use crate::nearest::nearest;
use crate::rules::{Field, Rule, RuleName};

/// Everything about the rules and tools that is surely not meant.
pub fn lint(config: &Config) -> Vec<Diagnostic> {
    let rules: Vec<Written<'_>> = config
        .rules
        .rules()
        .iter()
        .zip(&config.origins)
        .map(|(rule, origin)| Written::of(rule, origin))
        .collect();
    let mut lint = Lint { config, found: Vec::new() };
    for (index, rule) in rules.iter().enumerate() {
        let earlier = rules.get(..index).unwrap_or_default();
        if rule.origin.author == Author::Rules {
            lint.globs(rule);
            lint.condition(rule);
            if !lint.empty(rule) && !lint.duplicate(rule, earlier) {
                lint.decided_before(rule, earlier);
            }
        }
        lint.fields(rule, &rules);
    }
    config.upstreams.iter().for_each(|upstream| lint.tools(upstream));
    lint.found.sort_by_key(|(place, _)| *place);
    lint.found.into_iter().map(|(_, finding)| finding).collect()
}

/// How an earlier rule makes a later one's field needless.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// It decides it first.
    First,
    /// It says the same, and both would hold.
    Again,
    /// It denies the call.
    Denied,
}

/// A rule, where it stands, and its globs taken apart.
struct Written<'c> {
    rule: &'c Rule,
    origin: &'c RuleOrigin,
    patterns: Vec<Option<Pattern>>,
}

impl<'c> Written<'c> {
    fn of(rule: &'c Rule, origin: &'c RuleOrigin) -> Self {
        Self { rule, origin, patterns: rule.globs.iter().map(|glob| Pattern::parse(glob)).collect() }
    }

    /// The fields the rule names.
    fn fields(&self) -> Vec<Field> {
        let rule = self.rule;
        let set = |field: &Field| match field {
            Field::Effect => rule.effect.is_some(),
            Field::Confirm => rule.confirm.is_some(),
            Field::TypeField => rule.type_field.is_some(),
            Field::Strength => rule.strength.is_some(),
            Field::Preview => rule.preview.is_some(),
            Field::Role => rule.role.is_some(),
            Field::Deny => rule.deny.is_some(),
            Field::Allow => rule.allow.is_some(),
            Field::Limit => rule.limit.is_some(),
            Field::Redact => !rule.redact.is_empty(),
            Field::Timeout => rule.timeout.is_some(),
        };
        Field::ALL.iter().copied().filter(set).collect()
    }

    /// How this rule, standing before the other, takes a field from it for every name that a glob matches.
    fn takes(&self, field: Field, other: &Rule, glob: &Pattern) -> Option<Taken> {
        let rule = self.rule;
        let always = rule.when.is_none() && self.patterns.iter().flatten().any(|ours| ours.covers(glob));
        let named = match field {
            // These add up: only the same again is needless.
            Field::Redact => (!rule.redact.is_empty()
                && other.redact.iter().all(|path| rule.redact.contains(path)))
            .then_some(Taken::Again),
            Field::Deny => None,
            Field::Effect
            | Field::Confirm
            | Field::TypeField
            | Field::Strength
            | Field::Preview
            | Field::Role
            | Field::Allow
            | Field::Limit
            | Field::Timeout => self.fields().contains(&field).then_some(Taken::First),
        };
        // What is denied anyway asks for nothing more, wherever the deny stands.
        let moot = match field {
            Field::Effect | Field::Role | Field::Redact => None,
            Field::Confirm
            | Field::TypeField
            | Field::Strength
            | Field::Preview
            | Field::Deny
            | Field::Allow
            | Field::Limit
            | Field::Timeout => rule.deny.as_ref().map(|_| Taken::Denied),
        };
        moot.or(named).filter(|_| always)
    }

    /// Whether some name might match both.
    fn meets(&self, other: &Written<'_>) -> bool {
        self.patterns.iter().any(|ours| {
            other.patterns.iter().any(|theirs| match (ours, theirs) {
                (Some(ours), Some(theirs)) => ours.meets(theirs),
                (None, _) | (_, None) => true,
            })
        })
    }
}

struct Lint<'c> {
    config: &'c Config,
    found: Vec<(Place, Diagnostic)>,
}

impl Lint<'_> {
    fn say(
        &mut self,
        place: Place,
        severity: Severity,
        problem: Problem,
        message: String,
        help: impl Into<String>,
    ) {
        let finding = self.config.files.diagnostic(place, severity, problem, message, help.into());
        self.found.push((place, finding));
    }

    fn globs(&mut self, written: &Written<'_>) {
        let upstreams: Vec<&str> =
            self.config.upstreams.iter().map(|upstream| upstream.id.as_str()).collect();
        let all = written.rule.globs.iter().zip(&written.patterns).zip(&written.origin.globs);
        for ((glob, pattern), place) in all {
            let Some(pattern) = pattern else { continue };
            if !pattern.can_match(&[]) {
                let message = format!("{} matches no tool: a full name is `upstream:tool`", tick(glob));
                let help = self.full_glob(glob, &upstreams);
                self.say(*place, Severity::Error, Problem::NeverMatches, message, help);
            } else if !upstreams.is_empty() && !pattern.can_match(&upstreams) {
                let (message, help) = self.undeclared(glob, &upstreams);
                self.say(*place, Severity::Warning, Problem::NeverMatches, message, help);
            } else {
                self.known_tool(glob, pattern, *place);
            }
        }
    }

    /// What to write for a glob that is no glob over full names.
    fn full_glob(&self, glob: &str, upstreams: &[&str]) -> String {
        match (glob.split_once(':'), upstreams) {
            (Some((upstream, "")), _) => format!("write `{upstream}:*` for all of its tools"),
            (Some((upstream, tool)), _) => {
                let near = nearest_upstream(upstream, &self.config.upstreams).map(str::to_owned);
                let upstream = near.unwrap_or_else(|| upstream.trim().to_lowercase());
                let upstream = if upstream.is_empty() { "*".to_owned() } else { upstream };
                format!("write `{upstream}:{tool}`: names of upstreams are lower-case, without spaces")
            }
            (None, _) if upstreams.contains(&glob) => format!("write `{glob}:*` for all tools of `{glob}`"),
            (None, [only]) => format!("write `{only}:{glob}`"),
            (None, _) => format!("write `*:{glob}`, or the name of an upstream for the `*`"),
        }
    }

    fn undeclared(&self, glob: &str, upstreams: &[&str]) -> (String, String) {
        let Some(upstream) = Pattern::upstream(glob) else {
            let message = format!("{} matches no tool of the declared upstreams", tick(glob));
            let help = match glob.contains(':') {
                true => format!("the declared upstreams: {}", upstreams.join(", ")),
                false => format!("a full name is `upstream:tool`: write `*:{glob}`"),
            };
            return (message, help);
        };
        let help = match nearest(upstream, upstreams.iter().copied()) {
            Some(near) => format!("did you mean `{}`?", glob.replacen(upstream, near, 1)),
            None => format!("declare `[upstreams.{upstream}]`; the declared ones: {}", upstreams.join(", ")),
        };
        (format!("{} matches no tool: there is no upstream `{upstream}`", tick(glob)), help)
    }

    /// The tools of a command upstream are all there is: a glob over it that matches none of them never will.
    fn known_tool(&mut self, glob: &str, pattern: &Pattern, place: Place) {
        let config = self.config;
        let upstream = Pattern::upstream(glob).and_then(|id| config.upstream(&id.into()));
        let Some(Upstream { id, kind: UpstreamKind::Command { tools, .. }, .. }) = upstream else { return };
        let matches =
            |tool: &str| Pattern::parse(&format!("{id}:{tool}")).is_none_or(|exact| pattern.covers(&exact));
        if tools.iter().any(|tool| matches(tool.name.as_str())) {
            return;
        }
        let wanted = glob.split_once(':').map_or("", |(_, tool)| tool);
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let help = match nearest(wanted, names.iter().copied()) {
            Some(near) => format!("did you mean `{id}:{near}`?"),
            None => format!("the tools of `{id}`: {}", names.join(", ")),
        };
        let message = format!("{} matches no tool of `{id}`", tick(glob));
        self.say(place, Severity::Warning, Problem::NeverMatches, message, help);
    }

    fn empty(&mut self, written: &Written<'_>) -> bool {
        let is_empty = written.fields().is_empty();
        if is_empty {
            let message = "this rule says nothing about the tools it matches".to_owned();
            let help = "add a field, such as `confirm = \"preview\"`, or remove the rule";
            self.say(written.origin.place, Severity::Warning, Problem::EmptyRule, message, help);
        }
        is_empty
    }

    fn condition(&mut self, written: &Written<'_>) {
        let place = written.origin.field("when");
        let (severity, message, help) = match written.rule.when.as_ref().and_then(|when| when.constant()) {
            None => return,
            Some(Ok(false)) => {
                let message = "the condition is never true, so the rule never matches".to_owned();
                (
                    Severity::Error,
                    message,
                    "remove the rule, or look at the call: `when = \"args.amount > 10000\"`",
                )
            }
            Some(Ok(true)) => (Severity::Warning, "the condition is always true".to_owned(), "remove `when`"),
            Some(Err(why)) => {
                let message =
                    format!("the condition always fails, which refuses every call the rule matches: {why}");
                (
                    Severity::Error,
                    message,
                    "write a condition that is true or false: `when = \"args.amount > 10000\"`",
                )
            }
        };
        self.say(place, severity, Problem::ConstantCondition, message, help);
    }

    fn duplicate(&mut self, written: &Written<'_>, earlier: &[Written<'_>]) -> bool {
        let nameless = |rule: &Rule| Rule { name: RuleName(String::new()), ..rule.clone() };
        let this = nameless(written.rule);
        let Some(same) = earlier.iter().find(|other| nameless(other.rule) == this) else { return false };
        let message = format!("the same rule stands already at `{}`", same.rule.name);
        self.say(
            written.origin.place,
            Severity::Warning,
            Problem::DuplicateRule,
            message,
            "remove one of the two",
        );
        true
    }

    /// Whether every field of the rule is taken before it is reached, whatever the call.
    fn decided_before(&mut self, written: &Written<'_>, earlier: &[Written<'_>]) {
        let mut takers: Vec<(Taken, String)> = Vec::new();
        for field in written.fields() {
            for pattern in &written.patterns {
                let Some(pattern) = pattern else { return };
                let first = earlier.iter().find_map(|other| {
                    let taken = other.takes(field, written.rule, pattern)?;
                    Some((taken, format!("`{}`", other.rule.name)))
                });
                let Some(first) = first else { return };
                if !takers.contains(&first) {
                    takers.push(first);
                }
            }
        }
        let Some((_, first)) = takers.first() else { return };
        let by = |wanted: Taken| takers.iter().find(|(taken, _)| *taken == wanted);
        let (message, help) = if let Some((_, deny)) = by(Taken::Denied) {
            let message = format!("this rule changes nothing: {deny} denies every call it matches");
            (message, format!("remove it, or let {deny} match less: a deny wins wherever it stands"))
        } else if by(Taken::First).is_none() {
            (
                format!("this rule adds nothing: {first} says the same of every tool it matches"),
                "remove it".to_owned(),
            )
        } else {
            let names: Vec<&str> = takers.iter().map(|(_, name)| name.as_str()).collect();
            let message = format!(
                "this rule never decides anything: all it says is decided before it, by {}",
                names.join(" and ")
            );
            (message, format!("move it above {first}, or remove it"))
        };
        self.say(written.origin.place, Severity::Warning, Problem::NeverDecides, message, help);
    }

    fn fields(&mut self, written: &Written<'_>, all: &[Written<'_>]) {
        let (rule, origin) = (written.rule, written.origin);
        let warning = Severity::Warning;
        if rule.allow == Some(true) && rule.deny.is_some() {
            let message = "`allow = true` has no effect beside `deny`: deny wins".to_owned();
            self.say(origin.field("allow"), warning, Problem::Useless, message, "remove one of the two");
        }
        if rule.effect == Some(Effect::Destructive) && rule.confirm == Some(Kind::None) {
            let message = "a destructive tool runs without a second step".to_owned();
            self.say(
                origin.field("confirm"),
                warning,
                Problem::Lax,
                message,
                "write `confirm = \"preview\"`, or `\"type\"`",
            );
        }
        if let (Some(Kind::Type), Some(strength @ (Strength::Caller | Strength::Host))) =
            (rule.confirm, rule.strength)
        {
            let message =
                format!("a typed name usually needs a person, and `strength = \"{strength}\"` does not");
            self.say(
                origin.field("strength"),
                warning,
                Problem::Lax,
                message,
                "write `strength = \"human\"`, or remove it",
            );
        }
        if rule.confirm == Some(Kind::None) && rule.strength.is_some() {
            let message = "`strength` has no effect beside `confirm = \"none\"`: nobody is asked".to_owned();
            self.say(origin.field("strength"), warning, Problem::Useless, message, "remove one of the two");
        }
        let typed_elsewhere =
            || all.iter().any(|other| other.rule.confirm == Some(Kind::Type) && other.meets(written));
        let typed = match rule.confirm {
            Some(Kind::Type) => true,
            Some(Kind::None | Kind::Simple | Kind::Preview) => false,
            None => typed_elsewhere(),
        };
        if rule.type_field.is_some() && !typed {
            let message = "`type_field` has no effect without `confirm = \"type\"`".to_owned();
            self.say(
                origin.field("type_field"),
                warning,
                Problem::Useless,
                message,
                "add `confirm = \"type\"`, or remove it",
            );
        }
    }

    fn tools(&mut self, upstream: &Upstream) {
        let UpstreamKind::Command { tools, .. } = &upstream.kind else { return };
        for tool in tools {
            if tool.description.is_none() {
                let message = format!("`{}:{}` has no `description`", upstream.id, tool.name);
                let help = "write what it does in a sentence: agents choose tools by it";
                self.say(tool.place, Severity::Warning, Problem::MissingKey, message, help);
            }
            for input in tool.inputs.iter().filter(|input| !tool.uses(&input.name)) {
                let message =
                    format!("input `{}` of `{}:{}` is used nowhere", input.name, upstream.id, tool.name);
                let help = format!("write `{{{}}}` where its value belongs, or remove it", input.name);
                self.say(tool.place, Severity::Warning, Problem::Useless, message, help);
            }
        }
    }
}
