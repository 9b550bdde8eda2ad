//! The replica of a run: what it has taken equals what was written.

use super::Runner;
use crate::compare::failed;
use crate::follower::Follower;

/// Operations between two comparisons with a stream that delivers what is visible.
const TURNS: u64 = 16;

impl Runner {
    /// Begins the replica, if the run has one.
    ///
    /// # Errors
    /// If the database is not open.
    pub(super) fn begin_following(&mut self) -> Result<(), String> {
        if let Some(is_unsynced) = self.vector.follows_unsynced {
            self.follower = Some(Follower::new(&self.spaces()?.db, is_unsynced));
        }
        Ok(())
    }

    /// Lets the replica take what comes, and compares it now and then.
    ///
    /// # Errors
    /// A difference, or a failure.
    pub(super) fn follow(&mut self) -> Result<(), String> {
        if !self.turn.is_multiple_of(TURNS) {
            return Ok(());
        }
        let (Some(follower), Some(spaces)) = (&mut self.follower, &self.spaces) else { return Ok(()) };
        match follower.follow(&spaces.db)? {
            true => self.replica_is_equal(),
            false => Ok(()),
        }
    }

    /// Compares the replica. All that was written must have been delivered.
    ///
    /// # Errors
    /// A difference, or a failure.
    pub(super) fn replica_is_equal(&mut self) -> Result<(), String> {
        let now = self.now();
        let (Some(follower), Some(spaces)) = (&mut self.follower, &self.spaces) else { return Ok(()) };
        follower.expect_equal(&spaces.db, &self.oracle, now)?;
        self.tally.add("replicas compared", 1);
        Ok(())
    }

    /// Continues after a reopen.
    ///
    /// # Errors
    /// A difference, or a failure.
    pub(super) fn follow_again(&mut self, was_closed: bool) -> Result<(), String> {
        let (Some(follower), Some(spaces)) = (&mut self.follower, &self.spaces) else { return Ok(()) };
        follower.resume(&spaces.db)?;
        if was_closed { self.replica_is_equal() } else { Ok(()) }
    }

    /// Compares the replica for the last time, when all is durable, and counts what it has taken.
    ///
    /// # Errors
    /// A difference, or a failure.
    pub(super) fn finish_following(&mut self) -> Result<(), String> {
        if self.follower.is_none() {
            return Ok(());
        }
        self.spaces()?.db.sync().map_err(failed("sync"))?;
        self.replica_is_equal()?;
        if let Some(follower) = self.follower.take() {
            self.tally.add("changes followed", follower.taken);
        }
        Ok(())
    }
}
