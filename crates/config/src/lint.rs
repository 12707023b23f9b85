//! `policy check`: rules that can never match, never decide anything, or say something else than they seem to.
//! Says only what is certain: a rule it does not understand is taken for a good one.

use super::Config;
use super::diagnostic::DiagnosticKind::{
    ConstantCondition, DuplicateRule, EmptyRule, Lax, MissingKey, NeverDecides, NeverMatches, Useless,
};
use super::diagnostic::{Diagnostic, DiagnosticKind, DiagnosticSeverity, one_line, tick};
use super::glob::{SimpleGlob, named_upstream};
use super::rule::{RuleAuthor, RuleOrigin};
use super::upstream::{Upstream, UpstreamKind, nearest_upstream};
use countersign_policy::command_template::Place;
use countersign_policy::confirm::{ApprovalStrength, Kind};
use countersign_policy::effect::Effect;
use countersign_policy::nearest::nearest;
use countersign_policy::rules::{Condition, Rule, RuleField, RuleName, RuleSet, UnlistedToolPolicy};

/// Everything about the rules and tools that is surely not meant.
pub fn lint(config: &Config) -> Vec<Diagnostic> {
    let rules: Vec<LintedRule<'_>> = config
        .rules
        .rules()
        .iter()
        .zip(&config.origins)
        .map(|(rule, origin)| LintedRule::of(rule, origin))
        .collect();
    let mut lint = ConfigLinter { config, found: Vec::new() };
    for (index, rule) in rules.iter().enumerate() {
        let earlier = rules.get(..index).unwrap_or_default();
        if rule.origin.author == RuleAuthor::Rules {
            lint.globs(rule);
            lint.condition(rule);
            lint.path_prefix(rule);
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
enum RedundancyReason {
    First,
    /// It says the same, and both would hold.
    Again,
    Denied,
}

/// A rule, where it is written, and its globs.
struct LintedRule<'c> {
    rule: &'c Rule,
    origin: &'c RuleOrigin,
    globs: Vec<Option<SimpleGlob>>,
    compiled: RuleSet,
}

impl<'c> LintedRule<'c> {
    fn of(rule: &'c Rule, origin: &'c RuleOrigin) -> Self {
        let globs = rule.globs.iter().map(|glob| SimpleGlob::parse(glob)).collect();
        Self { rule, origin, globs, compiled: compile_alone(rule.clone()) }
    }

    fn fields(&self) -> Vec<RuleField> {
        RuleField::ALL.iter().copied().filter(|field| self.rule.sets(*field)).collect()
    }

    /// Whether the rule matches every name that a glob of another rule matches; false if that is not certain.
    fn covers(&self, glob: &SimpleGlob) -> bool {
        match glob.literal() {
            Some(name) => matches_name(&self.compiled, name),
            None => self.globs.iter().flatten().any(|ours| ours.covers(glob)),
        }
    }

    /// How this rule, standing before the other, takes a field from it for every name that a glob matches.
    fn takes(&self, field: RuleField, other: &Rule, glob: &SimpleGlob) -> Option<RedundancyReason> {
        let rule = self.rule;
        if rule.when.is_some() || !rule.fingerprints.is_empty() || !self.covers(glob) {
            return None;
        }
        // A deny wins wherever it is written, so what it denies needs no other field.
        if rule.deny.is_some() && !field.matters_when_denied() {
            return Some(RedundancyReason::Denied);
        }
        // Every matching deny counts, so that an earlier one does not take a later one's place.
        let overrides = field != RuleField::Deny && rule.overrides(field, other);
        let reason = if field.adds_up() { RedundancyReason::Again } else { RedundancyReason::First };
        overrides.then_some(reason)
    }

    /// Whether some name might match both.
    fn meets(&self, other: &LintedRule<'_>) -> bool {
        self.globs.iter().any(|ours| {
            other.globs.iter().any(|theirs| match (ours, theirs) {
                (Some(ours), Some(theirs)) => ours.meets(theirs),
                (None, _) | (_, None) => true,
            })
        })
    }
}

fn compile_alone(rule: Rule) -> RuleSet {
    RuleSet::compile(vec![rule], UnlistedToolPolicy::Govern).unwrap_or_default()
}

fn matches_name(rules: &RuleSet, name: &str) -> bool {
    name.parse().is_ok_and(|name| !rules.matching(&name).is_empty())
}

struct ConfigLinter<'c> {
    config: &'c Config,
    found: Vec<(Place, Diagnostic)>,
}

impl ConfigLinter<'_> {
    fn say(
        &mut self,
        place: Place,
        severity: DiagnosticSeverity,
        problem: DiagnosticKind,
        message: String,
        help: impl Into<String>,
    ) {
        // What a rule says may have line breaks in it; a finding's help has none.
        let help = one_line(&help.into());
        let finding = self.config.files.diagnostic(place, severity, problem, message, help);
        self.found.push((place, finding));
    }

    fn globs(&mut self, written: &LintedRule<'_>) {
        let upstreams: Vec<&str> =
            self.config.upstreams.iter().map(|upstream| upstream.id.as_str()).collect();
        let all = written.rule.globs.iter().zip(&written.globs).zip(&written.origin.globs);
        for ((glob, pattern), place) in all {
            if pattern.as_ref().is_some_and(|pattern| !pattern.can_match(&[])) {
                let message = format!("{} matches no tool: a full name is `upstream:tool`", tick(glob));
                let help = self.full_glob(glob, &upstreams);
                self.say(*place, DiagnosticSeverity::Error, NeverMatches, message, help);
            } else if !upstreams.is_empty()
                && pattern.as_ref().is_some_and(|pattern| !pattern.can_match(&upstreams))
            {
                let (message, help) = self.undeclared(glob, &upstreams);
                self.say(*place, DiagnosticSeverity::Warning, NeverMatches, message, help);
            } else {
                self.known_tool(glob, *place);
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
        let Some(upstream) = named_upstream(glob) else {
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
    fn known_tool(&mut self, glob: &str, place: Place) {
        let config = self.config;
        let upstream = named_upstream(glob).and_then(|id| config.upstream(&id.into()));
        let Some(Upstream { id, kind: UpstreamKind::Command { tools, .. }, .. }) = upstream else { return };
        let compiled = compile_alone(Rule::named("", &[glob]));
        if tools.iter().any(|tool| matches_name(&compiled, &format!("{id}:{}", tool.name))) {
            return;
        }
        let wanted = glob.split_once(':').map_or("", |(_, tool)| tool);
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let help = match nearest(wanted, names.iter().copied()) {
            Some(near) => format!("did you mean `{id}:{near}`?"),
            None => format!("the tools of `{id}`: {}", names.join(", ")),
        };
        let message = format!("{} matches no tool of `{id}`", tick(glob));
        self.say(place, DiagnosticSeverity::Warning, NeverMatches, message, help);
    }

    fn empty(&mut self, written: &LintedRule<'_>) -> bool {
        let is_empty = written.fields().is_empty();
        if is_empty {
            let message = "this rule says nothing about the tools it matches".to_owned();
            let help = "add a field, such as `confirm = \"preview\"`, or remove the rule";
            self.say(written.origin.place, DiagnosticSeverity::Warning, EmptyRule, message, help);
        }
        is_empty
    }

    /// `startsWith` on a path lets `/srv/app/../../etc` and `/srv/app-other` through.
    fn path_prefix(&mut self, written: &LintedRule<'_>) {
        let path = written.rule.when.as_ref().and_then(Condition::path_prefix);
        let Some(path) = path else { return };
        let message = format!(
            "`startsWith` compares `{path}` letter by letter: `/dir/../other` and `/dir-other` begin alike"
        );
        let help = format!("write `under(args.{path}, '/dir')`, which follows `..` and links");
        self.say(written.origin.field("when"), DiagnosticSeverity::Warning, Lax, message, help);
    }

    fn condition(&mut self, written: &LintedRule<'_>) {
        let place = written.origin.field("when");
        let (severity, message, help) = match written.rule.when.as_ref().and_then(|when| when.constant()) {
            None => return,
            Some(Ok(false)) => {
                let message = "the condition is never true, so the rule never matches".to_owned();
                (
                    DiagnosticSeverity::Error,
                    message,
                    "remove the rule, or look at the call: `when = \"args.amount > 10000\"`",
                )
            }
            Some(Ok(true)) => {
                (DiagnosticSeverity::Warning, "the condition is always true".to_owned(), "remove `when`")
            }
            Some(Err(why)) => {
                let message =
                    format!("the condition always fails, which refuses every call the rule matches: {why}");
                (
                    DiagnosticSeverity::Error,
                    message,
                    "write a condition that is true or false: `when = \"args.amount > 10000\"`",
                )
            }
        };
        self.say(place, severity, ConstantCondition, message, help);
    }

    fn duplicate(&mut self, written: &LintedRule<'_>, earlier: &[LintedRule<'_>]) -> bool {
        let nameless = |rule: &Rule| Rule { name: RuleName(String::new()), ..rule.clone() };
        let this = nameless(written.rule);
        let Some(same) = earlier.iter().find(|other| nameless(other.rule) == this) else { return false };
        let message = format!("the same rule stands already at `{}`", same.rule.name);
        self.say(
            written.origin.place,
            DiagnosticSeverity::Warning,
            DuplicateRule,
            message,
            "remove one of the two",
        );
        true
    }

    /// Whether every field of the rule is taken before it is reached, whatever the call.
    fn decided_before(&mut self, written: &LintedRule<'_>, earlier: &[LintedRule<'_>]) {
        let mut takers: Vec<(RedundancyReason, String)> = Vec::new();
        for field in written.fields() {
            for pattern in &written.globs {
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
        let by = |wanted: RedundancyReason| takers.iter().find(|(taken, _)| *taken == wanted);
        let (message, help) = if let Some((_, deny)) = by(RedundancyReason::Denied) {
            let message = format!("this rule changes nothing: {deny} denies every call it matches");
            (message, format!("remove it, or let {deny} match less: a deny wins wherever it stands"))
        } else if by(RedundancyReason::First).is_none() {
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
        self.say(written.origin.place, DiagnosticSeverity::Warning, NeverDecides, message, help);
    }

    fn fields(&mut self, written: &LintedRule<'_>, all: &[LintedRule<'_>]) {
        let (rule, origin) = (written.rule, written.origin);
        let warning = DiagnosticSeverity::Warning;
        if rule.allow == Some(true) && rule.deny.is_some() {
            let message = "`allow = true` has no effect beside `deny`: deny wins".to_owned();
            self.say(origin.field("allow"), warning, Useless, message, "remove one of the two");
        }
        if rule.effect == Some(Effect::Destructive) && rule.confirm == Some(Kind::None) {
            let message = "a destructive tool runs without a second step".to_owned();
            self.say(
                origin.field("confirm"),
                warning,
                Lax,
                message,
                "write `confirm = \"preview\"`, or `\"type\"`",
            );
        }
        if let (Some(Kind::Type), Some(strength @ (ApprovalStrength::Caller | ApprovalStrength::Host))) =
            (rule.confirm, rule.strength)
        {
            let message =
                format!("a typed name usually needs a person, and `strength = \"{strength}\"` does not");
            self.say(
                origin.field("strength"),
                warning,
                Lax,
                message,
                "write `strength = \"human\"`, or remove it",
            );
        }
        if rule.confirm == Some(Kind::None) && rule.strength.is_some() {
            let message = "`strength` has no effect beside `confirm = \"none\"`: nobody is asked".to_owned();
            self.say(origin.field("strength"), warning, Useless, message, "remove one of the two");
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
                Useless,
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
                self.say(tool.place, DiagnosticSeverity::Warning, MissingKey, message, help);
            }
            for input in tool.inputs.iter().filter(|input| !tool.uses(&input.name)) {
                let message =
                    format!("input `{}` of `{}:{}` is used nowhere", input.name, upstream.id, tool.name);
                let help = format!("write `{{{}}}` where its value belongs, or remove it", input.name);
                self.say(tool.place, DiagnosticSeverity::Warning, Useless, message, help);
            }
        }
    }
}
