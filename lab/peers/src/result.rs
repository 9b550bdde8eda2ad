//! What is kept of a run: JSON, an object a line.
//!
//! Each line says what it is in `kind`: the machine, an engine's options, a measured row, a row that cannot be, a
//! failure. Tables and figures are made from these lines alone, so they can be made again.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::book::Dataset;
use crate::peer::{Compression, Engine, Io, Result, Stated};
use crate::workload::Workload;

/// A line of `results.jsonl`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Line {
    /// The machine, the build and the command.
    Facts {
        /// Names and values.
        facts: Vec<Stated>,
    },
    /// What an engine was opened with.
    Options {
        /// Where.
        at: Situation,
        /// The engine.
        engine: Engine,
        /// Its version.
        version: String,
        /// Names and values, as the engine's adapter states them.
        options: Vec<Stated>,
    },
    /// A measured workload.
    Row(Box<Row>),
    /// Why an engine has no rows in a situation.
    Absent {
        /// Where.
        at: Situation,
        /// The engine.
        engine: Engine,
        /// Why.
        reason: String,
    },
    /// A process that failed.
    Failure {
        /// Where.
        at: Situation,
        /// The engine.
        engine: Engine,
        /// What it was to do.
        workloads: Vec<Workload>,
        /// In which repetition.
        repeat: u32,
        /// What it said.
        message: String,
    },
}

/// What rows must have in common to be compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Situation {
    /// What the database was filled with.
    pub dataset: Dataset,
    /// Bytes for caches and write buffers.
    pub budget_bytes: u64,
    /// How tables are read.
    pub io: Io,
    /// How blocks are compressed.
    pub compression: Compression,
}

impl Situation {
    /// As names of files have it.
    pub fn file_name(self) -> String {
        let (mib, io, compression) = (self.budget_bytes >> 20, self.io.name(), self.compression.name());
        format!("{}-{mib}mib-{io}-{compression}", self.dataset)
    }
}

/// One workload of one engine, once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Where.
    pub at: Situation,
    /// The engine.
    pub engine: Engine,
    /// The workload.
    pub workload: Workload,
    /// Which repetition, from 0.
    pub repeat: u32,
    /// Operations; of `readseq`, entries.
    pub ops: u64,
    /// Time inside operations.
    pub seconds: f64,
    /// Mean time of an operation; of those without a clock of their own where some were.
    pub ns_per_op: f64,
    /// Times that were measured one by one, on which the percentiles rest.
    pub samples: u64,
    /// Half of the operations took at most this.
    pub p50_ns: u64,
    /// 99 % took at most this.
    pub p99_ns: u64,
    /// 99.9 % took at most this.
    pub p999_ns: u64,
    /// CPU time of all threads, an operation; where something was written, until the process came to rest.
    pub cpu_ns_per_op: f64,
    /// From the last operation until the process came to rest.
    pub settle_seconds: f64,
    /// Bytes of keys and values that were put.
    pub user_bytes: u64,
    /// Bytes that the device read for the process, until it came to rest.
    pub device_read_bytes: u64,
    /// Bytes that the process gave to the device to write: pages that it made dirty.
    pub device_write_bytes: u64,
    /// Bytes read by system calls; memory maps read without.
    pub call_read_bytes: u64,
    /// Bytes written by system calls.
    pub call_write_bytes: u64,
    /// Resident bytes after the last operation, without what the driver had before the database was opened.
    pub rss_bytes: u64,
    /// Those of them that are pages of mapped files.
    pub rss_file_bytes: u64,
    /// The most that was ever resident, likewise.
    pub rss_peak_bytes: u64,
    /// Bytes that the database takes on disk, after the process came to rest; of a process's last workload, after the close.
    pub space_bytes: u64,
    /// Sorted runs or files by level after it, where the engine tells.
    pub runs: Option<String>,
    /// A digest of every answer, equal for equal answers.
    pub answers: String,
}

/// Reads the lines of a file.
pub fn read(file: &Path) -> Result<Vec<Line>> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| format!("{}:{}: {error}", file.display(), number + 1))
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}

/// A line as JSON.
pub fn to_json(line: &Line) -> Result<String> {
    serde_json::to_string(line).map_err(|error| error.to_string())
}
