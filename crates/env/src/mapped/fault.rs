//! Turns the signal of a failed access to a mapped file (`SIGBUS`) into a flag.
//!
//! An access fails if the operating system cannot provide the page: the device fails, or another
//! process has truncated the file. By default the signal ends the process. The handler instead puts
//! anonymous memory in the place of the window of a log, or of the page of a table, so that the
//! access can complete, and sets the map's flag ([`Watch::has_failed`]). The owner of the map
//! checks the flag after each access.
//!
//! The handler is process-wide and is installed with the first map. A signal at any other
//! address goes to the previous handler, or to the system's default action, which ends the process.
//! A program that installs its own handler later must forward signals that are not its own to this
//! one. Otherwise a failed device ends the process.
//!
//! Maps are registered in a fixed table, because a handler may neither allocate nor lock.

use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Maximum number of windows of logs at a time in this process: logs beyond it are written.
const WINDOWS_MAX: usize = 256;
/// Maximum number of maps of tables at a time in this process: tables beyond it are read.
const READS_MAX: usize = 4_096;

/// A registered map.
struct Slot {
    is_taken: AtomicBool,
    /// Address of the map; 0 while it is not complete. Stored last, and cleared first.
    address: AtomicUsize,
    /// Length of the map.
    bytes: AtomicUsize,
    /// Length of the pieces that are replaced; the map begins with a whole one.
    piece_bytes: AtomicUsize,
    /// Anonymous memory is in the place of a piece.
    has_failed: AtomicBool,
}

/// Those of windows, then those of tables.
static SLOTS: [Slot; WINDOWS_MAX + READS_MAX] = [const {
    Slot {
        is_taken: AtomicBool::new(false),
        address: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        piece_bytes: AtomicUsize::new(0),
        has_failed: AtomicBool::new(false),
    }
}; WINDOWS_MAX + READS_MAX];

/// The action before ours; set before the handler is installed.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Watches one map. It is dropped before the map is unmapped: a later map of the same address is
/// not ours.
#[derive(Debug)]
pub(super) struct Watch(usize);

impl Watch {
    /// Watches the window of a log at `address`, which is replaced as a whole.
    ///
    /// # Errors
    /// The table is full, or the handler cannot be installed.
    pub fn window(address: usize, bytes: usize) -> io::Result<Self> {
        Self::new(0..WINDOWS_MAX, address, bytes, bytes)
    }

    /// Watches the map of a table at `address`, which is replaced page by page.
    ///
    /// # Errors
    /// As [`Self::window`].
    pub fn table(address: usize, bytes: usize) -> io::Result<Self> {
        Self::new(WINDOWS_MAX..SLOTS.len(), address, bytes, rustix::param::page_size())
    }

    fn new(slots: Range<usize>, address: usize, bytes: usize, piece_bytes: usize) -> io::Result<Self> {
        assert!(address > 0 && piece_bytes > 0, "a map has an address and pieces");
        install()?;
        for (number, slot) in SLOTS.iter().enumerate().take(slots.end).skip(slots.start) {
            // Looked at first: the exchange would take the line from threads that read the flag.
            let is_free = !slot.is_taken.load(Ordering::Relaxed);
            let take = || slot.is_taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed);
            if is_free && take().is_ok() {
                slot.bytes.store(bytes, Ordering::Release);
                slot.piece_bytes.store(piece_bytes, Ordering::Release);
                slot.has_failed.store(false, Ordering::Release);
                slot.address.store(address, Ordering::Release);
                return Ok(Self(number));
            }
        }
        Err(io::Error::other("all places for mapped files are taken"))
    }

    /// Whether an access to the map failed. Accesses that returned before are not affected. Of a
    /// log, that copy and later ones do not reach the file; of a table, what was read since may be
    /// zeros.
    pub fn has_failed(&self) -> bool {
        // The handler ran on a thread inside its access.
        SLOTS[self.0].has_failed.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let slot = &SLOTS[self.0];
        slot.address.store(0, Ordering::Release);
        slot.is_taken.store(false, Ordering::Release);
    }
}

/// Installs the handler, once.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // SAFETY: all fields of a `sigaction` are integers, function addresses or sets of bits, for
        // which zeros are valid.
        let (mut before, mut ours): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
        ours.sa_sigaction = handler as *const () as usize;
        // On the alternate stack, if the thread has one: some languages require it.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: both pointers are to values of this frame, or null, as the call permits. The
        // handler only does what a handler may do; its notes say so.
        let asked = unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) };
        if asked != 0 {
            return Err(last_error());
        }
        let _ = PREVIOUS.set(before);
        // SAFETY: as above.
        match unsafe { libc::sigaction(libc::SIGBUS, &ours, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(last_error()),
        }
    });
    installed.map_err(io::Error::from_raw_os_error)
}

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes a valid `siginfo_t`, and for a fault it has an address. The address
    // of `errno` belongs to this thread.
    let (code, address, errno) =
        unsafe { ((*info).si_code, (*info).si_addr() as usize, libc::__errno_location()) };
    // A process or thread sends it; the others are faults.
    let is_sent = code <= 0;
    // SAFETY: as above. A handler leaves `errno` as it was.
    let errno_before = unsafe { *errno };
    let is_handled = !is_sent && replace_piece(address);
    // SAFETY: as above.
    unsafe { *errno = errno_before };
    if !is_handled {
        pass_on(signal, is_sent, info, context);
    }
}

/// Maps anonymous memory in the place of the piece of a map that contains `address`. Returns
/// whether there is one. Called in a handler: it uses atomics and one system call.
fn replace_piece(address: usize) -> bool {
    for slot in &SLOTS {
        let start = slot.address.load(Ordering::Acquire);
        if start == 0 || address < start {
            continue;
        }
        let (bytes, piece_bytes) =
            (slot.bytes.load(Ordering::Acquire), slot.piece_bytes.load(Ordering::Acquire));
        // Otherwise the slot was given to another map meanwhile, which is not that of this thread.
        let is_same = slot.address.load(Ordering::Relaxed) == start;
        let inside = address - start;
        if !is_same || piece_bytes == 0 || inside >= bytes {
            continue;
        }
        // First: another thread that reads the zeros must find it set afterwards.
        slot.has_failed.store(true, Ordering::SeqCst);
        // SAFETY: the range is a piece of a map that its owner keeps mapped while it is registered,
        // or the rest of the last page of one. The owner accesses it as raw bytes: it writes a
        // log's, and compares the checksum of a table's.
        let mapped = unsafe {
            libc::mmap(
                (start + inside / piece_bytes * piece_bytes) as *mut libc::c_void,
                piece_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return false;
        }
        return true;
    }
    false
}

/// Passes a signal on to the action before ours.
fn pass_on(signal: libc::c_int, is_sent: bool, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get();
    match previous.map_or(libc::SIG_DFL, |action| action.sa_sigaction) {
        libc::SIG_IGN if is_sent => {}
        // For a fault of this thread the two are the same: the system does not ignore it. The
        // instruction is executed again, and then the default ends the process.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the call may be made in a handler; zeros are valid as above.
            unsafe {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, std::ptr::null_mut());
                // A signal that was sent, not caused, does not come again by itself.
                libc::raise(signal);
            }
        }
        handler if previous.is_some_and(|action| action.sa_flags & libc::SA_SIGINFO != 0) => {
            // SAFETY: its installation stated that it is a handler with three parameters.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: its installation stated that it is a handler with one parameter.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}
