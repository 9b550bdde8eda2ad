//! System calls that differ between platforms: `unix.rs` (Linux, macOS) or `windows.rs`, which have
//! the same functions.
//!
//! Only Linux on x86-64 is tested; the others are checked to compile (`docs/platforms.md`).

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;
#[cfg(not(any(unix, windows)))]
compile_error!("Shamba's real file system knows unix (Linux, macOS) and Windows only");

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;
