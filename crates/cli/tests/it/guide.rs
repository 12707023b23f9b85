//! The guide, run: every `sh` block of every page, in order, in an empty home; files a page shows are the files its commands use.

use std::env::join_paths;
use std::fs;
use std::path::Path;

use crate::world::{World, binary};

/// A block of a page: its language, its text, and the comment right before it.
struct Block<'p> {
    language: &'p str,
    text: &'p str,
    note: Option<&'p str>,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("\n```") {
        let (language, body) = after.split_once('\n').unwrap();
        let (text, behind) =
            body.split_once("```").unwrap_or_else(|| panic!("a block is not closed: {body}"));
        let note = before.trim_end().lines().last().filter(|line| line.starts_with("<!--"));
        found.push(Block { language, text, note });
        rest = behind;
    }
    found
}

#[test]
fn every_command_of_the_guide_works() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let mut pages: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|end| end == "md"));
    pages.sort();
    assert!(pages.len() > 5);
    let mut ran = 0;
    for path in &pages {
        let page = fs::read_to_string(path).unwrap();
        let world = World::new();
        for block in blocks(&page) {
            let file = block.note.and_then(|note| note.strip_prefix("<!-- file: ")?.strip_suffix(" -->"));
            if let Some(name) = file {
                world.write(name, block.text);
            } else if block.language == "sh" {
                let folders = [binary().parent().unwrap(), "/usr/bin".as_ref(), "/bin".as_ref()];
                let mut shell = world.command("sh");
                let output = shell
                    .args(["-ec", block.text])
                    .env("PATH", join_paths(folders).unwrap())
                    .output()
                    .unwrap();
                let transcript = world.transcript(block.text, output);
                assert_eq!(transcript.code, Some(0), "{}: {transcript}", path.display());
                ran += 1;
            }
        }
    }
    assert!(ran >= 8, "only {ran} blocks were run");
}
