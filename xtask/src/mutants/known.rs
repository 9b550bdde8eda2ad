//! Tests as earlier runs found them without a mutant, in a file.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use super::build::Executable;
use super::trial::Test;
use super::{HOME, append_line, locked};
use crate::tidy;

/// Times and reached functions of tests of executables that have not changed: a file of lines, so
/// that a run that goes on need not run all tests without a mutant again.
pub struct Known {
    path: PathBuf,
    /// By executable, time of its build, and test: the time that it took in microseconds and the
    /// functions that it reaches; none of a test that is not asked.
    lines: HashMap<String, Option<(u64, BTreeSet<usize>)>>,
    appends: Mutex<()>,
}

impl Known {
    /// Those of earlier runs.
    pub fn open() -> Self {
        let path = tidy::root().join(HOME).join("tests");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let entry = |line: &str| {
            let (key, rest) = line.rsplit_once('\t')?;
            let mut numbers = rest.split(' ').filter_map(|word| word.parse::<u64>().ok());
            let took = numbers.next();
            Some((key.to_owned(), took.map(|us| (us, numbers.map(|number| number as usize).collect()))))
        };
        Self { path, lines: text.lines().filter_map(entry).collect(), appends: Mutex::new(()) }
    }

    fn key(executable: &Executable, name: &str) -> String {
        let built = fs::metadata(&executable.path).and_then(|file| file.modified()).ok();
        let built =
            built.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
        format!("{}\t{}\t{name}", executable.path.display(), built.as_micros())
    }

    /// A test of an unchanged executable; `Some(None)` if it does not run with mutants.
    pub fn get(&self, executable: &Executable, name: &str) -> Option<Option<Test>> {
        let known = self.lines.get(&Self::key(executable, name))?.clone();
        Some(known.map(|(us, reaches)| Test {
            executable: executable.clone(),
            name: name.to_owned(),
            took: Duration::from_micros(us),
            reaches,
        }))
    }

    /// Keeps a test.
    pub fn keep(&self, executable: &Executable, name: &str, test: Option<&Test>) -> Result<(), String> {
        let _one_at_a_time = locked(&self.appends);
        let numbers = test.map_or("-".to_owned(), |test| {
            let reaches: Vec<String> = test.reaches.iter().map(usize::to_string).collect();
            format!("{} {}", test.took.as_micros(), reaches.join(" "))
        });
        append_line(&self.path, &format!("{}\t{numbers}", Self::key(executable, name)))
    }
}
