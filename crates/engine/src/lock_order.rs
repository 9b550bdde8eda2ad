//! The order of locks: a thread that holds a lock waits only for locks further down this table.
//!
//! Every lock of the engine has its rank from here ([`crate::ranked`]), so a build with debug
//! assertions stops at the first wrong order. Code of the user runs without any of them, except the
//! iterator of an ingest. `ARCHITECTURE.md` has the same table, and a test compares the two.

use crate::ranked::Rank;

/// Declares the ranks in ascending order, and the list of all of them for the tests.
macro_rules! order {
    ($($(#[doc = $doc:literal])+ $rank:ident = $order:literal, $name:literal;)+) => {
        $($(#[doc = $doc])+ pub(crate) const $rank: Rank = Rank { order: $order, name: $name };)+

        #[cfg(test)]
        const ALL: &[Rank] = &[$($rank),+];
    };
}

order! {
    /// State of the tuner. Held while it computes advice and moves to another design.
    TUNER = 1, "the tuner";
    /// Observations of residency. Held while it settles and requests filter rewrites.
    RESIDENCY_LOOK = 2, "the observations of residency";
    /// The reads of a transaction. Held while their memory is charged.
    TRANSACTION = 3, "the reads of a transaction";
    /// Active log, sequence numbers, active memtables. Held while edits are installed.
    WRITING = 5, "the writer";
    /// The redesigns. Held while another design is installed.
    REDESIGNS = 7, "the redesigns";
    /// The file of statistics. Held while it is written.
    STATISTICS = 8, "the file of statistics";
    /// The writer and the flush sync a sealed log under its lock.
    SEALED_LOG = 9, "a sealed log";
    /// Manifest and trees. Held while views are published and their memory is charged.
    INSTALLING = 10, "the install";
    /// Requests, running jobs with their claims, failures. Held while the next job is chosen.
    BACKGROUND = 11, "background work";
    /// Members of a pool and their turns. Taken by those who wake threads; no step runs under it.
    POOL = 12, "the pool of threads";
    /// The charge for trees. Held while room is made for it.
    TREE_CHARGE = 20, "the charge for trees";
    /// The knowledge of settlements about tables. Held while they make room for what they read.
    RESIDENCY = 21, "residency";
    /// The capacity of the block cache. Held while consumers shrink, which only try for residency.
    BALANCING = 22, "the balance of memory";
    /// The view of a keyspace. Taken by rotations, installs and settlements.
    PUBLISHING = 23, "a view";
    /// The waiting writers and their leader.
    COMMIT_LINE = 30, "the line of writers";
    /// The request and the answer of one waiting writer. Taken under the line's lock.
    COMMIT_TICKET = 31, "a waiting writer";
    /// The sealed generations. Read while jobs are chosen.
    SEALED = 32, "the sealed generations";
    /// When the log must be synced. Set by the writer.
    SYNC_SCHEDULE = 33, "the schedule of log syncs";
    /// The recording of a trace. Held by a writer until its group is visible.
    RECORDING = 34, "the recording";
    /// Tables that no version names. Held while their files are deleted.
    OBSOLETE_TABLES = 35, "the obsolete tables";
    /// Other obsolete files. Held while they are deleted.
    OBSOLETE_FILES = 36, "the obsolete files";
    /// The callbacks that wait for durable writes, which are called without it.
    DURABLE_WAITING = 37, "the callbacks for durable writes";
    /// The logs of the database, obsolete ones that are kept among them.
    KNOWN_LOGS = 38, "the list of logs";
    /// Reports and targets of the databases that share a budget.
    BUDGET_MEMBERS = 39, "the members of a shared budget";
    /// The observed workload.
    WORKLOAD = 40, "the observed workload";
    /// The last plan of residency in figures.
    PLAN_PRICES = 41, "the prices of the last plan";
    /// The last decision on shares of memory.
    DIVISION = 42, "the division of memory";
    /// The list of consumers of memory, which are called without it.
    CONSUMERS = 43, "the consumers of memory";
    /// Number and sizes of the tables.
    TREE_TABLES = 44, "the sizes of tables";
    /// The rate limit of compactions, which sleep without it.
    PACE = 45, "the pace of compactions";
    /// The work of a sync on another thread, which runs without it.
    SYNC_WORK = 46, "a sync that waits for a thread";
    /// The result of a sync on another thread.
    SYNC_RESULT = 47, "the result of a sync";
    /// The thread that syncs the log, which is joined without it.
    SYNC_THREAD = 48, "the thread of log syncs";
    /// The lock of the directory.
    FILE_LOCK = 49, "the lock file";
    /// The failure that turned writes off.
    FAILURE = 50, "the failure";
    /// The warnings since the open.
    WARNINGS = 51, "the warnings";
    /// The info log. Held while a line is written to it.
    INFO_LOG = 52, "the info log";
    /// Whether a stream of changes has been woken.
    CHANGES_WOKEN = 53, "the alarm of a stream of changes";
    /// The settings of a keyspace, and the rules by which its compactions drop entries. Held to
    /// copy or replace one.
    KEYSPACE_RULES = 54, "the rules of a keyspace";
    /// The settings that can change. Held to copy or replace them.
    LIVE_SETTINGS = 55, "the live settings";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_ascend_and_names_differ() {
        assert!(ALL.is_sorted_by(|rank, next| rank.order < next.order), "two ranks are out of order");
        for (number, rank) in ALL.iter().enumerate() {
            assert!(ALL[..number].iter().all(|other| other.name != rank.name), "two are named {}", rank.name);
        }
    }

    /// The table is outside of the package, so it is missing where the package alone was unpacked.
    #[test]
    fn the_document_has_the_same_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");
        let Ok(text) = std::fs::read_to_string(path) else { return };
        let section = text.split("\n## ").find(|section| section.starts_with("Locks\n"));
        let rows = section.expect("a section of locks").lines().filter_map(|line| line.strip_prefix("| "));
        let mut names = Vec::new();
        for row in rows.filter(|row| !row.starts_with("lock |")) {
            let cells: Vec<&str> = row.split(" | ").collect();
            names.extend(cells[0].split(", then ").map(str::to_owned));
        }
        let expected: Vec<&str> = ALL.iter().map(|rank| rank.name).collect();
        assert_eq!(names, expected, "ARCHITECTURE.md and this file list other locks, or another order");
    }
}
