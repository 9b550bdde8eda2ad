//! What a workload measured.
//!
//! Not here: JSON and tables (crate `shamba-cli`).

use shamba::{Db, Stats};

use crate::measure::rss_bytes;
use crate::run::Totals;
use crate::workload::Workload;

/// The figures of one workload; the names are those of the JSON fields.
#[derive(Clone, Debug)]
pub struct BenchResult {
    /// The workload.
    pub name: Workload,
    /// Operations done.
    pub ops: u64,
    /// Wall time of the busiest thread, without making keys and values.
    pub seconds: f64,
    /// Operations a second, of all threads together.
    pub ops_per_s: f64,
    /// Mean time of one operation as its thread saw it.
    pub ns_per_op: f64,
    /// Half of all operations took at most this.
    pub p50_ns: u64,
    /// 99 % of all operations took at most this.
    pub p99_ns: u64,
    /// 99.9 % of all operations took at most this.
    pub p999_ns: u64,
    /// CPU time of the whole process, background included, key making not, per operation.
    pub cpu_ns_per_op: f64,
    /// Share of the lookups that found their key; 0 when there were none.
    pub found_share: f64,
    /// The share that the workload must find in a database that its fill made; `None`: no saying.
    pub expected_found_share: Option<f64>,
    /// Digests computed per point lookup.
    pub hashes_per_get: f64,
    /// Filters consulted per point lookup.
    pub filters_per_get: f64,
    /// Filter modules tested per point lookup.
    pub modules_per_get: f64,
    /// Filters that said "maybe" of a key that was not there, per point lookup.
    pub false_positives_per_get: f64,
    /// Filter slices read from files, per point lookup.
    pub filter_reads_per_get: f64,
    /// Index partitions read from files, per point lookup.
    pub index_reads_per_get: f64,
    /// Data blocks read from files, per point lookup.
    pub data_reads_per_get: f64,
    /// Bytes that merging is behind at the end.
    pub debt_bytes: u64,
    /// Bytes written to files of all kinds meanwhile.
    pub bytes_written: u64,
    /// Resident bytes of the process at the end; 0 where the system does not tell.
    pub rss_bytes: u64,
    /// Bytes that the engine counts as its own at the end.
    pub ledger_bytes: u64,
    /// The deepest level that is not empty.
    pub levels: u32,
    /// Runs that a lookup may consult.
    pub runs: u64,
    /// Whether devices were emulated.
    pub emulated: bool,
}

impl BenchResult {
    pub(crate) fn new(workload: Workload, db: &Db, totals: &Totals, before: &Stats) -> Self {
        let stats = db.stats().since(before);
        let ops = totals.ops.max(1) as f64;
        let gets = stats.lookups.max(1) as f64;
        let per_get = |count: u64| count as f64 / gets;
        let seconds = totals.seconds;
        Self {
            name: workload,
            ops: totals.ops,
            seconds,
            ops_per_s: if seconds > 0.0 { totals.ops as f64 / seconds } else { 0.0 },
            ns_per_op: totals.busy_ns as f64 / ops,
            p50_ns: totals.latencies.quantile_ns(0.5),
            p99_ns: totals.latencies.quantile_ns(0.99),
            p999_ns: totals.latencies.quantile_ns(0.999),
            cpu_ns_per_op: totals.cpu_ns as f64 / ops,
            found_share: if totals.lookups == 0 { 0.0 } else { totals.found as f64 / totals.lookups as f64 },
            expected_found_share: totals.expected_share(),
            hashes_per_get: per_get(stats.hashes),
            filters_per_get: per_get(stats.filters_consulted),
            modules_per_get: per_get(stats.modules_tested),
            false_positives_per_get: per_get(stats.false_positives),
            filter_reads_per_get: per_get(stats.filter_reads),
            index_reads_per_get: per_get(stats.index_reads),
            data_reads_per_get: per_get(stats.data_reads),
            debt_bytes: stats.debt_bytes,
            bytes_written: stats.bytes_written(),
            rss_bytes: rss_bytes().unwrap_or(0),
            ledger_bytes: db.memory().ledger_bytes,
            levels: stats.deepest_level,
            runs: stats.runs,
            emulated: stats.emulated,
        }
    }
}
