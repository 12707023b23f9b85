//! The project's rooms, from `rooms.toml`: names, globs, summaries, entry points. Read at each request; a file that can't be read is a
//! warning, and the memory works without rooms.

use std::path::Path;

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::Deserialize;

/// Where rooms are described, first one found.
const FILES: [&str; 2] = ["rooms.toml", ".countersign/rooms.toml"];
const LARGEST: u64 = 1024 * 1024;

#[derive(Clone, Debug)]
pub(crate) struct ProjectRoom {
    pub(crate) name: String,
    pub(crate) summary: String,
    pub(crate) files: Vec<String>,
    pub(crate) entry_points: Vec<String>,
    globs: GlobSet,
}

impl ProjectRoom {
    /// Whether a path of the project belongs to it.
    pub(crate) fn holds(&self, path: &str) -> bool {
        self.globs.is_match(path) || self.entry_points.iter().any(|entry| entry == path)
    }
}

/// All rooms of a project, in the order they are described.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProjectRooms {
    pub(crate) all: Vec<ProjectRoom>,
    /// What could not be read, in a line.
    pub(crate) warning: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RoomsFile {
    #[serde(default)]
    rooms: Vec<RoomEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RoomEntry {
    name: String,
    #[serde(default)]
    summary: String,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    entry_points: Vec<String>,
}

impl ProjectRooms {
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
        let page: RoomsFile = match toml::from_str(text) {
            Ok(page) => page,
            Err(error) => return Self::unread(name, error.message()),
        };
        let mut all: Vec<ProjectRoom> = Vec::new();
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
            let RoomEntry { name, summary, files, entry_points } = described;
            all.push(ProjectRoom { name, summary, files, entry_points, globs });
        }
        Self { all, warning: None }
    }

    /// The first room a file belongs to.
    pub(crate) fn of_file(&self, path: &str) -> Option<&ProjectRoom> {
        self.all.iter().find(|room| room.holds(path))
    }

    pub(crate) fn named(&self, name: &str) -> Option<&ProjectRoom> {
        self.all.iter().find(|room| room.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_read_or_said_to_be_unreadable() {
        let rooms = ProjectRooms::parse(
            "rooms.toml",
            "[[rooms]]\nname = \"auth\"\nsummary = \"Sign-in\"\nfiles = [\"src/auth/**\"]\nentry_points = [\"src/login.rs\"]\n",
        );
        assert_eq!(rooms.of_file("src/auth/a/b.rs").map(|room| room.name.as_str()), Some("auth"));
        assert_eq!(rooms.of_file("src/login.rs").map(|room| room.name.as_str()), Some("auth"));
        assert!(rooms.of_file("src/other.rs").is_none());
        for bad in ["rooms = 3", "[[rooms]]\nnam = \"x\"", "[[rooms]]\nname = \"x\"\nfiles = [\"[\"]"] {
            assert!(ProjectRooms::parse("rooms.toml", bad).warning.is_some(), "{bad}");
        }
    }
}
