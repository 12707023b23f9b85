//! Issue 14, point 20: what the configuration says about who has to agree, and how `policy explain` says it.

use std::time::Duration;

use countersign_config::{self as config, Config, ExplainInput, Source};
use countersign_policy::call::Arguments;
use countersign_policy::confirm::{ApprovalStrength, Kind};
use countersign_policy::effect::Effect;
use countersign_policy::profile::{ConfirmProfile, StrengthDefaults, StrengthOrigin};
use jiff::Timestamp;

fn read(text: &str) -> Result<Config, String> {
    config::parse(&[Source::new("countersign.toml", text)])
        .map_err(|found| found.iter().map(|finding| format!("{finding}\n")).collect())
}

#[test]
fn attack_20_the_configuration_says_profile_strength_and_hold() {
    let plain = read("").unwrap().confirm;
    assert_eq!(plain.strengths, StrengthDefaults::default());
    assert_eq!((plain.strengths.profile, plain.hold), (ConfirmProfile::Solo, Duration::from_secs(50)));
    let said = read(
        "[confirm]\nprofile = \"team\"\nstrength = { write = \"host\", destructive = \"human\" }\nhold = \"0s\"\n",
    );
    let said = said.unwrap();
    assert_eq!(
        said.confirm.strengths,
        StrengthDefaults {
            profile: ConfirmProfile::Team,
            write: Some(ApprovalStrength::Host),
            destructive: Some(ApprovalStrength::Human)
        }
    );
    assert_eq!(said.rules.strengths(), said.confirm.strengths, "what is written is what judges");
    assert_eq!(said.confirm.hold, Duration::ZERO);
    assert_eq!(read("[confirm]\nhold = \"600s\"\n").unwrap().confirm.hold, Duration::from_secs(600));
    for (text, expect) in [
        ("profile = \"sole\"", "did you mean `solo`?"),
        ("profil = \"solo\"", "did you mean `profile`?"),
        ("strength = { write = \"humann\" }", "did you mean `human`?"),
        ("strength = { wirte = \"human\" }", "did you mean `write`?"),
        ("strength = \"human\"", "strength"),
        ("hold = \"601s\"", "`hold` is at most 10m"),
        ("hold = 50", "hold"),
    ] {
        let found = read(&format!("[confirm]\n{text}\n")).unwrap_err();
        assert!(found.contains(expect), "{text}: {found}");
    }
}

#[test]
fn attack_20_policy_explain_says_where_a_strength_comes_from() {
    let because = |text: &str, tool: &str| {
        let mut input = ExplainInput::of(tool.parse().unwrap(), Timestamp::UNIX_EPOCH);
        input.arguments = Arguments::none();
        let explained = config::explain(&read(text).unwrap(), &input);
        let decided = explained.decided.iter().find(|one| one.field.as_str() == "strength").unwrap();
        format!("{} {}: {}", explained.confirm, explained.strength, decided.because)
    };
    for (text, tool, expect) in [
        ("", "a:sync", "simple host: profile solo"),
        ("", "a:wipe", "preview host: profile solo"),
        (
            "[[rules]]\nmatch = \"a:*\"\neffect = \"read\"\n",
            "a:sync",
            "none caller: no second step: nobody is asked",
        ),
        ("[confirm]\nprofile = \"team\"\n", "a:sync", "simple human: profile team"),
        (
            "[confirm]\nprofile = \"regulated\"\n",
            "a:wipe",
            "preview human: profile regulated; human until gesture is there",
        ),
        ("[confirm]\nprofile = \"regulated\"\n", "a:sync", "simple human: profile regulated"),
        ("[confirm]\nstrength = { write = \"caller\" }\n", "a:sync", "simple caller: confirm.strength.write"),
        ("[confirm]\nstrength = { write = \"caller\" }\n", "a:wipe", "preview host: profile solo"),
        (
            "[[rules]]\nmatch = \"a:*\"\nstrength = \"human\"\n",
            "a:sync",
            "simple human: rule `countersign.toml:1`",
        ),
    ] {
        assert_eq!(because(text, tool), expect, "{text}");
    }
    let defaults = StrengthDefaults::default();
    assert_eq!(defaults.strength(Effect::Write, Kind::Simple).1, StrengthOrigin::Profile);
}
