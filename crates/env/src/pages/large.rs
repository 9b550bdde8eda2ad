//! Large pages of the operating system.
//!
//! A map of a whole large page asks for one before its memory is touched ([`ask`]). Smaller pieces
//! have maps of their own, so that the memory of each returns when it is dropped, and the system
//! gives these small pages. Where such pieces lie side by side, the system can move their contents
//! into a large page later ([`Neighbour`]); when one of them is dropped, it divides the page again.
//!
//! Only a range that is full of these pieces is moved: the system would also provide memory for
//! parts of other maps that were never touched. So the bytes of pieces are counted for each range.
//! The order in which pieces come and go, and their places, make no difference.
//!
//! A refusal (no large page is free, an older system) is not reported: the memory stays as it was.
//! Where the administrator has switched large pages off, none is asked for.

use std::collections::BTreeMap;

use memmap2::MmapMut;

use super::{LARGE_PAGE_BYTES, PAGE_BYTES_MIN};

type Covered = BTreeMap<usize, usize>;

/// Bytes of pieces in each range of a large page, by the range's number; of the whole process. The
/// lock is that of the standard library, which schedule exploration does not replace: no call under
/// it blocks.
static COVERED_BYTES: std::sync::Mutex<Covered> = std::sync::Mutex::new(BTreeMap::new());

fn covered() -> std::sync::MutexGuard<'static, Covered> {
    COVERED_BYTES.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Asks for large pages in a map that was not touched yet.
#[cfg(target_os = "linux")]
pub(super) fn ask(map: &MmapMut) {
    let _ = map.advise(memmap2::Advice::HugePage);
}

#[cfg(not(target_os = "linux"))]
pub(super) fn ask(_map: &MmapMut) {}

/// A map that shares large pages with its neighbours. Must be dropped before the map.
pub(super) struct Neighbour {
    start: usize,
    end: usize,
}

impl Neighbour {
    /// Adds a map, and asks for a large page for each range that is full now.
    pub(super) fn new(map: &MmapMut) -> Self {
        let start = map.as_ptr().addr();
        let added = Self { start, end: start + map.len().next_multiple_of(PAGE_BYTES_MIN) };
        let mut full = Vec::new();
        {
            let mut covered = covered();
            for (range, bytes) in added.parts() {
                let covered_bytes = covered.entry(range).or_default();
                *covered_bytes += bytes;
                debug_assert!(*covered_bytes <= LARGE_PAGE_BYTES, "pieces overlap in memory");
                full.extend((*covered_bytes == LARGE_PAGE_BYTES).then_some(range));
            }
        }
        full.into_iter().for_each(join);
        added
    }

    /// The ranges that the map lies in, and its bytes in each.
    fn parts(&self) -> impl Iterator<Item = (usize, usize)> {
        let (start, end) = (self.start, self.end);
        (start / LARGE_PAGE_BYTES..end.div_ceil(LARGE_PAGE_BYTES)).map(move |range| {
            let range_start = range * LARGE_PAGE_BYTES;
            (range, end.min(range_start + LARGE_PAGE_BYTES) - start.max(range_start))
        })
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let mut covered = covered();
        for (range, bytes) in self.parts() {
            let Some(covered_bytes) = covered.get_mut(&range) else { continue };
            *covered_bytes = covered_bytes.saturating_sub(bytes);
            if *covered_bytes == 0 {
                covered.remove(&range);
            }
        }
    }
}

/// Asks the system to move the contents of a range into a large page.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn join(range: usize) {
    let start = std::ptr::without_provenance_mut(range * LARGE_PAGE_BYTES);
    if !are_allowed() {
        return;
    }
    // SAFETY: this advice changes neither the contents nor the protection of any byte, also while
    // other threads read and write them: the system moves them to another physical page and keeps
    // their addresses. That holds for other memory, too, should a piece have been dropped meanwhile
    // and its addresses be in use again; the large page may then provide some of it early.
    unsafe { libc::madvise(start, LARGE_PAGE_BYTES, MADV_COLLAPSE) };
}

/// The number of the advice, which not every C library names.
#[cfg(target_os = "linux")]
const MADV_COLLAPSE: libc::c_int = 25;

/// Whether large pages are allowed; read once. The system grants this advice even if they are not.
#[cfg(target_os = "linux")]
fn are_allowed() -> bool {
    static ALLOWED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *ALLOWED.get_or_init(|| {
        let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        setting.is_ok_and(|setting| !setting.contains("[never]"))
    })
}

#[cfg(not(target_os = "linux"))]
fn join(_range: usize) {}

#[cfg(test)]
mod tests {
    use super::super::Pages;
    use super::*;

    /// Bytes of pieces in the range in which this one begins.
    fn around(pages: &Pages) -> usize {
        let range = pages.as_ptr().addr() / LARGE_PAGE_BYTES;
        covered().get(&range).copied().unwrap_or_default()
    }

    #[test]
    fn neighbours_keep_their_contents_and_are_counted_as_long_as_they_live() {
        let seed = 0x1a26e;
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut pieces: Vec<(Pages, u8)> = Vec::new();
        let mut full_ranges = 0;
        // Maps of other tests may lie between the pieces: then more rounds are needed.
        for round in 0..20_000u32 {
            if round >= 2_000 && full_ranges >= 20 {
                break;
            }
            if pieces.len() > 200 || (!pieces.is_empty() && rng.u8(..3) == 0) {
                let (pages, mark) = pieces.swap_remove(rng.usize(..pieces.len()));
                assert!(pages.iter().all(|byte| *byte == mark), "round {round}");
                drop(pages);
                continue;
            }
            // Most fill the places of others.
            let bytes = if rng.u8(..40) > 0 { 64 << 10 } else { rng.usize(16 << 10..200 << 10) };
            let mut pages = Pages::zeroed(bytes, 64).expect("memory");
            pages.fill(round as u8);
            pages.join_neighbours();
            let around_bytes = around(&pages);
            pages.join_neighbours();
            assert_eq!(around(&pages), around_bytes, "round {round}: joined twice");
            full_ranges += u32::from(around_bytes == LARGE_PAGE_BYTES);
            pieces.push((pages, round as u8));
        }
        assert!(pieces.iter().all(|(pages, mark)| pages.iter().all(|byte| byte == mark)));
        assert!(full_ranges >= 20, "a large page was asked for {full_ranges} times");
        let held_bytes = |pages: &Pages| pages.len().next_multiple_of(PAGE_BYTES_MIN);
        let bytes: usize = pieces.iter().map(|(pages, _)| held_bytes(pages)).sum();
        assert_eq!(covered().values().sum::<usize>(), bytes);
        drop(pieces);
        assert!(covered().is_empty(), "dropped pieces are counted");
    }
}
