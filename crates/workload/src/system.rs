//! Platform differences: CPU times, and reading a file from its start.
//!
//! Only Linux is tested. Not here: the engine's files (`shamba-env`).

use std::fs::File;
use std::io;
use std::time::Duration;

#[cfg(unix)]
pub use self::unix::read_from_start;
#[cfg(unix)]
pub(crate) use self::unix::{process_cpu, thread_cpu};

#[cfg(not(unix))]
pub use self::other::read_from_start;
#[cfg(not(unix))]
pub(crate) use self::other::{process_cpu, thread_cpu};

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::FileExt;

    use rustix::time::{ClockId, clock_gettime};

    use super::{Duration, File, io};

    /// CPU time of all threads of the process.
    pub(crate) fn process_cpu() -> Duration {
        of(ClockId::ProcessCPUTime)
    }

    /// CPU time of the calling thread.
    pub(crate) fn thread_cpu() -> Duration {
        of(ClockId::ThreadCPUTime)
    }

    fn of(clock: ClockId) -> Duration {
        let time = clock_gettime(clock);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    /// Reads from the start of `file` into `buf`, in one call; returns the number of bytes.
    pub fn read_from_start(file: &File, buf: &mut [u8]) -> io::Result<usize> {
        file.read_at(buf, 0)
    }
}

#[cfg(not(unix))]
mod other {
    use std::io::{Read, Seek, SeekFrom};

    use super::{Duration, File, io};

    /// CPU time is not measured on this platform: always 0.
    pub(crate) fn process_cpu() -> Duration {
        Duration::ZERO
    }

    /// CPU time is not measured on this platform: always 0.
    pub(crate) fn thread_cpu() -> Duration {
        Duration::ZERO
    }

    /// Reads from the start of `file` into `buf`; returns the number of bytes.
    pub fn read_from_start(mut file: &File, buf: &mut [u8]) -> io::Result<usize> {
        file.seek(SeekFrom::Start(0))?;
        file.read(buf)
    }
}
