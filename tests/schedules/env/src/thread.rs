//! The number of a thread, by which threads spread over the shards of shared state.

/// The number of the calling thread in its schedule. That of the operating system's thread, which
/// runs all of them, depends on what ran before: shared state is visited shard by shard, each
/// behind a lock, so the shard that a thread uses changes the number of steps.
pub fn thread_number() -> usize {
    shuttle::current::try_get_current_task().map_or(0, usize::from)
}
