//! Results of mutants, in memory and in a file, so that a run goes on where another ended.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use super::list::Mutant;
use super::{HOME, append_line, locked};
use crate::tidy;

/// The result of a mutant, with the test that noticed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Caught(String),
    TimedOut(String),
    /// Its time ended: the number of tests that ran, and of those that reach it.
    Open(String),
    Missed,
    Unreached,
}

impl Outcome {
    /// Whether a test noticed it.
    pub fn is_caught(&self) -> bool {
        matches!(self, Self::Caught(_) | Self::TimedOut(_))
    }

    /// The text of a line, which `parse` reads.
    pub fn line(&self) -> String {
        match self {
            Self::Caught(test) => format!("caught\t{test}"),
            Self::TimedOut(test) => format!("timeout\t{test}"),
            Self::Open(tests) => format!("open\t{tests}"),
            Self::Missed => "missed".to_owned(),
            Self::Unreached => "unreached".to_owned(),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let (word, test) = line.split_once('\t').unwrap_or((line, ""));
        match word {
            "caught" => Some(Self::Caught(test.to_owned())),
            "timeout" => Some(Self::TimedOut(test.to_owned())),
            "open" => Some(Self::Open(test.to_owned())),
            "missed" => Some(Self::Missed),
            "unreached" => Some(Self::Unreached),
            _ => None,
        }
    }
}

/// The results by the mutants' keys and the texts of their functions, in memory and in a file of
/// lines.
pub struct Results {
    path: PathBuf,
    known: Mutex<BTreeMap<String, Outcome>>,
}

impl Results {
    /// Those of earlier runs.
    pub fn open() -> Result<Self, String> {
        let path = tidy::root().join(HOME).join("results");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let entry = |line: &str| {
            let (key, rest) = line.split_once('\t')?;
            let (hash, outcome) = rest.split_once('\t')?;
            Some((format!("{key}\t{hash}"), Outcome::parse(outcome)?))
        };
        Ok(Self { path, known: Mutex::new(text.lines().filter_map(entry).collect()) })
    }

    /// The result of a mutant for the present text of its function.
    pub fn get(&self, mutant: &Mutant, key: &str) -> Option<Outcome> {
        locked(&self.known).get(&format!("{key}\t{:016x}", mutant.text_hash)).cloned()
    }

    /// Keeps a result.
    pub fn keep(&self, mutant: &Mutant, key: &str, outcome: Outcome) -> Result<(), String> {
        let key = format!("{key}\t{:016x}", mutant.text_hash);
        let mut known = locked(&self.known);
        let written = append_line(&self.path, &format!("{key}\t{}", outcome.line()));
        known.insert(key, outcome);
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_as_they_are_written() {
        for outcome in [
            Outcome::Caught("a: b".into()),
            Outcome::TimedOut("c".into()),
            Outcome::Open("1 of 2".into()),
            Outcome::Missed,
            Outcome::Unreached,
        ] {
            assert_eq!(Outcome::parse(&outcome.line()), Some(outcome));
        }
    }
}
