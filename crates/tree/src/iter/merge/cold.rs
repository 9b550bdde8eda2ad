//! The reads of a seek, for all runs at once.
//!
//! If a read takes tens of microseconds, a seek that waits for the index partition and the block of
//! one run after another takes as many times as long as there are runs. So the partitions of all
//! runs are read together, then the blocks that they list. Runs whose block is in memory, by the
//! [steps](shamba_table::Seeking) of the seek, are left out.
//!
//! Not here: who makes the reads, and whether that pays ([`crate::lookup::pool`]).

use std::sync::Arc;

use shamba_env::BatchRead;
use shamba_key::SeqNo;

use super::{Child, Direction, MergeIter};
use crate::iter::run_iter::{RunIter, RunSeeking, SeekPart};
use crate::iter::source::Source;
use crate::lookup::pool::ReadPool;
use crate::version::Run;

/// Maximum number of reads at once: they have buffers of their own, outside the memory budget.
const READS_MAX: usize = 32;

impl MergeIter {
    /// Reads what a seek to `(key, seq)` in this direction, whose steps were taken, needs and is
    /// not in memory. What cannot be read so is left to the seek, as are errors.
    pub(super) fn read_missing(&mut self, direction: Direction, key: &[u8], seq: SeqNo, pool: &ReadPool) {
        if self.missing().next().is_none() {
            return;
        }
        for part in [SeekPart::Partition, SeekPart::Block] {
            let (parts, reads): (Vec<_>, Vec<BatchRead>) = self
                .missing()
                .filter_map(|(number, run)| {
                    let (of, read) = match direction {
                        Direction::Forward => run.to_read(part, key, seq),
                        Direction::Backward => run.to_read_back(part, key, seq),
                    }?;
                    Some(((number, of), read))
                })
                .take(READS_MAX)
                .unzip();
            let first = parts.first().map(|(number, _)| *number);
            let reads = pool.read(reads, |read| {
                if let Some((_, run)) = self.missing().find(|(number, _)| Some(*number) == first) {
                    run.read_timed(read);
                }
            });
            let mut made = parts.into_iter().zip(reads).peekable();
            for (number, run) in self.missing() {
                if let Some(((_, of), read)) = made.next_if(|((of_run, _), _)| *of_run == number) {
                    run.take_read(of, read);
                }
            }
            debug_assert!(made.next().is_none(), "a read of a seek belongs to no run");
        }
    }

    /// The runs whose steps have not come to a block, with their numbers.
    fn missing(&mut self) -> impl Iterator<Item = (usize, &mut RunIter<Arc<Run>>)> {
        let sought = self.children.iter_mut().zip(&self.seekings).enumerate();
        sought.filter_map(|(number, (child, seeking)): (usize, (&mut Child, &RunSeeking))| {
            match &mut child.iter {
                Source::Run(run) if !seeking.has_block() => Some((number, run)),
                _ => None,
            }
        })
    }
}
