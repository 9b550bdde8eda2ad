//! Memory of the slices that are being built: how many may be built at the same time.
//!
//! Building a table takes memory for the digests of its keys. All slices in progress together get a
//! quarter of the memory budget for it. A slice that does not get its memory is not begun, and no
//! other slice is begun in its place, or a large one might never begin. A few slices are always
//! allowed, at least one: so the largest need is met once nothing else runs.
//!
//! Pure: the memory itself is charged where a table is built ([`crate::table_files::output`]).

use shamba_tree::compaction::table_size::building_bytes_max;

use super::threads::unrestricted_compaction_threads;

/// Slices in progress and their memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceMemory {
    /// Maximum of `held_bytes`.
    limit_bytes: u64,
    /// Number of slices that are allowed whatever they need.
    free_slices: usize,
    slices: usize,
    held_bytes: u64,
}

impl Default for SliceMemory {
    fn default() -> Self {
        Self { limit_bytes: u64::MAX, free_slices: 1, slices: 0, held_bytes: 0 }
    }
}

impl SliceMemory {
    /// The slices' part of a memory budget; nothing is held.
    pub fn of_budget(budget_bytes: u64) -> Self {
        let free_slices = unrestricted_compaction_threads(budget_bytes);
        Self { limit_bytes: building_bytes_max(budget_bytes), free_slices, slices: 0, held_bytes: 0 }
    }

    /// Takes memory for one slice; false if it must wait.
    pub fn take(&mut self, bytes: u64) -> bool {
        let held_bytes = self.held_bytes.saturating_add(bytes);
        if self.slices >= self.free_slices && held_bytes > self.limit_bytes {
            return false;
        }
        self.slices += 1;
        self.held_bytes = held_bytes;
        true
    }

    /// Gives the memory of one slice back.
    pub fn give_back(&mut self, bytes: u64) {
        assert!(self.slices > 0, "a slice gives memory back that none has taken");
        assert!(self.held_bytes >= bytes, "a slice gives {bytes} of {} bytes back", self.held_bytes);
        self.slices -= 1;
        self.held_bytes -= bytes;
        assert!(
            self.slices > 0 || self.held_bytes == 0,
            "no slice is built, but {} bytes are held",
            self.held_bytes
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_wait_for_memory_but_one_is_always_allowed() {
        let mut memory = SliceMemory::of_budget(8 << 20);
        assert!(memory.take(5 << 20), "the first one gets more than the limit");
        assert!(!memory.take(1), "nothing is left");
        memory.give_back(5 << 20);
        assert!(memory.take(1 << 20) && memory.take(1 << 20));
        assert!(!memory.take(1 << 10), "2 MiB are a quarter of the budget");
        memory.give_back(1 << 20);
        assert!(memory.take(1 << 20));
    }

    #[test]
    fn a_budget_of_32_mib_for_each_slice_restricts_none() {
        let mut memory = SliceMemory::of_budget(96 << 20);
        assert!((0..3).all(|_| memory.take(1 << 30)));
        assert!(!memory.take(1));
        (0..3).for_each(|_| memory.give_back(1 << 30));
        assert!((0..24).all(|_| memory.take(1 << 20)) && !memory.take(1));
    }
}
