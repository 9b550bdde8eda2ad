//! Parameters of a workload, and their check before a database is created.

use std::path::PathBuf;

use crate::dist::Distribution;
use crate::error::Error;
use crate::keys::{KeyShape, Keys};
use crate::trace::TraceReader;
use crate::workload::Workload;

/// Parameters of a workload.
#[derive(Clone, Debug)]
pub struct Options {
    /// Items that the database holds or is filled with.
    pub num: u64,
    /// Operations of workloads that do not fill.
    pub reads: u64,
    /// Bytes of a key; `None`: the default of the shape.
    pub key_size: Option<usize>,
    /// Bytes of a value.
    pub value_size: usize,
    /// Shape of keys.
    pub key_shape: KeyShape,
    /// Threads that share the operations.
    pub threads: u32,
    /// Distribution of operations over items; the YCSB workloads have their own.
    pub distribution: Distribution,
    /// Share of lookups of absent keys in `readrandom`, `multireadrandom`, `seekrandom` and
    /// `readwhilewriting`.
    pub empty_fraction: f64,
    /// Entries that `seekrandom` reads after the first.
    pub seek_nexts: u32,
    /// Keys per call of the `multiread` workloads.
    pub multi_get: u32,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of the workload within a run, from 0. Each workload draws different items. Otherwise
    /// a workload that reads the same items in the same order as the one before it would find the
    /// cache filled for it.
    pub turn: u64,
    /// The trace that `replay` executes.
    pub trace: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            num: 1_000_000,
            reads: 1_000_000,
            key_size: None,
            value_size: 100,
            key_shape: KeyShape::Random,
            threads: 1,
            distribution: Distribution::Uniform,
            empty_fraction: 0.0,
            seek_nexts: 10,
            multi_get: 32,
            seed: 1,
            turn: 0,
            trace: None,
        }
    }
}

/// Maximum length of a value in the engine.
const VALUE_BYTES_MAX: usize = 256 << 20;

/// Maximum number of scans over deleted items: each may take milliseconds.
const DELETED_SCANS_MAX: u64 = 100;

impl Options {
    /// Checks that `workload` can run with these options, before a caller creates a database.
    ///
    /// # Errors
    /// [`Error::Options`] that names the option of `shamba bench`, its bounds and its value.
    pub fn check(&self, workload: Workload) -> Result<(), Error> {
        if workload == Workload::Replay {
            self.trace()?;
        }
        let is_alone = matches!(workload, Workload::ScanDeletedRange | Workload::ScanDeletedKeys);
        if is_alone && self.threads > 1 {
            let name = workload.name();
            return Err(Error::Options(format!("{name} deletes all items: --threads must be 1")));
        }
        self.keys(workload).map(|_| ())
    }

    /// The trace of a replay, opened at its start.
    pub(crate) fn trace(&self) -> Result<TraceReader, Error> {
        let path =
            self.trace.as_ref().ok_or_else(|| Error::Options("replay needs --trace FILE".to_owned()))?;
        if self.threads > 1 {
            return Err(Error::Options("replay executes its trace in order: --threads must be 1".to_owned()));
        }
        Ok(TraceReader::open(path)?)
    }

    /// Key generator of `workload`.
    pub(crate) fn keys(&self, workload: Workload) -> Result<Keys, Error> {
        let refused = |text: String| Err(Error::Options(text));
        for (option, count) in [("--num", self.num), ("--reads", self.reads)] {
            if count == 0 || count > 1 << 40 {
                return refused(format!("{option} must be from 1 to 2^40, not {count}"));
            }
        }
        if self.threads == 0 || self.threads > 1024 {
            return refused(format!("--threads must be from 1 to 1024, not {}", self.threads));
        }
        if self.multi_get == 0 || self.multi_get > 1 << 16 {
            return refused(format!("--multi-get must be from 1 to 65536, not {}", self.multi_get));
        }
        if !(0.0..=1.0).contains(&self.empty_fraction) {
            return refused(format!("--empty-fraction must be from 0 to 1, not {}", self.empty_fraction));
        }
        if self.value_size > VALUE_BYTES_MAX {
            return refused(format!("--value-size must be at most 256 MiB, not {} bytes", self.value_size));
        }
        let size = self.key_size.unwrap_or_else(|| self.key_shape.default_key_size());
        if workload == Workload::Queue && size < 16 {
            return refused(format!("--key-size must be at least 16 bytes for queue, not {size}"));
        }
        let inserts = matches!(workload, Workload::YcsbD | Workload::YcsbE);
        let items = self.num + if inserts { self.ops(workload) } else { 0 };
        // The keys of a fill are the same for workloads that insert more.
        let keys = Keys::new(self.key_shape, size, 2 * self.num)
            .and_then(|keys| keys.check_fits(2 * items).map(|()| keys));
        keys.or_else(|detail| refused(format!("--key-size: {detail}")))
    }

    /// Number of operations of `workload`.
    pub(crate) fn ops(&self, workload: Workload) -> u64 {
        match workload {
            Workload::FillSeq | Workload::FillRandom | Workload::Overwrite | Workload::Queue => self.num,
            Workload::ScanDeletedRange | Workload::ScanDeletedKeys => self.reads.min(DELETED_SCANS_MAX),
            _ => self.reads,
        }
    }
}
