//! Sum of the measurements of a workload's threads.

use crate::measure::Latencies;

/// Sum of the measurements of all threads.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub latencies: Latencies,
    pub ops: u64,
    pub busy_ns: u64,
    /// Number of operations without individual clock reads, and their total time.
    pub plain: (u64, u64),
    pub seconds: f64,
    /// For fills: seconds from the first operation until all flushes and compactions were complete,
    /// including the preparation of operations.
    pub idle_seconds: Option<f64>,
    pub debt_bytes: u64,
    pub cpu_ns: u64,
    pub lookups: u64,
    pub found: u64,
    pub answers: Answers,
    /// Lookups that must find their key.
    pub expected: u64,
    /// Whether their number is known.
    pub foreseeable: bool,
}

impl Totals {
    /// Expected share of found lookups.
    pub fn expected_share(&self) -> Option<f64> {
        (self.foreseeable && self.lookups > 0).then(|| self.expected as f64 / self.lookups as f64)
    }
}

/// Comparison of lookup answers with the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Answers {
    /// Lookups whose answers are in the trace.
    pub checked: u64,
    /// Those with a different answer.
    pub wrong: u64,
}
