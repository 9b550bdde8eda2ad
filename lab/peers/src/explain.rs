//! Reasons for lost rows: the patterns of `explanations.json`.
//!
//! A pattern names metrics, workloads, winners, budgets and the way of reading; an empty field fits
//! anything. The first pattern that fits a row is its reason, and its place in the file is its
//! number. A lost row without a pattern is marked `▼?`: either the engine is improved, or a reason
//! is added.

use serde::Deserialize;

use crate::gathered::Metric;
use crate::peer::Engine;
use crate::result::Situation;
use crate::workload::Workload;

/// A lost row.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Situation.
    pub at: Situation,
    /// Workload.
    pub workload: Workload,
    /// Metric.
    pub metric: Metric,
    /// The best engine that is clearly better.
    pub winner: Engine,
}

/// The reason for a lost row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// Its place in the file, from 1.
    pub number: usize,
    /// In one line.
    pub short: String,
    /// In full.
    pub why: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pattern {
    #[serde(default)]
    metrics: Vec<String>,
    #[serde(default)]
    workloads: Vec<String>,
    /// Prefixes of names of engines: `rocksdb` covers all its variants.
    #[serde(default)]
    winners: Vec<String>,
    #[serde(default)]
    io: Option<String>,
    #[serde(default)]
    budgets_mib: Vec<u64>,
    /// One line, for the published page.
    short: String,
    /// All of it, for the full tables.
    why: String,
}

impl Pattern {
    fn fits(&self, loss: &Loss) -> bool {
        let among =
            |names: &[String], name: &str| names.is_empty() || names.iter().any(|known| known == name);
        let winner = loss.winner.name();
        among(&self.metrics, loss.metric.name())
            && among(&self.workloads, loss.workload.name())
            && (self.winners.is_empty()
                || self.winners.iter().any(|start| winner.starts_with(start.as_str())))
            && self.io.as_deref().is_none_or(|io| io == loss.at.io.name())
            && (self.budgets_mib.is_empty() || self.budgets_mib.contains(&(loss.at.budget_bytes >> 20)))
    }
}

/// The patterns, in the order of the file.
pub struct Explanations(Vec<Pattern>);

impl Explanations {
    /// The patterns of this build.
    pub fn built_in() -> Self {
        let text = include_str!("explanations.json");
        // The file is part of the program, and a test parses it.
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    /// The reason of the first pattern that fits.
    pub fn of(&self, loss: &Loss) -> Option<Reason> {
        let place = self.0.iter().position(|pattern| pattern.fits(loss))?;
        let Pattern { short, why, .. } = &self.0[place];
        Some(Reason { number: place + 1, short: short.clone(), why: why.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{Compression, Io};

    #[test]
    fn the_file_parses_and_all_names_exist() {
        let patterns: Vec<Pattern> =
            serde_json::from_str(include_str!("explanations.json")).expect("explanations.json");
        for pattern in &patterns {
            let known = |names: &[String], all: &[&str]| {
                names.iter().for_each(|name| assert!(all.contains(&name.as_str()), "{name}"));
            };
            known(&pattern.metrics, &Metric::ALL.map(Metric::name));
            known(&pattern.workloads, &Workload::ALL.map(Workload::name));
            known(&pattern.winners, &Engine::ALL.map(Engine::name));
            assert!(!pattern.why.is_empty() && (1..=105).contains(&pattern.short.len()), "{pattern:?}");
        }
    }

    #[test]
    fn a_pattern_fits_the_rows_that_it_names() {
        let at = Situation {
            dataset: "10x16+16".parse().expect("a data set"),
            budget_bytes: 8 << 20,
            io: Io::PageCache,
            compression: Compression::None,
        };
        let loss =
            Loss { at, workload: Workload::ReadSeq, metric: Metric::Time, winner: Engine::RocksdbHash };
        let fits = |text: &str| serde_json::from_str::<Pattern>(text).expect("a pattern").fits(&loss);
        assert!(fits(r#"{"short": "y", "why": "x"}"#));
        assert!(fits(
            r#"{"winners": ["rocksdb"], "workloads": ["readseq"], "budgets_mib": [8], "short": "y", "why": "x"}"#
        ));
        assert!(!fits(r#"{"winners": ["lmdb"], "short": "y", "why": "x"}"#));
        assert!(!fits(r#"{"metrics": ["cpu"], "short": "y", "why": "x"}"#));
        assert!(!fits(r#"{"io": "direct", "short": "y", "why": "x"}"#));
    }
}
