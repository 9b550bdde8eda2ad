//! Which acknowledged commits of concurrent writers must survive a power loss.
//!
//! The order of commits is not known from outside, so the rule is the one that callers see. If a
//! synced commit was acknowledged before the crash, every commit of any writer that was
//! acknowledged before that one began survives, and so does the synced one. A commit survives only
//! with all earlier ones of its writer.

/// One writer's observation of one commit; positions are in the order of all such events.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Position of the call.
    pub begun: usize,
    /// Position of the return.
    pub acked: usize,
    /// Number of calls of the disk when the commit was acknowledged.
    pub calls: u64,
    /// Whether it was synced.
    pub sync: bool,
}

/// Number of each writer's commits, in their order, that must survive a crash after call `k`.
pub fn durable(commits: &[Vec<Acked>], k: u64) -> Vec<usize> {
    let synced = commits.iter().flatten().filter(|commit| commit.sync && commit.calls <= k);
    let newest = synced.map(|commit| commit.begun).max();
    let own = |commits: &[Acked]| commits.iter().rposition(|commit| commit.sync && commit.calls <= k);
    commits
        .iter()
        .map(|commits| {
            let before =
                newest.map_or(0, |begun| commits.iter().filter(|commit| commit.acked < begun).count());
            before.max(own(commits).map_or(0, |at| at + 1))
        })
        .collect()
}
