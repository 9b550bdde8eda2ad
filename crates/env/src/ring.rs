//! Batches of reads by `io_uring` (Linux 5.6 and later): one system call for all of them.
//!
//! A ring serves one batch at a time and is kept for later ones. The process has at most
//! [`RINGS_MAX`]; a batch that finds none free is left to the caller. Where the system refuses
//! rings (an old kernel, a sandbox, `kernel.io_uring_disabled`), it is asked once.
//!
//! A read that does not give all of its bytes is left to be made as a usual one: short reads, files
//! whose direct reads are refused, and errors, which are then those of that read.
//!
//! Invariant: while the operating system may write to a buffer, nobody else touches it, and it is
//! not freed. So a call returns only when all reads that the system has accepted are done. If the
//! system does not even let it wait, the buffers are given up for good.
//!
//! The safe twin is [`BatchRead::read_now`], one read after another.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::batch::BatchRead;

/// Maximum number of reads that a ring makes at once. Devices gain little beyond it.
const ENTRIES: u32 = 32;
/// Maximum number of rings in the process; each has one descriptor and a few pages of memory.
const RINGS_MAX: usize = 16;
/// Maximum number of times that a call waits while the system has no memory for a batch.
const REFUSALS_MAX: u32 = 100;
/// Length of such a wait.
const REFUSAL_WAIT: Duration = Duration::from_millis(1);

/// Set once the system has refused rings for good.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);
/// The rings that exist.
static RINGS: AtomicUsize = AtomicUsize::new(0);
/// Those of them that nobody uses.
static FREE: Mutex<Vec<Ring>> = Mutex::new(Vec::new());

struct Ring {
    ring: IoUring,
    /// The process that made it: a forked one must not use it, its memory is shared.
    process: u32,
}

impl Drop for Ring {
    fn drop(&mut self) {
        RINGS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The error after which a ring must not be used again.
struct Broken(io::Error);

/// Makes those reads that a ring can make.
pub(crate) fn read(reads: &mut [BatchRead]) {
    let Some(mut ring) = take() else { return };
    for part in reads.chunks_mut(ENTRIES as usize) {
        if let Err(Broken(error)) = ring.read(part) {
            if !is_passing(&error) {
                IS_REFUSED.store(true, Ordering::Relaxed);
            }
            return;
        }
    }
    free().push(ring);
}

fn free() -> MutexGuard<'static, Vec<Ring>> {
    // Consistent between any two statements that can panic.
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A ring that nobody uses, or a new one; `None` if there can be none.
fn take() -> Option<Ring> {
    if IS_REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    let process = std::process::id();
    while let Some(ring) = free().pop() {
        if ring.process == process {
            return Some(ring);
        }
    }
    if RINGS.fetch_add(1, Ordering::Relaxed) >= RINGS_MAX {
        RINGS.fetch_sub(1, Ordering::Relaxed);
        return None;
    }
    match make() {
        Ok(ring) => Some(Ring { ring, process }),
        Err(error) => {
            RINGS.fetch_sub(1, Ordering::Relaxed);
            let is_for_now = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];
            if !error.raw_os_error().is_some_and(|number| is_for_now.contains(&number)) {
                IS_REFUSED.store(true, Ordering::Relaxed);
            }
            None
        }
    }
}

fn make() -> io::Result<IoUring> {
    // Without the flag, a completion interrupts the thread.
    let made = match IoUring::builder().setup_coop_taskrun().build(ENTRIES) {
        // Kernels before 5.19 do not know it.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(ENTRIES),
        made => made,
    }?;
    // As old as the reads that are used here: Linux 5.6.
    match made.params().is_feature_rw_cur_pos() {
        true => Ok(made),
        false => Err(io::ErrorKind::Unsupported.into()),
    }
}

impl Ring {
    /// Makes the reads, at most [`ENTRIES`], that are to be made. The others of them that fail or
    /// are short are left.
    fn read(&mut self, reads: &mut [BatchRead]) -> Result<(), Broken> {
        assert!(reads.len() <= ENTRIES as usize, "{} reads at once", reads.len());
        let mut pending = 0;
        let mut is_pending = [false; ENTRIES as usize];
        for (number, (read, is_pending)) in reads.iter_mut().zip(&mut is_pending).enumerate() {
            let Some(descriptor) = read.file().descriptor().filter(|_| !read.is_made()) else { continue };
            let (offset, target) = read.target();
            let Ok(bytes) = u32::try_from(target.len()) else { continue };
            let entry = opcode::Read::new(types::Fd(descriptor), target.as_mut_ptr(), bytes)
                .offset(offset)
                .build()
                .user_data(number as u64);
            // SAFETY: the descriptor is open, because the read owns its file. The memory belongs to
            // the read as well; it is neither accessed nor freed before the completion with this
            // number has arrived, or else it is given up below.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                *is_pending = true;
                pending += 1;
            }
        }
        let mut refusals = 0;
        // No panic from here on: it would free the buffers of pending reads.
        while pending > 0 {
            // Passes on what was not accepted yet, and waits for all.
            if let Err(error) = self.ring.submit_and_wait(pending) {
                if error.kind() != io::ErrorKind::Interrupted {
                    refusals += 1;
                    if !is_passing(&error) || refusals == REFUSALS_MAX {
                        let pending = reads.iter_mut().zip(is_pending).filter(|(_, is_pending)| *is_pending);
                        pending.for_each(|(read, _)| read.abandon_buffer());
                        return Err(Broken(error));
                    }
                    std::thread::sleep(REFUSAL_WAIT);
                }
            }
            for completion in self.ring.completion() {
                let number = usize::try_from(completion.user_data()).unwrap_or(usize::MAX);
                let is_new = is_pending.get_mut(number).is_some_and(std::mem::take);
                if let Some(read) = reads.get_mut(number).filter(|_| is_new) {
                    pending -= 1;
                    read.was_read(usize::try_from(completion.result()).unwrap_or(0));
                }
            }
        }
        Ok(())
    }
}

/// Whether a call that failed with `error` may succeed later: memory is short, or completions have
/// to be taken first.
fn is_passing(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|number| [libc::EAGAIN, libc::EBUSY, libc::ENOMEM].contains(&number))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{RealFs, Vfs, write_file_synced};

    #[test]
    fn there_are_a_few_rings_at_most_and_the_rest_is_left_to_the_caller() {
        let dir = tempfile::tempdir().expect("a directory");
        let (vfs, path) = (RealFs::new(), dir.path().join("file"));
        write_file_synced(&vfs, &path, &[7; 10_000]).expect("written");
        let file = vfs.open_read(&path).expect("opened");
        let mut taken = Vec::new();
        // Tests of the same process may have some of them for a moment.
        for _ in 0..10_000 {
            taken.extend(take());
            if taken.len() == RINGS_MAX {
                break;
            }
            std::thread::yield_now();
        }
        if taken.len() < RINGS_MAX {
            println!("skipped: this system gives {} rings", taken.len());
            return;
        }
        assert!(take().is_none());
        let mut left: Vec<BatchRead> =
            (0..2).map(|at| BatchRead::new(Arc::clone(&file), at * 4_000, 4_000)).collect();
        read(&mut left);
        assert!(left.iter().all(|read| !read.is_made()));
        for read in left {
            assert!(read.into_bytes().expect("read").iter().all(|byte| *byte == 7));
        }
        free().extend(taken);
    }

    #[test]
    fn a_ring_makes_whole_reads_and_leaves_those_beyond_the_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let (vfs, path) = (RealFs::new(), dir.path().join("file"));
        write_file_synced(&vfs, &path, &[7; 10_000]).expect("written");
        let file = vfs.open_read(&path).expect("opened");
        let Some(mut ring) = take() else {
            println!("skipped: this system has no rings, or others use them all");
            return;
        };
        for _ in 0..3 {
            let places = (0..32).map(|at| (at * 400, 399));
            let mut reads: Vec<BatchRead> =
                places.map(|(from, bytes)| BatchRead::new(Arc::clone(&file), from, bytes)).collect();
            assert!(ring.read(&mut reads).is_ok());
            for (number, read) in reads.into_iter().enumerate() {
                assert_eq!(read.is_made(), number < 25, "read {number}");
                assert_eq!(read.into_bytes().is_ok(), number < 25, "read {number}");
            }
        }
    }

    #[test]
    fn a_read_whose_buffer_was_given_up_is_made_with_another() {
        let dir = tempfile::tempdir().expect("a directory");
        let (vfs, path) = (RealFs::new(), dir.path().join("file"));
        write_file_synced(&vfs, &path, &[7; 10_000]).expect("written");
        let mut read = BatchRead::new(vfs.open_read(&path).expect("opened"), 5_000, 5_000);
        read.abandon_buffer();
        let bytes = read.into_bytes().expect("read");
        assert!(bytes.len() == 5_000 && bytes.iter().all(|byte| *byte == 7));
    }
}
