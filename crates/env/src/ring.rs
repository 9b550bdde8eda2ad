//! Batches of reads by `io_uring` (Linux 5.6 and later): one system call for all of them.
//!
//! A ring serves one batch at a time. Rings are kept for later batches, at most [`KEPT_MAX`] in the
//! process, so there are about as many as threads that read batches at the same time. Where the
//! system refuses rings (an old kernel, a sandbox, `kernel.io_uring_disabled`), it is asked once.
//!
//! A read that does not give all of its bytes is made again as a usual one: short reads, files
//! whose direct reads are refused, and errors, which are then those of that read.
//!
//! Invariant: while the operating system may write to a buffer, nobody else touches it, and it is
//! not freed. So a call returns only when all reads that the system has accepted are done. If the
//! system does not even let it wait, the buffers are given up for good.
//!
//! The safe twin is [`BatchRead::read_now`], one read after another.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use io_uring::{IoUring, opcode, types};

use crate::batch::BatchRead;

/// Maximum number of reads that a ring makes at once. Devices gain little beyond it.
const ENTRIES: u32 = 32;
/// Number of times that the system may be short of memory for a batch before the ring is given up.
const REFUSALS_MAX: u32 = 1_000;
/// Maximum number of rings kept; each has one descriptor and three pages of memory.
const KEPT_MAX: usize = 16;

/// Set once the system has refused a ring for good.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// The rings that nobody uses.
static RINGS: Mutex<Vec<Ring>> = Mutex::new(Vec::new());

struct Ring {
    ring: IoUring,
    /// The process that made it: a forked one must not use it, its memory is shared.
    process: u32,
}

/// Makes all reads. Returns `false` if the system has no ring for them, or they are not all from
/// its own files; the reads are then still to be made.
pub(crate) fn read(reads: &mut [BatchRead]) -> bool {
    if reads.iter().any(|read| read.file().descriptor().is_none()) {
        return false;
    }
    let Some(mut ring) = take() else { return false };
    for part in reads.chunks_mut(ENTRIES as usize) {
        if !ring.read(part) {
            // What the ring has left undone is made now, and the ring is not used again.
            IS_REFUSED.store(true, Ordering::Relaxed);
            reads.iter_mut().for_each(BatchRead::read_now);
            return true;
        }
    }
    let mut rings = kept();
    if rings.len() < KEPT_MAX {
        rings.push(ring);
    }
    true
}

fn kept() -> MutexGuard<'static, Vec<Ring>> {
    // Consistent between any two statements that can panic.
    RINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A ring that nobody uses, or a new one.
fn take() -> Option<Ring> {
    let process = std::process::id();
    while let Some(ring) = kept().pop() {
        if ring.process == process {
            return Some(ring);
        }
    }
    if IS_REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    // Without the flag, a completion interrupts the thread; kernels before 5.19 do not know it.
    let made = IoUring::builder().setup_coop_taskrun().build(ENTRIES).or_else(|_| IoUring::new(ENTRIES));
    match made {
        Ok(ring) => Some(Ring { ring, process }),
        Err(error) => {
            let is_for_now = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];
            if !error.raw_os_error().is_some_and(|number| is_for_now.contains(&number)) {
                IS_REFUSED.store(true, Ordering::Relaxed);
            }
            None
        }
    }
}

impl Ring {
    /// Makes the reads, at most [`ENTRIES`]. Returns `false` if the ring must not be used again.
    fn read(&mut self, reads: &mut [BatchRead]) -> bool {
        assert!(reads.len() <= ENTRIES as usize, "{} reads at once", reads.len());
        let mut pushed = 0;
        let mut is_pending = [false; ENTRIES as usize];
        for (number, (read, is_pending)) in reads.iter_mut().zip(&mut is_pending).enumerate() {
            let Some(descriptor) = read.file().descriptor() else { continue };
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
                pushed += 1;
            }
        }
        let mut refusals = 0;
        while pushed > 0 {
            // Passes on what was not accepted yet, and waits for all.
            if let Err(error) = self.ring.submit_and_wait(pushed) {
                refusals += u32::from(error.kind() != io::ErrorKind::Interrupted);
                if !is_passing(&error) || refusals == REFUSALS_MAX {
                    for (read, is_pending) in reads.iter_mut().zip(is_pending) {
                        if is_pending {
                            read.abandon_buffer();
                        }
                    }
                    return false;
                }
                std::thread::yield_now();
            }
            for completion in self.ring.completion() {
                let number = usize::try_from(completion.user_data()).unwrap_or(usize::MAX);
                let is_new = is_pending.get_mut(number).is_some_and(std::mem::take);
                // No panic here: the buffers of the other reads would be freed.
                if let Some(read) = reads.get_mut(number).filter(|_| is_new) {
                    pushed -= 1;
                    read.was_read(usize::try_from(completion.result()).unwrap_or(0));
                }
            }
        }
        reads.iter_mut().for_each(BatchRead::read_now);
        true
    }
}

/// Whether a call that failed with `error` should be made again: it was interrupted, or completions
/// have to be taken first.
fn is_passing(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|number| [libc::EINTR, libc::EAGAIN, libc::EBUSY].contains(&number))
}
