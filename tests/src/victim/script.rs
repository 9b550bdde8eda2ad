//! Requests to a victim: commits in several keyspaces, reads, and work on the tree; as lines of
//! `shamba batch`.
//!
//! Each value is unique in its database, so that a state identifies the commits that made it. There
//! are few keys, so that writes collide and deletes find something.

use std::ops::Bound;

use fastrand::Rng;

use crate::expiry::time_to_live;
use crate::oracle::{Change, SPACES};

/// One request.
#[derive(Clone, Debug)]
pub enum Ask {
    /// A commit: one line, or several between `begin` and `commit`.
    Commit(Vec<Change>),
    /// A read.
    Get {
        /// Index into `SPACES`.
        space: usize,
        /// The key.
        key: Vec<u8>,
    },
    /// Flushes the memtables.
    Flush,
    /// Compacts everything.
    Compact,
    /// Syncs the log.
    Sync,
}

/// Frequencies of the requests.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Number of different keys.
    pub keys: u32,
    /// Maximum length of an ordinary value, in bytes.
    pub value_bytes: usize,
    /// One value in this many has tens of kilobytes.
    pub large_one_in: u32,
    /// Number of commits between flushes; 0 for no flushes.
    pub flush_every: u32,
    /// Full compactions per thousand requests.
    pub compact_per_mille: u32,
    /// Syncs per thousand requests.
    pub sync_per_mille: u32,
}

impl Mix {
    /// A mix of all requests.
    pub const USUAL: Self = Self {
        keys: 1_500,
        value_bytes: 120,
        large_one_in: 400,
        flush_every: 150,
        compact_per_mille: 2,
        sync_per_mille: 5,
    };
}

/// Generates requests.
#[derive(Debug)]
pub struct Script {
    rng: Rng,
    mix: Mix,
    commits: u32,
    values: u64,
}

impl Script {
    /// The script of a seed. `life` makes its values different from those of other lives.
    pub fn new(seed: u64, life: u64, mix: Mix) -> Self {
        Self { rng: Rng::with_seed(seed), mix, commits: 0, values: life << 32 }
    }

    /// The next `count` requests.
    pub fn asks(&mut self, count: usize) -> Vec<Ask> {
        (0..count).map(|_| self.ask()).collect()
    }

    fn ask(&mut self) -> Ask {
        if self.mix.flush_every > 0 && self.commits >= self.mix.flush_every {
            self.commits = 0;
            return Ask::Flush;
        }
        let roll = self.rng.u32(..1_000);
        let compacts = self.mix.compact_per_mille;
        if roll < compacts {
            return Ask::Compact;
        }
        if roll < compacts + self.mix.sync_per_mille {
            return Ask::Sync;
        }
        if roll < compacts + self.mix.sync_per_mille + 80 {
            return Ask::Get { space: self.space(), key: self.key() };
        }
        self.commits += 1;
        let changes = if self.rng.u8(..3) == 0 { self.rng.usize(2..9) } else { 1 };
        Ask::Commit((0..changes).map(|_| self.change()).collect())
    }

    fn change(&mut self) -> Change {
        let space = self.space();
        match self.rng.u8(..100) {
            0..64 => Change::Put { space, key: self.key(), value: self.value() },
            // The one keyspace for which the command line gives an operator.
            64..80 if space == 0 => Change::Merge { space, key: self.key(), operand: self.operand() },
            64..80 => Change::Put { space, key: self.key(), value: self.value() },
            80..95 => Change::Delete { space, key: self.key() },
            _ => {
                let from = self.rng.u32(..self.mix.keys);
                let to = from + self.rng.u32(1..12);
                let span = (Bound::Included(key_of(from)), Bound::Excluded(key_of(to)));
                Change::DeleteRange { space, span }
            }
        }
    }

    fn space(&mut self) -> usize {
        match self.rng.u8(..8) {
            0 | 1 => 1,
            2 => 2,
            _ => 0,
        }
    }

    fn key(&mut self) -> Vec<u8> {
        key_of(self.rng.u32(..self.mix.keys))
    }

    fn operand(&mut self) -> Vec<u8> {
        self.values += 1;
        format!("{:x}.", self.values).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        self.values += 1;
        let mut value = format!("{:x}.", self.values).into_bytes();
        let bytes = match self.rng.u32(..self.mix.large_one_in) {
            0 => self.rng.usize(10_000..60_000),
            _ => self.rng.usize(..self.mix.value_bytes),
        };
        value.resize(value.len() + bytes, b'v');
        value
    }
}

fn key_of(number: u32) -> Vec<u8> {
    format!("k/{:04}/{}", number / 10, number % 10).into_bytes()
}

/// A line and the subject of its reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The line, without its end.
    pub text: String,
    /// Index of the request.
    pub ask: usize,
    /// Index of the change that it queues; `None` for a line whose reply is the request's.
    pub queues: Option<usize>,
    /// Whether it only begins a batch.
    pub begins: bool,
}

/// The lines of all requests, in order: each gets one reply.
pub fn lines(asks: &[Ask]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (ask, asked) in asks.iter().enumerate() {
        let last = |text: String| Line { text, ask, queues: None, begins: false };
        match asked {
            Ask::Commit(changes) if changes.len() == 1 => lines.push(last(line_of(&changes[0]))),
            Ask::Commit(changes) => {
                lines.push(Line { text: "begin".into(), ask, queues: None, begins: true });
                let queued = changes.iter().enumerate();
                lines.extend(queued.map(|(place, change)| Line {
                    text: line_of(change),
                    ask,
                    queues: Some(place),
                    begins: false,
                }));
                lines.push(last("commit".into()));
            }
            Ask::Get { space, key } => lines.push(last(format!("{}get {}", in_space(*space), text(key)))),
            Ask::Flush => lines.push(last("flush".into())),
            Ask::Compact => lines.push(last("compact".into())),
            Ask::Sync => lines.push(last("sync".into())),
        }
    }
    lines
}

fn in_space(space: usize) -> String {
    if space == 0 { String::new() } else { format!("in {} ", SPACES[space]) }
}

fn line_of(change: &Change) -> String {
    match change {
        Change::Put { space, key, value } => {
            let put = time_to_live(value).map_or("put".to_owned(), |it| format!("putttl {}s", it.as_secs()));
            format!("{}{put} {} {}", in_space(*space), text(key), text(value))
        }
        Change::Delete { space, key } => format!("{}del {}", in_space(*space), text(key)),
        Change::DeleteRange { space, span: (Bound::Included(from), Bound::Excluded(to)) } => {
            format!("{}delrange {} {}", in_space(*space), text(from), text(to))
        }
        Change::Merge { space, key, operand } => {
            format!("{}merge {} {}", in_space(*space), text(key), text(operand))
        }
        Change::DeleteRange { span, .. } => unreachable!("scripts make no such span: {span:?}"),
    }
}

/// Keys and values of scripts are plain text without spaces.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("scripts make text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_of_its_ask() {
        let asks = Script::new(1, 0, Mix::USUAL).asks(2_000);
        let lines = lines(&asks);
        let finals = lines.iter().filter(|line| line.queues.is_none() && !line.begins).count();
        assert_eq!(finals, asks.len());
        assert!(lines.windows(2).all(|pair| pair[0].ask <= pair[1].ask));
        let has = |what: &str| lines.iter().any(|line| line.text.starts_with(what));
        for what in [
            "put ",
            "putttl ",
            "merge ",
            "del ",
            "delrange ",
            "get ",
            "in users put ",
            "in ix delrange ",
            "begin",
            "flush",
        ] {
            assert!(has(what), "{what}");
        }
        assert!(lines.iter().all(|line| !line.text.contains('\n')));
    }
}
