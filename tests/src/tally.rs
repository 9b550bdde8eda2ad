//! What a suite has done: counted, printed, and held to minima, so that a suite cannot quietly do nothing.

use std::collections::BTreeMap;
use std::fmt;

/// Named counts.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    counts: BTreeMap<String, u64>,
}

impl Tally {
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

    /// A count; 0 if never touched.
    pub fn get(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Takes over another tally: names that start with "max " are maxima, the others are sums.
    pub fn merge(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            if name.starts_with("max ") {
                self.raise(name, *count);
            } else {
                self.add(name, *count);
            }
        }
    }

    /// The counts as a JSON object. Names are the suites' own, without anything to escape.
    pub fn json(&self) -> String {
        let pairs = self.counts.iter().map(|(name, count)| format!("{name:?}:{count}"));
        format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
    }

    /// Holds counts to their minima.
    ///
    /// # Panics
    /// If one falls short.
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
