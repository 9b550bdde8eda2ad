//! Why Shamba loses where it does: `explanations.json`, in the order in which they are asked.
//!
//! An explanation names what it is about by patterns; what it leaves out may be anything. The first that fits is the
//! one. Whoever measures anew reads the rows that are marked `?` and either mends the engine or adds the reason here.

use serde::Deserialize;

use crate::gathered::Metric;
use crate::peer::Engine;
use crate::result::Situation;
use crate::workload::Workload;

/// A row that is lost.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Where.
    pub at: Situation,
    /// In which workload.
    pub workload: Workload,
    /// In what.
    pub metric: Metric,
    /// To which engine, the best of all.
    pub winner: Engine,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pattern {
    #[serde(default)]
    metrics: Vec<String>,
    #[serde(default)]
    workloads: Vec<String>,
    /// Beginnings of engines' names, so that `rocksdb` is all its variants.
    #[serde(default)]
    winners: Vec<String>,
    #[serde(default)]
    io: Option<String>,
    #[serde(default)]
    budgets_mib: Vec<u64>,
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

/// All explanations.
pub struct Explanations(Vec<Pattern>);

impl Explanations {
    /// Those of this build.
    pub fn built_in() -> Self {
        let text = include_str!("explanations.json");
        // The file is part of the program, and a test reads it.
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    /// The number and the text of the one that fits.
    pub fn of(&self, loss: &Loss) -> Option<(usize, &str)> {
        let place = self.0.iter().position(|pattern| pattern.fits(loss))?;
        Some((place + 1, self.0[place].why.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{Compression, Io};

    #[test]
    fn the_file_parses_and_names_only_what_there_is() {
        let patterns: Vec<Pattern> =
            serde_json::from_str(include_str!("explanations.json")).expect("explanations.json");
        for pattern in &patterns {
            let known = |names: &[String], all: &[&str]| {
                names.iter().for_each(|name| assert!(all.contains(&name.as_str()), "{name}"));
            };
            known(&pattern.metrics, &Metric::ALL.map(Metric::name));
            known(&pattern.workloads, &Workload::ALL.map(Workload::name));
            known(&pattern.winners, &Engine::ALL.map(Engine::name));
            assert!(!pattern.why.is_empty());
        }
    }

    #[test]
    fn patterns_pick_the_rows_they_name() {
        let at = Situation {
            dataset: "10x16+16".parse().expect("a data set"),
            budget_bytes: 8 << 20,
            io: Io::PageCache,
            compression: Compression::None,
        };
        let loss =
            Loss { at, workload: Workload::ReadSeq, metric: Metric::Time, winner: Engine::RocksdbHash };
        let fits = |text: &str| serde_json::from_str::<Pattern>(text).expect("a pattern").fits(&loss);
        assert!(fits(r#"{"why": "x"}"#));
        assert!(fits(
            r#"{"winners": ["rocksdb"], "workloads": ["readseq"], "budgets_mib": [8], "why": "x"}"#
        ));
        assert!(!fits(r#"{"winners": ["lmdb"], "why": "x"}"#));
        assert!(!fits(r#"{"metrics": ["cpu"], "why": "x"}"#));
        assert!(!fits(r#"{"io": "direct", "why": "x"}"#));
    }
}
