//! Which log lines are written: a level, or levels of modules.

use tracing_subscriber::filter::{LevelFilter, Targets};

/// Levels, the quietest first.
const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// Modules that can have a level of their own, and their crates. `core`, `desk` and `wire` are former names.
const MODULES: [(&str, &str); 13] = [
    ("cli", "countersign"),
    ("demo", "countersign_demo"),
    ("gateway", "countersign_gateway"),
    ("mcp", "countersign_mcp"),
    ("memory", "countersign_memory"),
    ("pack", "countersign_pack"),
    ("policy", "countersign_policy"),
    ("store", "countersign_store"),
    ("telemetry", "countersign_telemetry"),
    ("web", "countersign_web"),
    ("core", "countersign_policy"),
    ("desk", "countersign_web"),
    ("wire", "countersign_mcp"),
];

const MAX_FILTER_BYTES: usize = 4096;

/// How much is logged, by module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    level: LevelFilter,
    /// Targets with a level of their own, such as `countersign_gateway::upstreams`.
    targets: Vec<(String, LevelFilter)>,
}

impl LogFilter {
    /// What is logged where nothing is asked for.
    pub fn warnings() -> Self {
        Self { level: LevelFilter::WARN, targets: Vec::new() }
    }

    /// Other crates never log below `warn`: what they print at `debug` may hold headers, and with them secrets.
    pub(crate) fn targets(&self) -> Targets {
        let own = MODULES.iter().map(|(_, target)| ((*target).to_owned(), self.level));
        Targets::new()
            .with_default(self.level.min(LevelFilter::WARN))
            .with_targets(own)
            .with_targets(self.targets.iter().cloned())
    }
}

impl std::str::FromStr for LogFilter {
    type Err = String;

    /// `info`, `gateway=debug,mcp=trace`, or both: `warn,store=debug`. Without a level of their own modules log at `warn`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > MAX_FILTER_BYTES {
            return Err(format!("a filter has at most {MAX_FILTER_BYTES} bytes"));
        }
        let mut filter = Self::warnings();
        let mut has_level = false;
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                Some((module, level)) => {
                    filter.targets.push((target(module.trim())?, read_level(level.trim())?))
                }
                None if has_level => return Err(format!("`{part}` is a second level without a module")),
                None => (filter.level, has_level) = (read_level(part)?, true),
            }
        }
        Ok(filter)
    }
}

fn read_level(text: &str) -> Result<LevelFilter, String> {
    let found = LEVELS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, level)| *level).ok_or_else(|| {
        let names: Vec<&str> = LEVELS.iter().map(|(name, _)| *name).collect();
        let must_be = countersign_policy::words::choices(&names);
        format!("`{text}` is no level: must be {must_be}, or per module such as gateway=debug")
    })
}

/// The target of a module: `gateway`, or a part of it such as `gateway::upstreams`.
fn target(module: &str) -> Result<String, String> {
    let (first, rest) = module.split_once("::").map_or((module, None), |(first, rest)| (first, Some(rest)));
    let Some((_, name)) = MODULES.iter().find(|(known, _)| *known == first) else {
        let names: Vec<&str> = MODULES.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "`{module}` is no module: must be {}",
            countersign_policy::words::choices(&names)
        ));
    };
    Ok(rest.map_or_else(|| (*name).to_owned(), |rest| format!("{name}::{rest}")))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    fn read(text: &str) -> Targets {
        text.parse::<LogFilter>().unwrap().targets()
    }

    #[test]
    fn a_filter_is_a_level_or_levels_of_modules() {
        let all = read("debug");
        assert!(all.would_enable("countersign_gateway::conduct", &Level::DEBUG));
        assert!(all.would_enable("countersign::commands", &Level::DEBUG));
        assert!(!all.would_enable("countersign_gateway", &Level::TRACE));
        let some = read("gateway=debug, mcp::client=trace");
        assert!(some.would_enable("countersign_gateway::conduct", &Level::DEBUG));
        assert!(some.would_enable("countersign_mcp::client::connect", &Level::TRACE));
        assert!(!some.would_enable("countersign_mcp::server", &Level::DEBUG));
        assert!(!some.would_enable("countersign_store", &Level::INFO));
        assert!(some.would_enable("countersign_store", &Level::WARN));
        // The name of the program begins those of all our crates.
        assert!(!read("cli=trace").would_enable("countersign_store", &Level::INFO));
        assert!(!read("info,store=off").would_enable("countersign_store", &Level::ERROR));
    }

    #[test]
    fn other_crates_stay_at_warn() {
        let all = read("trace");
        assert!(all.would_enable("hyper::proto", &Level::WARN));
        assert!(!all.would_enable("hyper::proto", &Level::INFO));
        assert!(!read("error").would_enable("hyper::proto", &Level::WARN));
    }

    #[test]
    fn what_is_no_filter_is_refused_with_what_would_be_one() {
        for text in ["loud", "", "gateway=", "gateway=loud", "=info"] {
            let why = text.parse::<LogFilter>().unwrap_err();
            assert!(why.contains("must be"), "{text}: {why}");
        }
        assert!("hyper=debug".parse::<LogFilter>().unwrap_err().contains("gateway"), "modules are named");
        assert!("info,debug".parse::<LogFilter>().is_err() && "info,,".parse::<LogFilter>().is_err());
        assert!("x".repeat(MAX_FILTER_BYTES + 1).parse::<LogFilter>().is_err());
    }
}
