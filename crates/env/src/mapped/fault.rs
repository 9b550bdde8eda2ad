//! Turns the signal of a failed copy into a mapped file (`SIGBUS`) into a flag.
//!
//! A copy fails if the operating system cannot provide the page: the device fails, or another
//! process has truncated the file. By default the signal ends the process. The handler instead
//! replaces the window by anonymous memory, so that the copy can complete, and sets the window's
//! flag ([`Watch::has_failed`]). The owner of the window checks the flag after each copy.
//!
//! The handler is process-wide and is installed with the first window. A signal at any other
//! address goes to the previous handler, or to the system's default action, which ends the process.
//! A program that installs its own handler later must forward signals that are not its own to this
//! one. Otherwise a failed device ends the process.
//!
//! Windows are registered in a fixed table, because a handler may neither allocate nor lock.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::WINDOW_BYTES;

/// Maximum number of windows at a time in this process: logs beyond it are written.
const WINDOWS_MAX: usize = 256;

/// A registered window.
struct Slot {
    /// Address of the window; 0 if the slot is free.
    address: AtomicUsize,
    /// Anonymous memory is in the place of the window.
    has_failed: AtomicBool,
}

static SLOTS: [Slot; WINDOWS_MAX] =
    [const { Slot { address: AtomicUsize::new(0), has_failed: AtomicBool::new(false) } }; WINDOWS_MAX];

/// The action before ours; set before the handler is installed.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Watches one window. It is dropped before the window is unmapped: a later map of the same address
/// is not ours.
#[derive(Debug)]
pub(super) struct Watch(usize);

impl Watch {
    /// Watches the window at `address`, of [`WINDOW_BYTES`].
    ///
    /// # Errors
    /// The table is full, or the handler cannot be installed.
    pub fn new(address: usize) -> io::Result<Self> {
        assert!(address > 0, "a window has an address");
        install()?;
        let slot = SLOTS.iter().position(|slot| {
            // Until the slot has an address, its flag is not raised by anyone.
            let taken = slot.address.compare_exchange(0, address, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        });
        match slot {
            Some(at) => {
                SLOTS[at].has_failed.store(false, Ordering::Release);
                Ok(Self(at))
            }
            None => Err(io::Error::other("all windows for mapped logs are taken")),
        }
    }

    /// Whether a copy into the window failed. Copies that returned before are not affected; that
    /// copy and later ones do not reach the file.
    pub fn has_failed(&self) -> bool {
        // The handler ran on this thread, inside the copy.
        SLOTS[self.0].has_failed.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        SLOTS[self.0].address.store(0, Ordering::Release);
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
    // SAFETY: the system passes a valid `siginfo_t`, and for this signal it has an address. The
    // address of `errno` belongs to this thread.
    let (address, errno) = unsafe { ((*info).si_addr() as usize, libc::__errno_location()) };
    // SAFETY: as above. A handler leaves `errno` as it was.
    let errno_before = unsafe { *errno };
    let is_handled = replace_window(address);
    // SAFETY: as above.
    unsafe { *errno = errno_before };
    if !is_handled {
        pass_on(signal, info, context);
    }
}

/// Maps anonymous memory in the place of the window that contains `address`. Returns whether there
/// is one. Called in a handler: it uses atomics and one system call.
fn replace_window(address: usize) -> bool {
    for slot in &SLOTS {
        let window = slot.address.load(Ordering::Acquire);
        if window == 0 || address < window || address - window >= WINDOW_BYTES {
            continue;
        }
        // SAFETY: the range is a window that its owner has mapped, and keeps mapped while it is
        // registered. Only the owner's copy accesses it, as bytes to be written.
        let mapped = unsafe {
            libc::mmap(
                window as *mut libc::c_void,
                WINDOW_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return false;
        }
        slot.has_failed.store(true, Ordering::Release);
        return true;
    }
    false
}

/// Passes a signal on to the action before ours.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get();
    match previous.map_or(libc::SIG_DFL, |action| action.sa_sigaction) {
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
