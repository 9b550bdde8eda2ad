//! The scheduler as a member of a pool of threads.
//!
//! [`crate::workers`] says which thread does which step when; [`super::execute`] does it.

use super::Scheduler;
use super::execute::IDLE;
use crate::error::{Error, ErrorKind};
use crate::workers::{Lane, Next, Steps};

impl Steps for Scheduler {
    fn limit(&self, lane: Lane) -> usize {
        match lane {
            _ if self.lifecycle.is_read_only() => 0,
            Lane::Flush => 1,
            Lane::Compaction => self.compaction_threads(),
            Lane::Upkeep => 0,
        }
    }

    fn step(&self, lane: Lane) -> Next {
        match lane {
            _ if self.background.is_stopping() => Next::After(IDLE),
            Lane::Flush => self.flush_step(),
            Lane::Compaction => self.compaction_step(),
            Lane::Upkeep => Next::After(IDLE),
        }
    }

    fn panicked(&self, lane: Lane) {
        self.lifecycle.fail(&Error::new(ErrorKind::ReadOnly, format!("a thread of {lane:?} work panicked")));
    }
}
