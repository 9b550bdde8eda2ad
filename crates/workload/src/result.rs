//! Result of a workload.
//!
//! Not here: JSON and tables (crate `shamba-cli`).

use shamba::{Db, ReadsByKind, Stats};

use crate::measure::rss_bytes;
use crate::totals::Totals;
use crate::workload::Workload;

/// Figures of one workload, named like the JSON fields.
#[derive(Clone, Debug)]
pub struct BenchResult {
    /// The workload.
    pub name: Workload,
    /// Operations done.
    pub ops: u64,
    /// Wall time of the busiest thread, without preparing keys and values.
    pub seconds: f64,
    /// Operations per second of all threads together.
    pub ops_per_s: f64,
    /// Mean time of an operation as its thread measured it; for short operations, from those
    /// without individual clock reads.
    pub ns_per_op: f64,
    /// Half of all operations took at most this.
    pub p50_ns: u64,
    /// 99 % of all operations took at most this.
    pub p99_ns: u64,
    /// 99.9 % of all operations took at most this.
    pub p999_ns: u64,
    /// CPU time per operation of the whole process, including background work, without preparing
    /// keys.
    pub cpu_ns_per_op: f64,
    /// Share of the lookups that found their key; 0 when there were none.
    pub found_share: f64,
    /// Share that the workload must find in a database filled by its fill; `None`: unknown.
    pub expected_found_share: Option<f64>,
    /// Replayed lookups whose answers are in the trace.
    pub answers_checked: u64,
    /// Those with a different answer.
    pub answers_wrong: u64,
    /// Digests computed per point lookup.
    pub hashes_per_get: f64,
    /// Filters consulted per point lookup.
    pub filters_per_get: f64,
    /// Filter modules tested per point lookup.
    pub modules_per_get: f64,
    /// Filter modules skipped because memory does not hold them or they are dormant, per point
    /// lookup.
    pub modules_skipped_per_get: f64,
    /// False positives of filters, per point lookup.
    pub false_positives_per_get: f64,
    /// Filter slices read from files, per point lookup.
    pub filter_reads_per_get: f64,
    /// Index partitions read from files, per point lookup.
    pub index_reads_per_get: f64,
    /// Data blocks read from files, per point lookup.
    pub data_reads_per_get: f64,
    /// Point lookups.
    pub gets: u64,
    /// Reads of all point lookups from files.
    pub reads: ReadsByKind,
    /// Times that a scan was placed.
    pub scans: u64,
    /// Reads of all scans from files.
    pub scan_reads: ReadsByKind,
    /// For fills: seconds from the first operation until all flushes and compactions were complete,
    /// including the preparation of keys.
    pub idle_seconds: Option<f64>,
    /// Operations per second over that time.
    pub idle_ops_per_s: Option<f64>,
    /// Bytes written to files, including logs, per byte of keys and values put; `None` without
    /// puts.
    pub write_amplification: Option<f64>,
    /// Bytes of pending flushes and compactions when the last operation returns.
    pub debt_bytes: u64,
    /// Bytes written to files of all kinds during the workload.
    pub bytes_written: u64,
    /// Resident bytes of the process at the end; 0 where the system does not report them.
    pub rss_bytes: u64,
    /// Memory that the engine accounts for at the end, in bytes.
    pub ledger_bytes: u64,
    /// Index partitions and data blocks that a lookup reads with the memory contents at the end, by
    /// the model.
    pub model_reads_per_get: f64,
    /// The same with the best choice for lookups alone within the memory budget, by the model.
    pub ideal_reads_per_get: f64,
    /// Number of the deepest level that is not empty.
    pub levels: u32,
    /// Runs that a lookup may consult.
    pub runs: u64,
    /// Whether devices were emulated.
    pub emulated: bool,
}

impl BenchResult {
    pub(crate) fn new(workload: Workload, db: &Db, totals: &Totals, before: &Stats) -> Self {
        let stats = db.stats().since(before);
        let memory = db.memory();
        let ops = totals.ops.max(1) as f64;
        let gets = stats.lookups.max(1) as f64;
        let per_get = |count: u64| count as f64 / gets;
        let seconds = totals.seconds;
        let (plain_ops, plain_ns) = totals.plain;
        let (timed_ops, timed_ns) =
            if plain_ops > 0 { (plain_ops as f64, plain_ns) } else { (ops, totals.busy_ns) };
        let written = stats.bytes_written() as f64 / stats.bytes_user.max(1) as f64;
        Self {
            name: workload,
            ops: totals.ops,
            seconds,
            ops_per_s: if seconds > 0.0 { totals.ops as f64 / seconds } else { 0.0 },
            ns_per_op: timed_ns as f64 / timed_ops,
            p50_ns: totals.latencies.quantile_ns(0.5),
            p99_ns: totals.latencies.quantile_ns(0.99),
            p999_ns: totals.latencies.quantile_ns(0.999),
            cpu_ns_per_op: totals.cpu_ns as f64 / ops,
            found_share: if totals.lookups == 0 { 0.0 } else { totals.found as f64 / totals.lookups as f64 },
            expected_found_share: totals.expected_share(),
            answers_checked: totals.answers.checked,
            answers_wrong: totals.answers.wrong,
            hashes_per_get: per_get(stats.hashes),
            filters_per_get: per_get(stats.filters_consulted),
            modules_per_get: per_get(stats.modules_tested),
            modules_skipped_per_get: per_get(stats.modules_skipped),
            false_positives_per_get: per_get(stats.false_positives),
            filter_reads_per_get: per_get(stats.reads.filter.count),
            index_reads_per_get: per_get(stats.reads.index.count),
            data_reads_per_get: per_get(stats.reads.data.count),
            gets: stats.lookups,
            reads: stats.reads,
            scans: stats.ranges,
            scan_reads: stats.range_reads,
            idle_seconds: totals.idle_seconds,
            idle_ops_per_s: totals.idle_seconds.map(|seconds| totals.ops as f64 / seconds.max(1e-9)),
            write_amplification: (stats.bytes_user > 0).then_some(written),
            debt_bytes: totals.debt_bytes,
            bytes_written: stats.bytes_written(),
            rss_bytes: rss_bytes().unwrap_or(0),
            ledger_bytes: memory.ledger_bytes,
            model_reads_per_get: memory.prices.model_reads_per_lookup,
            ideal_reads_per_get: memory.prices.ideal_reads_per_lookup,
            levels: stats.deepest_level,
            runs: stats.runs,
            emulated: stats.emulated,
        }
    }
}
