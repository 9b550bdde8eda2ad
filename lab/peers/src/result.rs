//! The file of results: JSON, one object per line.
//!
//! `kind` names the type of a line: facts of the machine, options of an engine, a measured row, the
//! reason why an engine has no rows, a failure. Tables and pictures are made from these lines
//! alone, so that they can be made again. A file may be compressed by gzip, as the published one
//! is.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
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
    /// Options of an engine.
    Options {
        /// Situation.
        at: Situation,
        /// The engine.
        engine: Engine,
        /// Its version.
        version: String,
        /// Names and values, as stated by the adapter of the engine.
        options: Vec<Stated>,
    },
    /// A measured workload.
    Row(Box<Row>),
    /// The reason why an engine has no rows in a situation.
    Absent {
        /// Situation.
        at: Situation,
        /// The engine.
        engine: Engine,
        /// The reason.
        reason: String,
    },
    /// A process that failed.
    Failure {
        /// Situation.
        at: Situation,
        /// The engine.
        engine: Engine,
        /// Workloads of the process.
        workloads: Vec<Workload>,
        /// Number of the repetition.
        repeat: u32,
        /// The error.
        message: String,
    },
}

/// The conditions of a row: only rows of one situation are compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Situation {
    /// Contents of the database.
    pub dataset: Dataset,
    /// Bytes for caches and write buffers.
    pub budget_bytes: u64,
    /// How tables are read.
    pub io: Io,
    /// How blocks are compressed.
    pub compression: Compression,
}

impl Situation {
    /// The start of the names of its pictures.
    pub fn file_name(self) -> String {
        let (mib, io, compression) = (self.budget_bytes >> 20, self.io.name(), self.compression.name());
        format!("{}-{mib}mib-{io}-{compression}", self.dataset)
    }
}

/// One repetition of one workload on one engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Conditions.
    pub at: Situation,
    /// The engine.
    pub engine: Engine,
    /// The workload.
    pub workload: Workload,
    /// Number of the repetition, from 0.
    pub repeat: u32,
    /// Number of operations; entries in `readseq`.
    pub ops: u64,
    /// Time inside the calls.
    pub seconds: f64,
    /// Mean time of an operation; where some operations were timed one by one, of the others.
    pub ns_per_op: f64,
    /// Number of operations timed one by one, from which the percentiles come.
    pub samples: u64,
    /// Median latency.
    pub p50_ns: u64,
    /// 99th percentile of latencies.
    pub p99_ns: u64,
    /// 99.9th percentile of latencies.
    pub p999_ns: u64,
    /// CPU time of all threads per operation; for workloads that write, until background work
    /// ended.
    pub cpu_ns_per_op: f64,
    /// Time from the last operation until background work ended.
    pub settle_seconds: f64,
    /// Bytes of keys and values that were put.
    pub user_bytes: u64,
    /// Bytes read from the device by the process, until background work ended.
    pub device_read_bytes: u64,
    /// Bytes written to the device: pages that the process made dirty.
    pub device_write_bytes: u64,
    /// Bytes read by system calls; reads through a memory map need none.
    pub call_read_bytes: u64,
    /// Bytes written by system calls.
    pub call_write_bytes: u64,
    /// Resident bytes after the last operation, without those of the driver before the open.
    pub rss_bytes: u64,
    /// Part of them in pages of mapped files.
    pub rss_file_bytes: u64,
    /// Highest number of resident bytes, likewise.
    pub rss_peak_bytes: u64,
    /// Bytes of the database on disk after background work ended; for the last workload of a
    /// process, after the close.
    pub space_bytes: u64,
    /// Sorted runs or files by level after the workload, where the engine reports them.
    pub runs: Option<String>,
    /// A digest of all answers.
    pub answers: String,
}

/// Reads the lines of a file, compressed or not.
pub fn read(file: &Path) -> Result<Vec<Line>> {
    let text = read_text(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| format!("{}:{}: {error}", file.display(), number + 1))
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}

/// A line as JSON.
pub fn to_json(line: &Line) -> Result<String> {
    serde_json::to_string(line).map_err(|error| error.to_string())
}

/// The text of a file, decompressed if it begins like a gzip file.
fn read_text(file: &Path) -> std::io::Result<String> {
    let bytes = fs::read(file)?;
    let mut text = String::new();
    if bytes.starts_with(&GZIP_MAGIC) {
        MultiGzDecoder::new(bytes.as_slice()).read_to_string(&mut text)?;
    } else {
        bytes.as_slice().read_to_string(&mut text)?;
    }
    Ok(text)
}

/// The first bytes of a gzip file.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Writes the text of `rows`, compressed, to `to`. Equal rows give equal bytes: the header holds
/// neither a time nor a name.
pub fn publish(rows: &Path, to: &Path) -> Result<()> {
    let failed = |error: std::io::Error| format!("{}: {error}", to.display());
    let text = read_text(rows).map_err(|error| format!("{}: {error}", rows.display()))?;
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes()).map_err(failed)?;
    fs::write(to, encoder.finish().map_err(failed)?).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_rows_read_as_the_plain_ones_and_are_the_same_each_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let [plain, packed, again] =
            ["rows.jsonl", "rows.jsonl.gz", "again.gz"].map(|name| folder.path().join(name));
        let facts = |name: &str| Line::Facts { facts: vec![(name.to_owned(), "x".repeat(1000))] };
        let lines = [to_json(&facts("a")).expect("JSON"), to_json(&facts("b")).expect("JSON")].join("\n");
        fs::write(&plain, &lines).expect("written");
        publish(&plain, &packed).expect("compressed");
        publish(&packed, &again).expect("compressed again");
        let bytes = fs::read(&packed).expect("read");
        assert!(bytes.len() < lines.len() / 4, "{} bytes", bytes.len());
        assert_eq!(bytes, fs::read(&again).expect("read"));
        let shown = |file: &Path| format!("{:?}", read(file).expect("lines"));
        assert_eq!(shown(&packed), shown(&plain));
        fs::write(&again, &bytes[..bytes.len() / 2]).expect("cut");
        assert!(read(&again).expect_err("half a file").contains("again.gz"));
    }
}
