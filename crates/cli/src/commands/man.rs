//! `countersign man`: manual pages of every command, made from the same texts as `--help`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory as _};

use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::config_file;
use crate::output::plural;
use crate::usage::PROGRAM;

#[derive(Args, Debug)]
pub(crate) struct ManPageArgs {
    /// The folder to write them to; created if missing
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints the first page, or writes all.
pub(crate) fn run(args: &ManPageArgs) -> CommandResult {
    let mut tree = Cli::command();
    tree.build();
    let mut pages = Vec::new();
    collect(&tree, PROGRAM.to_owned(), &mut pages);
    let Some(folder) = &args.out else {
        let page = pages.into_iter().next().map(|(_, page)| page).unwrap_or_default();
        return Ok(Answer::text(page.clone()).with("page", page));
    };
    let cannot = |path: &Path, error: &std::io::Error| {
        CommandError::Output(format!("can't write `{}`: {}", path.display(), config_file::why(error)))
    };
    fs::create_dir_all(folder).map_err(|error| cannot(folder, &error))?;
    let mut names = Vec::new();
    for (name, page) in pages {
        let path = folder.join(format!("{name}.1"));
        fs::write(&path, page).map_err(|error| cannot(&path, &error))?;
        names.push(name);
    }
    let text = format!("{} in {}\n", plural(names.len(), "manual page"), folder.display());
    Ok(Answer::text(text).with("pages", names))
}

fn collect(command: &clap::Command, name: String, pages: &mut Vec<(String, String)>) {
    let mut page = Vec::new();
    // A vector takes whatever it is given.
    let _ = clap_mangen::Man::new(command.clone()).render(&mut page);
    pages.push((name.clone(), String::from_utf8_lossy(&page).into_owned()));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        collect(below, format!("{name}-{}", below.get_name()), pages);
    }
}
