//! Linearizability check: whether concurrent operations on one key and their results are possible
//! in some sequential order.
//!
//! Each write gives the key a unique value, so a read identifies the write that it saw. An
//! operation takes effect at some moment between its start and its end. The write of a value and
//! all reads of it are a cluster. Consider the first end and the last start of its operations. If
//! the first end comes earlier, the key must have had that value from then until the last start (a
//! *forward* zone). Otherwise it had the value at some moment between the last start and the first
//! end (a *backward* zone). A history is linearizable if and only if no read ended before the write
//! that it saw began, no two forward zones overlap, and no backward zone lies within a forward one:
//! Gibbons and Korach, Testing Shared Memories, SIAM Journal on Computing 26(4), 1997.
//!
//! A conditional write also tells the value that it replaced, in the same moment: it is a read of
//! that value as well, no other conditional write may have replaced it, and no other value may lie
//! between them. So the clusters of values that replaced each other are also checked as one.
//!
//! Not here: the threads and their operations (suite `linear`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A logical clock of the starts and ends of operations, shared by all threads.
#[derive(Debug, Default)]
pub struct Ticks(AtomicU64);

impl Ticks {
    /// Returns the next tick.
    pub fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// An operation on the key.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Time of the call.
    pub start: u64,
    /// Time of the return.
    pub end: u64,
    /// The value that it wrote or read.
    pub value: u64,
    /// Whether it is a write.
    pub is_write: bool,
    /// The value that a conditional write replaced.
    pub replaced: Option<u64>,
}

/// The operations of one value.
#[derive(Clone, Copy, Debug)]
struct Cluster {
    write: Option<Event>,
    first_end: u64,
    last_start: u64,
    first_read_end: u64,
}

/// Checks that a history is linearizable; returns the number of its operations.
///
/// # Errors
/// The values that contradict each other.
pub fn check(events: &[Event]) -> Result<u64, String> {
    let mut clusters: BTreeMap<u64, Cluster> = BTreeMap::new();
    let mut replaced: BTreeMap<u64, u64> = BTreeMap::new();
    for event in events {
        if let Some(old) = event.replaced
            && let Some(other) = replaced.insert(old, event.value)
        {
            return Err(format!("values {other} and {} both replaced value {old}", event.value));
        }
    }
    let reads = events.iter().filter_map(|event| {
        event.replaced.map(|value| Event { value, is_write: false, replaced: None, ..*event })
    });
    for event in events.iter().copied().chain(reads) {
        let cluster = clusters.entry(event.value).or_insert(Cluster {
            write: None,
            first_end: u64::MAX,
            last_start: 0,
            first_read_end: u64::MAX,
        });
        cluster.first_end = cluster.first_end.min(event.end);
        cluster.last_start = cluster.last_start.max(event.start);
        if event.is_write {
            if cluster.write.replace(event).is_some() {
                return Err(format!("value {} was written twice: the history cannot be judged", event.value));
            }
        } else {
            cluster.first_read_end = cluster.first_read_end.min(event.end);
        }
    }
    for (value, cluster) in &clusters {
        let Some(write) = cluster.write else {
            return Err(format!("value {value} was read and never written"));
        };
        if cluster.first_read_end < write.start {
            return Err(format!("value {value} was read before its write began"));
        }
    }
    check_zones(&clusters)?;
    // A value and the one that replaced it follow each other without a gap, so no other value can
    // have been there between them.
    let mut chains: BTreeMap<u64, Cluster> = BTreeMap::new();
    for (value, cluster) in &clusters {
        let mut last = *value;
        while let Some(next) = replaced.get(&last) {
            last = *next;
            if last == *value {
                return Err(format!("value {value} replaced itself"));
            }
        }
        let chain = chains.entry(last).or_insert(*cluster);
        chain.first_end = chain.first_end.min(cluster.first_end);
        chain.last_start = chain.last_start.max(cluster.last_start);
    }
    check_zones(&chains)?;
    Ok(events.len() as u64)
}

/// Checks the zones of clusters.
///
/// # Errors
/// The values that contradict each other.
fn check_zones(clusters: &BTreeMap<u64, Cluster>) -> Result<(), String> {
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    for (value, cluster) in clusters {
        let zone =
            (cluster.first_end.min(cluster.last_start), cluster.first_end.max(cluster.last_start), *value);
        if cluster.first_end < cluster.last_start { forward.push(zone) } else { backward.push(zone) }
    }
    forward.sort_unstable();
    if let Some(pair) = forward.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        return Err(format!("the key had value {} while it had value {}: {pair:?}", pair[1].2, pair[0].2));
    }
    for (from, to, value) in backward {
        // Forward zones are disjoint here, so only the last one that begins earlier can contain
        // this one.
        let before = forward.partition_point(|(begin, ..)| *begin < from);
        if let Some((begin, end, other)) = before.checked_sub(1).map(|at| forward[at])
            && to < end
        {
            return Err(format!(
                "value {value} was there from {from} to {to}, when it was {other} from {begin} to {end}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `w 1 0-3` wrote value 1 from 0 to 3; `r` read it; `c 2 0-3 1` replaced value 1 by it.
    fn history(text: &str) -> Result<u64, String> {
        let number = |word: &str| word.parse::<u64>().expect("a number");
        let event = |line: &str| {
            let words: Vec<&str> = line.split([' ', '-']).collect();
            Event {
                is_write: words[0] != "r",
                replaced: (words[0] == "c").then(|| number(words[4])),
                value: number(words[1]),
                start: number(words[2]),
                end: number(words[3]),
            }
        };
        check(&text.split(", ").map(event).collect::<Vec<_>>())
    }

    #[test]
    fn what_can_have_happened_passes() {
        for text in [
            "w 1 0-1, r 1 2-3",
            "w 1 0-9, w 2 1-8, r 1 2-3, r 2 4-5",
            // The second write comes between the two reads of the first, which overlap it.
            "w 1 0-1, w 2 2-9, r 1 3-4, r 1 5-6, r 2 10-11",
            "w 1 0-1, w 2 2-3, w 3 4-5, r 3 6-7",
            "w 1 0-1, c 2 2-9 1, c 3 2-9 2, r 3 10-11",
        ] {
            assert!(history(text).is_ok(), "{text}: {:?}", history(text));
        }
    }

    #[test]
    fn what_cannot_have_happened_is_refuted() {
        for text in [
            // Never written; read before the write.
            "r 1 0-1",
            "r 1 0-1, w 1 2-3",
            // Stale: another write ended before the read began.
            "w 1 0-1, w 2 2-3, r 1 4-5",
            // Back again: the second reader saw the newer value, the third the older one.
            "w 1 0-1, w 2 2-11, r 2 3-4, r 1 5-6",
            // A lost update.
            "w 1 0-1, c 2 2-9 1, c 3 2-9 1",
            // Another value came between the two.
            "w 1 0-1, w 3 2-9, c 2 2-9 1, r 2 10-11, r 3 12-13",
            "w 1 0-1, w 3 2-9, c 2 2-9 1, r 3 10-11, r 2 12-13",
            // Replaced when it was gone.
            "w 1 0-1, w 2 2-3, c 3 4-5 1",
            // Two readers saw two concurrent writes in both orders.
            "w 1 0-9, w 2 0-9, r 1 1-2, r 2 3-4, r 1 5-6, r 2 7-8",
        ] {
            assert!(history(text).is_err(), "{text}");
        }
    }
}
