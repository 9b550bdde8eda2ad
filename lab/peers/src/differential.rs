//! The same random trace to Shamba, to RocksDB and to a sorted map: every answer must be the same.
//!
//! The map is the judge of both; RocksDB is there because it was written by others, who read the
//! same contract (puts, deletes, atomic batches, range deletes, snapshots, cursors that turn
//! anywhere) their own way. Options are tiny and drawn from the seed, so that a thousand operations
//! meet every level. A failure prints the command that runs it again.
//!
//! Not here: crashes, faults and damage (the suites in `tests/`), which RocksDB need not survive
//! our way.

use clap::Args;

use crate::peer::Result;

/// Options of the comparison.
#[derive(Args, Debug, Clone)]
pub struct Options {
    /// Seed of the first trace; by the clock unless given, and printed.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Operations of a trace.
    #[arg(long, default_value_t = 20_000)]
    pub ops: u64,
    /// Traces, each with the next seed and other options.
    #[arg(long, default_value_t = 50)]
    pub traces: u64,
}

/// Without RocksDB there is nobody to compare with.
///
/// # Errors
/// Always.
#[cfg(not(feature = "rocksdb"))]
pub fn run(_options: &Options) -> Result<()> {
    Err("the differential test needs RocksDB: build with --features rocksdb".to_owned())
}

#[cfg(feature = "rocksdb")]
pub use with_rocksdb::run;

#[cfg(feature = "rocksdb")]
mod with_rocksdb {
    use std::time::{SystemTime, UNIX_EPOCH};

    use shamba_tests::tally::Tally;

    use super::{Options, Result};
    use crate::trace::Trace;

    /// Runs the traces.
    ///
    /// # Errors
    /// The first difference, with the command that shows it again.
    pub fn run(options: &Options) -> Result<()> {
        let by_clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
        let first = options.seed.unwrap_or_else(by_clock);
        println!("differential: seed {first}");
        let mut tally = Tally::default();
        for seed in first..first + options.traces {
            Trace::new(seed, options.ops).run(&mut tally).map_err(|difference| {
                format!(
                    "{difference}\nagain: cargo run --release --no-default-features --features rocksdb -- differential \
                     --seed {seed} --traces 1 --ops {}",
                    options.ops
                )
            })?;
        }
        let last = first + options.traces.saturating_sub(1);
        tally.tell(
            "differential",
            &format!("seeds {first} to {last}: Shamba, RocksDB and a sorted map agree"),
        );
        // Of less it would be chance.
        if options.traces * options.ops >= 20_000 {
            tally.require(&minima(options.traces * options.ops));
        }
        Ok(())
    }

    /// Minimum counts that traces of this many operations must reach, so that an empty comparison
    /// does not pass.
    fn minima(operations: u64) -> [(&'static str, u64); 6] {
        [
            ("operations", operations),
            ("range deletes", operations / 240),
            ("reopens", operations / 3_000),
            ("snapshot reads", operations / 240),
            ("cursor moves", operations / 24),
            ("compactions", operations / 3_000),
        ]
    }

    #[test]
    fn a_short_trace_agrees() {
        let mut tally = Tally::default();
        for seed in 1..5 {
            Trace::new(seed, 3_000).run(&mut tally).unwrap_or_else(|difference| panic!("{difference}"));
        }
        tally.require(&minima(12_000));
    }
}
