//! The maximum size of a memtable: the share of the memory budget that one write buffer may take.
//!
//! Up to three memtables exist at once (one active, two waiting for their flush), besides
//! everything else that the budget covers. The engine seals memtables by this rule, and
//! [`crate::navigator`] proposes no larger ones.
//!
//! Not here: the write buffer that a design asks for ([`crate::Design`]).

/// Budgets of at least this size allow a memtable a quarter of the budget, smaller ones an eighth.
const LARGE_BUDGET_BYTES_MIN: u64 = 128 << 20;

/// Maximum memtable size in bytes under a memory budget.
pub fn memtable_bytes_max(budget_bytes: u64) -> u64 {
    budget_bytes / if budget_bytes >= LARGE_BUDGET_BYTES_MIN { 4 } else { 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_and_a_quarter_of_roomy_budgets() {
        for (budget, most) in
            [(0, 0), (64 << 20, 8 << 20), ((128 << 20) - 8, (16 << 20) - 1), (256 << 20, 64 << 20)]
        {
            assert_eq!(memtable_bytes_max(budget), most);
        }
    }
}
