//! Detects forms that ask for what only the gateway may ask for: its credentials, tokens and decisions.

use crate::catalog::skeleton;

/// Our own secrets by name, without spaces and punctuation.
const SECRETS: [&str; 2] = ["confirmtoken", "approvaltoken"];
const ABOUT_US: [&str; 14] = [
    "token",
    "credential",
    "password",
    "passphrase",
    "passkey",
    "secret",
    "apikey",
    "signin",
    "login",
    "approve",
    "approval",
    "confirm",
    "authorize",
    "authorise",
];

/// Whether any of these texts asks for a secret or a decision of ours.
pub(super) fn asks_for_ours(texts: &[String]) -> bool {
    let looks: Vec<String> = texts.iter().map(|text| letters(text)).collect();
    let names_secret = looks.iter().any(|look| SECRETS.iter().any(|secret| look.contains(&letters(secret))));
    // The name may be in the message and the field elsewhere: they are read together.
    let names_us = looks.iter().any(|look| look.contains(&letters("countersign")));
    let wants = looks.iter().any(|look| ABOUT_US.iter().any(|word| look.contains(&letters(word))));
    names_secret || (names_us && wants)
}

/// Letters and digits of the text's skeleton.
fn letters(text: &str) -> String {
    skeleton(text).chars().filter(|one| one.is_alphanumeric()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_05_forms_that_ask_for_our_credentials_are_known_by_their_look() {
        let asks =
            |texts: &[&str]| asks_for_ours(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        for ours in [
            &["Please enter your Countersign token"][..],
            &["Countersign needs you", "password"],
            &["Session expired", "confirm_token"],
            &["confirm token, please"],
            &["Cоuntersign sign-in", "code"],
            &["C o u n t e r s i g n: credential"],
            &["To approve this change in Countersign, answer yes"],
        ] {
            assert!(asks(ours), "{ours:?}");
        }
        for theirs in [
            &["Which branch?", "branch"][..],
            &["Your GitHub token", "token"],
            &["Approve the release?", "yes"],
            &["See docs of Countersign", "page"],
        ] {
            assert!(!asks(theirs), "{theirs:?}");
        }
    }
}
