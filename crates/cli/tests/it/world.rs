//! A folder, a home and an environment for one test, and the binary run in them. Nothing of the machine shows through.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The place one test lives in.
pub(crate) struct World {
    room: TempDir,
    variables: Vec<(&'static str, String)>,
}

impl World {
    pub(crate) fn new() -> Self {
        let room = tempfile::tempdir().unwrap();
        std::fs::create_dir(room.path().join("work")).unwrap();
        std::fs::create_dir(room.path().join("home")).unwrap();
        Self { room, variables: Vec::new() }
    }

    /// A variable that every program of this world sees.
    pub(crate) fn set(&mut self, name: &'static str, value: String) {
        self.variables.push((name, value));
    }

    /// The working folder.
    pub(crate) fn work(&self) -> PathBuf {
        self.room.path().join("work")
    }

    /// The home folder.
    pub(crate) fn home(&self) -> PathBuf {
        self.room.path().join("home")
    }

    /// Writes a file into the working folder.
    pub(crate) fn write(&self, name: &str, text: &str) -> &Self {
        let path = self.work().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work().join(name)).unwrap()
    }

    /// The binary in this world, with nothing else in its environment.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.home()).env("TZ", "UTC").env("PATH", "/usr/bin:/bin");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.work()).stdin(Stdio::null());
        command
    }

    pub(crate) fn countersign(&self, args: &[&str]) -> Command {
        let mut command = self.command(binary());
        command.args(args);
        command
    }

    /// Runs the binary to its end as somebody to whom modes of files mean something: not as root. It is started from this world's
    /// own folder, since nobody else may be let into the one it was built in.
    #[cfg(unix)]
    pub(crate) fn run_as_anybody(&self, args: &[&str]) -> Transcript {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        use std::os::unix::process::CommandExt as _;
        if std::fs::metadata(self.room.path()).unwrap().uid() != 0 {
            return self.run(args);
        }
        let open = |path: &Path| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        let program = self.room.path().join("countersign");
        if !program.exists() && std::fs::hard_link(binary(), &program).is_err() {
            std::fs::copy(binary(), &program).unwrap();
        }
        [self.room.path(), &program].into_iter().for_each(open);
        let mut command = self.command(&program);
        command.args(args).uid(65534).gid(65534);
        self.transcript(&args.join(" "), command.output().unwrap())
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Transcript {
        self.transcript(&args.join(" "), self.countersign(args).output().unwrap())
    }

    /// Runs it with variables in its environment.
    pub(crate) fn run_with(&self, variables: &[(&str, &str)], args: &[&str]) -> Transcript {
        let output = self.countersign(args).envs(variables.iter().copied()).output().unwrap();
        let set: String = variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let mut transcript = self.transcript(&args.join(" "), output);
        transcript.line.insert_str(0, &set);
        transcript
    }

    pub(crate) fn transcript(&self, args: &str, output: Output) -> Transcript {
        let room = self.room.path().to_str().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(room, "<room>");
        Transcript {
            line: format!("countersign {}", args.replace(room, "<room>")),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            code: output.status.code(),
        }
    }
}

/// Where cargo put the binary.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_countersign"))
}

/// What one run said.
#[derive(Clone)]
pub(crate) struct Transcript {
    pub(crate) line: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

impl Transcript {
    /// The one envelope on stdout; anything else there fails.
    #[track_caller]
    pub(crate) fn envelope(&self) -> Value {
        let value: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"));
        assert_eq!(value["schema_version"], 1, "{self}");
        assert_eq!(value["ok"].as_bool().unwrap(), value["errors"].as_array().unwrap().is_empty(), "{self}");
        value
    }

    /// The same with what differs from run to run replaced.
    pub(crate) fn masked(&self, masks: &[(&str, &str)]) -> Self {
        let mut masked = self.clone();
        for (from, to) in masks {
            for text in [&mut masked.line, &mut masked.stdout, &mut masked.stderr] {
                *text = text.replace(from, to);
            }
        }
        masked
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "$ {}", self.line)?;
        f.write_str(&self.stdout)?;
        for line in self.stderr.lines() {
            writeln!(f, "! {line}")?;
        }
        match self.code {
            Some(code) => writeln!(f, "→ {code}"),
            None => writeln!(f, "→ killed"),
        }
    }
}

/// Several transcripts as one text.
pub(crate) fn all(transcripts: impl IntoIterator<Item = Transcript>) -> String {
    transcripts.into_iter().map(|transcript| transcript.to_string()).collect::<Vec<_>>().join("\n")
}
