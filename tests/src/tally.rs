//! Counts of a suite's work: printed and compared with minima, so that a suite cannot silently do
//! nothing.

use std::collections::BTreeMap;
use std::fmt;

/// Named counts.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    counts: BTreeMap<String, u64>,
}

impl Tally {
    /// A tally of these counts.
    pub fn of(counts: &[(&str, u64)]) -> Self {
        Self { counts: counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect() }
    }

    /// Prints the work of a suite and keeps its counts.
    ///
    /// # Panics
    /// As [`Self::keep`].
    pub fn tell(&self, suite: &str, story: &str) {
        println!("{suite}: {story}\n{self}");
        self.keep(suite);
    }

    /// Writes the counts to the directory that `SHAMBA_TALLIES` names (an absolute path, created if
    /// necessary), one line each of count, tab and name, for `cargo xtask reliability`.
    ///
    /// # Panics
    /// If the variable is set and the file cannot be written.
    pub fn keep(&self, suite: &str) {
        let Some(directory) = std::env::var_os("SHAMBA_TALLIES") else { return };
        let lines: String = self.counts.iter().map(|(name, count)| format!("{count}\t{name}\n")).collect();
        let path = std::path::Path::new(&directory).join(suite);
        let written = std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&path, lines));
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// The sum of several tallies.
    pub fn sum<'a>(tallies: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut total = Self::default();
        tallies.into_iter().for_each(|tally| total.merge(tally));
        total
    }

    /// Adds to a count.
    pub fn add(&mut self, name: &str, more: u64) {
        if let Some(count) = self.counts.get_mut(name) {
            *count += more;
        } else {
            self.counts.insert(name.to_owned(), more);
        }
    }

    /// Raises a count that is a maximum.
    pub fn raise(&mut self, name: &str, to: u64) {
        let count = self.counts.entry(name.to_owned()).or_default();
        *count = (*count).max(to);
    }

    /// A count; 0 if it does not exist.
    pub fn get(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Merges another tally: names that start with "max " are maxima, the others are sums.
    pub fn merge(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            if name.starts_with("max ") {
                self.raise(name, *count);
            } else {
                self.add(name, *count);
            }
        }
    }

    /// The counts as a JSON object. Names are the suites' own and need no escaping.
    pub fn json(&self) -> String {
        let pairs = self.counts.iter().map(|(name, count)| format!("{name:?}:{count}"));
        format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
    }

    /// Checks that counts reach their minima.
    ///
    /// # Panics
    /// If a count is below its minimum.
    pub fn require(&self, minima: &[(&str, u64)]) {
        for (name, least) in minima {
            let count = self.get(name);
            assert!(
                count >= *least,
                "the suite must reach {least} of {name:?}, and reached {count}:\n{self}"
            );
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in &self.counts {
            writeln!(f, "  {name:<34} {count:>12}")?;
        }
        Ok(())
    }
}
