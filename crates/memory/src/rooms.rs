//! The project's rooms, from `rooms.toml`: names, globs, summaries, entry points. Read anew when asked, so that an edit
//! counts at once; a file that can't be read is said, and the memory works without rooms.

use std::path::Path;

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::Deserialize;

/// Where rooms are described, first one found.
const FILES: [&str; 2] = ["rooms.toml", ".countersign/rooms.toml"];
/// The largest description that is read.
const LARGEST: u64 = 1024 * 1024;

/// A room.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    /// Its name.
    pub(crate) name: String,
    /// What it is about.
    pub(crate) summary: String,
    /// Which files belong to it.
    pub(crate) files: Vec<String>,
    /// Where to begin reading.
    pub(crate) entry_points: Vec<String>,
    globs: GlobSet,
}

impl Room {
    /// Whether a path of the project belongs to it.
    pub(crate) fn holds(&self, path: &str) -> bool {
        self.globs.is_match(path) || self.entry_points.iter().any(|entry| entry == path)
    }
}

/// All rooms of a project, in the order they are described.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms {
    /// The rooms.
    pub(crate) all: Vec<Room>,
    /// What could not be read, in a line.
    pub(crate) warning: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(default)]
    rooms: Vec<Described>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    name: String,
    #[serde(default)]
    summary: String,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    entry_points: Vec<String>,
}

impl Rooms {
    /// Reads the rooms of a project.
    pub(crate) fn read(folder: &Path) -> Self {
        for name in FILES {
            let path = folder.join(name);
            match std::fs::metadata(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Self::unread(name, &error.to_string()),
                Ok(meta) if meta.len() > LARGEST => return Self::unread(name, "it is larger than 1 MiB"),
                Ok(_) => {}
            }
            return match std::fs::read_to_string(&path) {
                Ok(text) => Self::parse(name, &text),
                Err(error) => Self::unread(name, &error.to_string()),
            };
        }
        Self::default()
    }

    fn unread(name: &str, why: &str) -> Self {
        let why: String = why.lines().collect::<Vec<_>>().join("; ");
        Self { all: Vec::new(), warning: Some(format!("`{name}` can't be used: {why}")) }
    }

    fn parse(name: &str, text: &str) -> Self {
        let page: Page = match toml::from_str(text) {
            Ok(page) => page,
            Err(error) => return Self::unread(name, error.message()),
        };
        let mut all: Vec<Room> = Vec::new();
        for described in page.rooms {
            if described.name.trim().is_empty() || all.iter().any(|room| room.name == described.name) {
                return Self::unread(name, "each room needs a name of its own");
            }
            let mut globs = GlobSetBuilder::new();
            for glob in &described.files {
                match Glob::new(glob) {
                    Ok(glob) => globs.add(glob),
                    Err(error) => return Self::unread(name, &format!("room `{}`: {error}", described.name)),
                };
            }
            let Ok(globs) = globs.build() else {
                return Self::unread(name, &format!("room `{}`: its globs are too many", described.name));
            };
            let Described { name, summary, files, entry_points } = described;
            all.push(Room { name, summary, files, entry_points, globs });
        }
        Self { all, warning: None }
    }

    /// The first room a file belongs to.
    pub(crate) fn of_file(&self, path: &str) -> Option<&Room> {
        self.all.iter().find(|room| room.holds(path))
    }

    /// A room by its name.
    pub(crate) fn named(&self, name: &str) -> Option<&Room> {
        self.all.iter().find(|room| room.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_read_or_said_to_be_unreadable() {
        let rooms = Rooms::parse(
            "rooms.toml",
            "[[rooms]]\nname = \"auth\"\nsummary = \"Sign-in\"\nfiles = [\"src/auth/**\"]\nentry_points = [\"src/login.rs\"]\n",
        );
        assert_eq!(rooms.of_file("src/auth/a/b.rs").map(|room| room.name.as_str()), Some("auth"));
        assert_eq!(rooms.of_file("src/login.rs").map(|room| room.name.as_str()), Some("auth"));
        assert!(rooms.of_file("src/other.rs").is_none());
        for bad in ["rooms = 3", "[[rooms]]\nnam = \"x\"", "[[rooms]]\nname = \"x\"\nfiles = [\"[\"]"] {
            assert!(Rooms::parse("rooms.toml", bad).warning.is_some(), "{bad}");
        }
    }
}
