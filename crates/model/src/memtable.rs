//! How large a memtable may be: what of its memory budget the engine lets one write buffer have.
//!
//! Three may be there at once, one that takes writes and two that wait for their flush, beside everything else that the
//! budget is for. The engine seals memtables by this rule, and [`crate::navigator`] promises no larger ones.
//!
//! Not here: how large a design wants its write buffer ([`crate::Design`]).

/// From this budget on a memtable may have a quarter of it, below an eighth.
const ROOMY_BUDGET_BYTES: u64 = 128 << 20;

/// The bytes of the largest memtable that a memory budget has room for.
pub fn memtable_bytes_most(budget_bytes: u64) -> u64 {
    budget_bytes / if budget_bytes >= ROOMY_BUDGET_BYTES { 4 } else { 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_and_a_quarter_of_roomy_budgets() {
        for (budget, most) in
            [(0, 0), (64 << 20, 8 << 20), ((128 << 20) - 8, (16 << 20) - 1), (256 << 20, 64 << 20)]
        {
            assert_eq!(memtable_bytes_most(budget), most);
        }
    }
}
