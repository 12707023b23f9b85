//! The guide and the README, run: every `sh` block of every page, in order, in an empty home; files a page shows are the files its
//! commands use. A block that is not run here says where it is, or why it can't be; commands inside sentences must exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::stage::{Stage, root};
use crate::world::World;

/// Blocks that no test can run.
const NOT_RUN: [(&str, &str); 2] =
    [("rest-api.md", "it makes an account, as root"), ("quick-start.md", "it builds for minutes")];

/// A block of a page: its language, its text, and the comment right before it.
struct Block<'p> {
    language: &'p str,
    text: &'p str,
    note: Option<&'p str>,
}

impl Block<'_> {
    /// What a comment before the block says under a name.
    fn noted(&self, name: &str) -> Option<&str> {
        self.note?.strip_prefix(name)?.strip_prefix(": ")
    }
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("\n```") {
        let (language, body) = after.split_once('\n').unwrap();
        let (text, behind) =
            body.split_once("```").unwrap_or_else(|| panic!("a block is not closed: {body}"));
        let last = before.trim_end().lines().last().unwrap_or_default();
        let note = last.strip_prefix("<!-- ").and_then(|note| note.strip_suffix(" -->"));
        found.push(Block { language, text, note });
        rest = behind;
    }
    found
}

/// Name and text of every page.
fn pages() -> Vec<(String, String)> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(root().join("docs/guide")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "md"));
    paths.sort();
    paths.push(root().join("README.md"));
    assert!(paths.len() > 15);
    let name = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.starts_with(root().join("docs")) { name.to_owned() } else { format!("../{name}") }
    };
    paths.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// Runs what is to be run of a page and says how many blocks that were.
fn follow(name: &str, page: &str, all: &[(String, String)]) -> usize {
    let Some(mut stage) = Stage::new(page) else {
        // Without a PostgreSQL its page is left out, as its suite is.
        return 0;
    };
    let mut ran = 0;
    for block in blocks(page) {
        if let Some(file) = block.noted("file") {
            stage.world.write(file, &stage.here(block.text));
        } else if let Some(file) = block.noted("run by") {
            assert!(root().join(file).exists(), "{name}: there is no {file}");
        } else if let Some(why) = block.noted("not run") {
            assert!(NOT_RUN.contains(&(name, why)), "{name}: {why}");
            assert!(page.replace('\n', " ").contains(why), "{name} does not say that {why}");
        } else if block.language == "sh" {
            if let Some(other) = block.noted("as after") {
                let (_, text) = all.iter().find(|(name, _)| name == other).unwrap();
                let files = blocks(text)
                    .into_iter()
                    .filter_map(|block| Some((block.noted("file")?.to_owned(), block.text)));
                for (file, text) in files {
                    stage.world.write(&file, &stage.here(text));
                }
            }
            match block.note {
                Some("stays") => stage.start(name, block.text),
                _ => stage.run(name, block.text),
            }
            ran += 1;
        }
    }
    stage.end(name);
    ran
}

#[test]
fn every_command_of_the_guide_works() {
    let all = pages();
    let ran: usize = all.iter().map(|(name, page)| follow(name, page, &all)).sum();
    assert!(ran >= 25, "only {ran} blocks were run");
}

/// What is no command is no shell's; what is not run says so.
#[test]
fn every_block_of_the_guide_is_of_a_known_kind() {
    let mut used = BTreeSet::new();
    for (name, page) in pages() {
        for block in blocks(&page) {
            match block.language {
                "toml" | "json" | "yaml" | "python" | "text" => {}
                "sh" => {}
                "console" => {
                    let said = block.noted("run by").or(block.noted("not run"));
                    assert!(said.is_some(), "{name} does not say why this is not run:\n{}", block.text);
                }
                other => panic!("{name} has a block of the kind `{other}`:\n{}", block.text),
            }
            used.extend(block.noted("not run").map(|why| (name.clone(), why.to_owned())));
        }
    }
    let known: BTreeSet<_> =
        NOT_RUN.iter().map(|(name, why)| ((*name).to_owned(), (*why).to_owned())).collect();
    assert_eq!(used, known);
}

/// Configurations the guide shows can be read, whole or in parts.
#[test]
fn every_configuration_of_the_guide_is_one() {
    let mut read = 0;
    for (name, page) in pages() {
        for block in blocks(&page) {
            if block.language != "toml" || block.noted("file").is_some_and(|file| file == "rooms.toml") {
                continue;
            }
            let world = World::new();
            world.write("countersign.toml", block.text);
            let checked = world.run(&["policy", "check"]);
            assert_eq!(checked.code, Some(0), "{name}: {checked}");
            read += 1;
        }
    }
    assert!(read >= 15, "only {read} configurations were read");
}

/// `countersign …` inside a sentence or a table: the command and its flags exist.
#[test]
fn every_command_named_in_a_sentence_exists() {
    let world = World::new();
    let mut checked = BTreeSet::new();
    for (name, page) in pages() {
        let prose: String = page.split("\n```").step_by(2).collect();
        for span in prose.split('`').skip(1).step_by(2).filter(|span| span.starts_with("countersign ")) {
            let words = words(span);
            if !checked.insert(words.clone()) {
                continue;
            }
            let args: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
            let help = world.run(&args);
            assert_eq!(help.code, Some(0), "{name}: `{span}`: {help}");
        }
    }
    assert!(checked.len() > 30, "only {}", checked.len());
}

/// The words of a command line after the program's name, as far as they say what to do: quotes hold together, what follows `--` or
/// stands for more is left out.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote) = (String::new(), None);
    for letter in line.chars().chain([' ']) {
        match quote {
            Some(open) if letter == open => quote = None,
            None if letter == '"' || letter == '\'' => quote = Some(letter),
            None if letter.is_whitespace() => {
                words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()))
            }
            _ => word.push(letter),
        }
    }
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.truncate(end);
    // `…` after a flag is some value, anywhere else some more words.
    let is_value = |at: usize| at > 0 && words.get(at - 1).is_some_and(|before| before.starts_with("--"));
    let said = words.iter().enumerate().skip(1).filter(|(at, word)| !word.contains('…') || is_value(*at));
    said.map(|(_, word)| word.clone()).collect()
}
