//! The pending calls that survive a crash.
//!
//! A [`CrashPolicy`] is a plain value, so that a failing case can be printed and run again. Its
//! numbers index the pending calls at the crash, in the order in which they were made; a number
//! that is too large counts as the end. Seeds make the random ones reproducible.
//!
//! [`CrashPolicy::sample`] picks a set for one crash point: all policies when little is pending, a
//! sample of each kind when much is.

use super::disk::{Disk, Op, Pending, Write};

/// Size in bytes of the sectors of which a larger write can arrive in part.
const SECTOR_BYTES: usize = 512;

/// The effect of a crash on the calls that no sync had made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrashPolicy {
    /// None survives.
    None,
    /// All survive.
    All,
    /// The first n survive: a journal written in order.
    Prefix(usize),
    /// All but this one survive: reordering.
    DropOne(usize),
    /// Only this one survives: reordering.
    KeepOne(usize),
    /// Each survives or not, independently.
    Subset {
        /// Fixes the choice.
        seed: u64,
    },
    /// All calls before the `i`-th survive. If the `i`-th is an append, its first `cut` bytes
    /// survive.
    Torn {
        /// The torn call.
        i: usize,
        /// Bytes of it that arrive.
        cut: usize,
    },
    /// As `Torn`, but the later calls survive too, so that missing bytes leave a hole of zeros.
    TornHole {
        /// The torn call.
        i: usize,
        /// Number of its bytes that survive.
        cut: usize,
    },
    /// All lengths survive, but the bytes of some appends, or some of their sectors, are zeros.
    ZeroExtend {
        /// Fixes the choice.
        seed: u64,
    },
    /// All lengths survive, but the bytes of some appends, or some of their sectors, are garbage:
    /// often the bytes of an earlier append elsewhere.
    StaleExtend {
        /// Fixes the choice.
        seed: u64,
    },
    /// All data survives. The two halves of each change of names survive or not, independently: a
    /// renamed file can be under its old name, the new one, both or none.
    DirStrict {
        /// Fixes the choice.
        seed: u64,
    },
    /// A sync of any file makes all earlier changes of names durable; of the later ones a prefix
    /// survives, and of the data a random part. An engine that relies on this is wrong.
    DirExt4 {
        /// Fixes the choice.
        seed: u64,
    },
}

impl CrashPolicy {
    /// Applies the surviving calls of `pending` to `disk`. `log` has all calls so far, as a source
    /// of stale bytes.
    pub(super) fn apply(self, disk: &mut Disk, pending: &[Pending], log: &[Op]) {
        match self {
            CrashPolicy::None => {}
            CrashPolicy::All => let_through(disk, pending, |_| true),
            CrashPolicy::Prefix(count) => let_through(disk, pending, |i| i < count),
            CrashPolicy::DropOne(dropped) => let_through(disk, pending, |i| i != dropped),
            CrashPolicy::KeepOne(kept) => let_through(disk, pending, |i| i == kept),
            CrashPolicy::Subset { seed } => {
                let mut rng = fastrand::Rng::with_seed(seed);
                let_through(disk, pending, |_| rng.bool());
            }
            CrashPolicy::Torn { i, cut } => {
                let end = i.min(pending.len());
                let_through(disk, &pending[..end], |_| true);
                tear(disk, pending.get(i), cut);
            }
            CrashPolicy::TornHole { i: torn, cut } => {
                for (i, call) in pending.iter().enumerate() {
                    if i == torn { tear(disk, Some(call), cut) } else { disk.apply(call) }
                }
            }
            CrashPolicy::ZeroExtend { seed } => spoil(disk, pending, seed, |_, bytes| bytes.fill(0)),
            CrashPolicy::StaleExtend { seed } => {
                spoil(disk, pending, seed, |rng, bytes| fill_stale(rng, bytes, log));
            }
            CrashPolicy::DirStrict { seed } => {
                let mut rng = fastrand::Rng::with_seed(seed);
                for call in pending {
                    match call {
                        Pending::Data(file, write) => disk.apply_write(*file, write),
                        Pending::Names { changes, .. } => {
                            changes.iter().filter(|_| rng.bool()).for_each(|change| disk.apply_name(change));
                        }
                    }
                }
            }
            CrashPolicy::DirExt4 { seed } => {
                let mut rng = fastrand::Rng::with_seed(seed);
                let journal_end = rng.usize(..=pending.len());
                let_through_ordered(disk, pending, journal_end, &mut rng);
            }
        }
    }

    /// A representative set for a crash with these calls pending; without any, one policy suffices.
    pub(super) fn sample(pending: &[Pending], seed: u64) -> Vec<CrashPolicy> {
        let count = pending.len();
        if count == 0 {
            return vec![CrashPolicy::None];
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut policies = vec![CrashPolicy::None, CrashPolicy::All];
        if count > 1 {
            policies.extend(pick(&mut rng, 1..count, 3).into_iter().map(CrashPolicy::Prefix));
            policies.extend(pick(&mut rng, 0..count, 3).into_iter().map(CrashPolicy::DropOne));
            policies.extend(pick(&mut rng, 0..count, 3).into_iter().map(CrashPolicy::KeepOne));
            policies.extend((0..2).map(|_| CrashPolicy::Subset { seed: rng.u64(..) }));
        }
        let appends: Vec<(usize, usize)> = pending
            .iter()
            .enumerate()
            .filter_map(|(i, call)| match call {
                Pending::Data(_, Write::Bytes { bytes, .. }) => Some((i, bytes.len())),
                _ => None,
            })
            .collect();
        for at in pick(&mut rng, 0..appends.len(), 2) {
            let (i, bytes) = appends[at];
            let cut = rng.usize(..bytes);
            policies.push(CrashPolicy::Torn { i, cut });
            if bytes > SECTOR_BYTES {
                let sectors = (bytes - 1) / SECTOR_BYTES;
                policies.push(CrashPolicy::Torn { i, cut: SECTOR_BYTES * rng.usize(1..=sectors) });
            }
            if i + 1 < count {
                policies.push(CrashPolicy::TornHole { i, cut });
            }
        }
        if !appends.is_empty() {
            policies.push(CrashPolicy::ZeroExtend { seed: rng.u64(..) });
            policies.push(CrashPolicy::StaleExtend { seed: rng.u64(..) });
        }
        if pending.iter().any(|call| matches!(call, Pending::Names { .. })) {
            policies.extend((0..2).map(|_| CrashPolicy::DirStrict { seed: rng.u64(..) }));
            policies.push(CrashPolicy::DirExt4 { seed: rng.u64(..) });
        }
        policies
    }
}

/// Up to `most` different numbers of a range, ascending; all numbers of a range that is not longer.
fn pick(rng: &mut fastrand::Rng, range: std::ops::Range<usize>, most: usize) -> Vec<usize> {
    if range.len() <= most {
        return range.collect();
    }
    let mut picked: Vec<usize> = (0..most).map(|_| rng.usize(range.clone())).collect();
    picked.sort_unstable();
    picked.dedup();
    picked
}

fn let_through(disk: &mut Disk, pending: &[Pending], mut survives: impl FnMut(usize) -> bool) {
    for (i, call) in pending.iter().enumerate() {
        if survives(i) {
            disk.apply(call);
        }
    }
}

fn let_through_ordered(disk: &mut Disk, pending: &[Pending], journal_end: usize, rng: &mut fastrand::Rng) {
    let_through(disk, pending, |i| match &pending[i] {
        Pending::Data(..) => rng.bool(),
        Pending::Names { journaled, .. } => *journaled || i < journal_end,
    });
}

/// Applies the first `cut` bytes of an append; nothing of any other call.
fn tear(disk: &mut Disk, call: Option<&Pending>, cut: usize) {
    if let Some(Pending::Data(file, Write::Bytes { offset, bytes })) = call {
        disk.apply_bytes(*file, *offset, &bytes[..cut.min(bytes.len())]);
    }
}

/// Applies everything, but with some appends, or some sectors of them, overwritten by `filler`.
fn spoil(
    disk: &mut Disk,
    pending: &[Pending],
    seed: u64,
    mut filler: impl FnMut(&mut fastrand::Rng, &mut [u8]),
) {
    let mut rng = fastrand::Rng::with_seed(seed);
    for call in pending {
        let Pending::Data(file, Write::Bytes { offset, bytes }) = call else {
            disk.apply(call);
            continue;
        };
        let mut arrived = bytes.to_vec();
        match rng.u8(..3) {
            0 => {}
            1 => filler(&mut rng, &mut arrived),
            _ => {
                // Sectors are aligned to the file, not to the write.
                let first = SECTOR_BYTES - (*offset % SECTOR_BYTES as u64) as usize;
                let (head, rest) = arrived.split_at_mut(first.min(bytes.len()));
                for sector in std::iter::once(head).chain(rest.chunks_mut(SECTOR_BYTES)) {
                    if rng.bool() {
                        filler(&mut rng, sector);
                    }
                }
            }
        }
        disk.apply_bytes(*file, *offset, &arrived);
    }
}

/// Garbage as in a reused block: half of the time bytes of an earlier append, which may be valid
/// records of another place, else noise.
fn fill_stale(rng: &mut fastrand::Rng, bytes: &mut [u8], log: &[Op]) {
    let start = rng.usize(..log.len().max(1));
    let earlier = (log.iter().skip(start).chain(log.iter().take(start))).take(16).find_map(|op| match op {
        Op::Data(_, Write::Bytes { bytes, .. }) => Some(bytes),
        _ => None,
    });
    rng.fill(bytes);
    if let Some(earlier) = earlier.filter(|_| rng.bool()) {
        let shared = earlier.len().min(bytes.len());
        bytes[..shared].copy_from_slice(&earlier[..shared]);
    }
}
