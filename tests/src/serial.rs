//! Isolation check: whether committed transactions and what they read are possible under
//! serializability, or under snapshot isolation.
//!
//! Each write gives its key a unique value, so a value names the transaction that wrote it. The
//! versions of a key are ordered by the places of their transactions in the order of all commits.
//! The recorder takes a place from the database: every transaction also writes a key of its own,
//! whose sequence number is asked for when all is over. A wrong place cannot hide much: places give
//! nothing but the versions' order, and the last version of each key is compared with a read by a
//! transaction after all others. A write that replaced a known value by compare-and-swap needs no
//! place, because it follows that value.
//!
//! The check builds the direct serialization graph (Adya, Liskov, O'Neil, ICDE 2000): `wr` from the
//! writer of a version to its readers, `ww` from the writer of a version to that of the next one,
//! `rw` from the reader of a version to the writer of the next one, and real time from a
//! transaction to those that began after its end. A scan reads every key of its range, absent ones
//! too, so a phantom is an `rw` dependency like any other. The history is
//!
//! - strictly serializable if and only if the graph has no cycle;
//! - possible under (strong) snapshot isolation if and only if every cycle has two adjacent `rw`
//!   dependencies (Fekete et al., TODS 30(2), 2005; Cerone and Gotsman, PODC 2016). To find the
//!   other cycles, each transaction is two nodes: `rw` leads to the second one, from which no `rw`
//!   leads on.
//!
//! Absent keys. No value tells which delete a reader of an absent key has seen. Its candidates are
//! all absent versions of the key. A candidate is excluded if its writer must come after the
//! reader, or if the writer of the next version is already visible to it. The reader then depends
//! on the first remaining candidate, and the transaction behind the last remaining one on the
//! reader: both hold whichever version it was. This repeats until nothing changes. So no correct
//! history is refused, and a wrong one is only accepted if some choice among concurrent deletes
//! remains open.
//!
//! Not here: one operation on one key ([`crate::history`]); the threads (suite `transactions`).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::Write as _;
use std::ops::Range;

/// A keyspace and a key in it, both by number.
pub type Key = (u8, u32);

/// The rule that a history must comply with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Strict serializability.
    Serializable,
    /// Snapshot isolation, with snapshots that contain all that had ended.
    Snapshot,
}

/// The place of a transaction in the order of commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// It wrote nothing.
    None,
    /// A number that grows from commit to commit.
    At(u64),
    /// It wrote one key, and replaced this value in the same moment.
    Behind(u64),
}

/// Something that a transaction has read; what it wrote itself before is left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// A key and its value, if it had one.
    Key(Key, Option<u64>),
    /// The keys of a keyspace in a range that were not absent, with their values.
    Keys(u8, Range<u32>, Vec<(u32, u64)>),
}

/// A committed transaction.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Time before its first operation.
    pub begin: u64,
    /// Time after its commit returned.
    pub end: u64,
    /// Its place in the order of commits.
    pub place: Place,
    /// Its reads, in any order.
    pub reads: Vec<Read>,
    /// Ranges that it deleted, before the writes of single keys.
    pub deleted: Vec<(u8, Range<u32>)>,
    /// The last state that it gave to single keys.
    pub writes: Vec<(Key, Option<u64>)>,
}

/// Counts of a history that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Number of transactions.
    pub transactions: u64,
    /// Number of pairs of a transaction and a key that it read.
    pub reads: u64,
    /// Number of reads of absent keys for which versions before and behind a value remained
    /// possible.
    pub open: u64,
}

/// Checks a history.
///
/// # Errors
/// The transactions that contradict each other, or a value that no committed transaction wrote.
pub fn check(history: &[Transaction], level: Level) -> Result<Checked, String> {
    let keys = Keys::of(history)?;
    let mut graph = Graph::new(history, level);
    for (key, versions) in &keys.versions {
        let writers: Vec<usize> = versions.iter().filter_map(|version| version.writer).collect();
        writers.windows(2).for_each(|pair| graph.add(pair[0], pair[1], Kind::Ww, Some(*key)));
    }
    let (mut reads, mut unclear) = (0, Vec::new());
    for (reader, transaction) in history.iter().enumerate() {
        for (key, value) in keys.read_by(transaction) {
            let Some(candidates) = keys.candidates(history, reader, key, value)? else { continue };
            reads += 1;
            graph.add_read(reader, key, &keys.versions[&key], &candidates);
            if candidates.len() > 1 {
                unclear.push((reader, key, candidates));
            }
        }
    }
    loop {
        let mut has_changed = false;
        for (reader, key, candidates) in &mut unclear {
            let before = candidates.len();
            let versions = &keys.versions[key];
            candidates.retain(|at| !graph.excludes(*reader, versions, *at));
            if candidates.is_empty() {
                let who = &history[*reader];
                return Err(graph.cycle().unwrap_or_else(|| {
                    format!("key {key:?} was read as absent when it was not: transaction {reader}, {who:?}")
                }));
            }
            if candidates.len() < before {
                has_changed = true;
                graph.add_read(*reader, *key, versions, candidates);
            }
        }
        if !has_changed {
            break;
        }
    }
    match graph.cycle() {
        Some(cycle) => Err(cycle),
        None => Ok(Checked {
            transactions: history.len() as u64,
            reads,
            open: unclear.iter().filter(|(.., candidates)| have_gap(candidates)).count() as u64,
        }),
    }
}

/// Whether the key had a value between two of these absent versions. Those of deletes in a row are
/// one state: to come behind the first one and before the end of the last one is all that it asks.
fn have_gap(candidates: &[usize]) -> bool {
    candidates.windows(2).any(|pair| pair[1] > pair[0] + 1)
}

/// A version of a key; the first one is absent and has no writer.
#[derive(Clone, Copy, Debug)]
struct Version {
    writer: Option<usize>,
    value: Option<u64>,
}

/// All keys that were written or read.
struct Keys {
    versions: BTreeMap<Key, Vec<Version>>,
    /// Of each value its key and its index among the versions.
    values: HashMap<u64, (Key, usize)>,
}

impl Keys {
    fn of(history: &[Transaction]) -> Result<Self, String> {
        let mut all: BTreeSet<Key> = BTreeSet::new();
        for transaction in history {
            all.extend(transaction.writes.iter().map(|(key, _)| *key));
            for read in &transaction.reads {
                match read {
                    Read::Key(key, _) => drop(all.insert(*key)),
                    Read::Keys(space, _, found) => all.extend(found.iter().map(|(key, _)| (*space, *key))),
                }
            }
        }
        let mut placed: Vec<(u64, usize)> = Vec::new();
        let mut behind: HashMap<u64, (usize, Key, Option<u64>)> = HashMap::new();
        for (number, transaction) in history.iter().enumerate() {
            match (transaction.place, &transaction.writes[..]) {
                (Place::None, []) if transaction.deleted.is_empty() => {}
                (Place::At(place), _) => placed.push((place, number)),
                (Place::Behind(old), [(key, value)]) if transaction.deleted.is_empty() => {
                    if let Some((other, ..)) = behind.insert(old, (number, *key, *value)) {
                        return Err(format!("lost update: {other} and {number} both replaced value {old}"));
                    }
                }
                _ => return Err(format!("{number} has no place: {transaction:?}")),
            }
        }
        placed.sort_unstable();
        if let Some(pair) = placed.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("two transactions have one place: {pair:?}"));
        }
        let first = |key: &Key| (*key, vec![Version { writer: None, value: None }]);
        let mut versions: BTreeMap<Key, Vec<Version>> = all.iter().map(first).collect();
        for (_, number) in placed {
            let transaction = &history[number];
            let mut written: BTreeMap<Key, Option<u64>> = BTreeMap::new();
            for (space, range) in &transaction.deleted {
                let covered = all.range((*space, range.start)..(*space, range.end.max(range.start)));
                written.extend(covered.map(|key| (*key, None)));
            }
            written.extend(transaction.writes.iter().copied());
            for (key, value) in written {
                let of_key = versions.entry(key).or_default();
                of_key.push(Version { writer: Some(number), value });
                let mut last = value;
                while let Some((writer, of, value)) = last.and_then(|last| behind.remove(&last)) {
                    if of != key {
                        return Err(format!("{writer} replaced a value of another key than {of:?}"));
                    }
                    of_key.push(Version { writer: Some(writer), value });
                    last = value;
                }
            }
        }
        if let Some((old, (number, ..))) = behind.iter().next() {
            return Err(format!("dirty read: {number} replaced value {old}, which was never committed"));
        }
        let mut values = HashMap::new();
        for (key, versions) in &versions {
            for (at, version) in versions.iter().enumerate() {
                if let Some(value) = version.value
                    && values.insert(value, (*key, at)).is_some()
                {
                    return Err(format!("value {value} was written twice: the history cannot be judged"));
                }
            }
        }
        Ok(Self { versions, values })
    }

    /// The keys that a transaction has read, each with its value.
    fn read_by(&self, transaction: &Transaction) -> BTreeSet<(Key, Option<u64>)> {
        let mut all = BTreeSet::new();
        for read in &transaction.reads {
            match read {
                Read::Key(key, value) => drop(all.insert((*key, *value))),
                Read::Keys(space, range, found) => {
                    let found: BTreeMap<u32, u64> = found.iter().copied().collect();
                    let covered = (*space, range.start)..(*space, range.end.max(range.start));
                    let absent = self.versions.range(covered).map(|(key, _)| *key);
                    let absent = absent.filter(|(_, key)| !found.contains_key(key));
                    all.extend(absent.map(|key| (key, None)));
                    all.extend(found.iter().map(|(key, value)| ((*space, *key), Some(*value))));
                }
            }
        }
        all
    }

    /// The versions that a read may have seen, ascending; `None` if it is the reader's own.
    fn candidates(
        &self,
        history: &[Transaction],
        reader: usize,
        key: Key,
        value: Option<u64>,
    ) -> Result<Option<Vec<usize>>, String> {
        let versions = &self.versions[&key];
        let who = &history[reader];
        if let Some(value) = value {
            return match self.values.get(&value) {
                Some((of, at)) if *of == key => Ok((versions[*at].writer != Some(reader)).then(|| vec![*at])),
                Some((of, _)) => {
                    Err(format!("transaction {reader} read a value of {of:?} at {key:?}: {who:?}"))
                }
                None => Err(format!(
                    "dirty read: nothing that was committed gave value {value} to {key:?}; transaction \
                     {reader} has read it: {who:?}"
                )),
            };
        }
        let is_possible = |at: &usize| {
            let (version, next) = (&versions[*at], versions.get(at + 1));
            let begun =
                version.writer.is_none_or(|writer| writer != reader && history[writer].begin < who.end);
            let ended = next.and_then(|next| next.writer).is_some_and(|next| history[next].end < who.begin);
            version.value.is_none() && begun && !ended
        };
        let all: Vec<usize> = (0..versions.len()).filter(is_possible).collect();
        if all.is_empty() {
            return Err(format!("transaction {reader} read {key:?} as absent when it was not: {who:?}"));
        }
        Ok(Some(all))
    }
}

/// The reason why a transaction comes before another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Wr,
    Ww,
    Rw,
    Time,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Edge {
    to: usize,
    kind: Kind,
    key: Option<Key>,
}

/// The graph. Nodes: the transactions; under snapshot isolation the transactions again, as reached
/// by `rw`; the moments at which transactions ended, in their order, which stand for real time.
struct Graph<'h> {
    history: &'h [Transaction],
    level: Level,
    edges: Vec<BTreeSet<Edge>>,
    /// The ends of transactions, ascending.
    ends: Vec<u64>,
}

impl<'h> Graph<'h> {
    fn new(history: &'h [Transaction], level: Level) -> Self {
        let mut ends: Vec<u64> = history.iter().map(|transaction| transaction.end).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut graph =
            Self { history, level, edges: vec![BTreeSet::new(); history.len() * 2 + ends.len()], ends };
        let time = |to| Edge { to, kind: Kind::Time, key: None };
        for moment in 1..graph.ends.len() {
            let next = time(graph.moment(moment));
            graph.insert(graph.moment(moment - 1), next);
        }
        for (number, transaction) in history.iter().enumerate() {
            let moment = graph.ends.partition_point(|end| *end < transaction.end);
            let node = time(graph.moment(moment));
            graph.insert(number, node);
            graph.insert(history.len() + number, node);
            if let Some(last) = graph.ends.partition_point(|end| *end < transaction.begin).checked_sub(1) {
                graph.insert(graph.moment(last), time(number));
            }
        }
        graph
    }

    fn moment(&self, number: usize) -> usize {
        self.history.len() * 2 + number
    }

    fn insert(&mut self, from: usize, edge: Edge) {
        self.edges[from].insert(edge);
    }

    fn add(&mut self, from: usize, to: usize, kind: Kind, key: Option<Key>) {
        if from == to {
            return;
        }
        let second = self.history.len();
        match (kind, self.level) {
            (Kind::Rw, Level::Snapshot) => self.insert(from, Edge { to: second + to, kind, key }),
            (_, Level::Serializable) => self.insert(from, Edge { to, kind, key }),
            (_, Level::Snapshot) => {
                self.insert(from, Edge { to, kind, key });
                self.insert(second + from, Edge { to, kind, key });
            }
        }
    }

    /// Adds the dependencies that hold whichever of these versions was read.
    fn add_read(&mut self, reader: usize, key: Key, versions: &[Version], candidates: &[usize]) {
        let (first, last) = (candidates[0], candidates[candidates.len() - 1]);
        if let Some(writer) = versions[first].writer {
            self.add(writer, reader, Kind::Wr, Some(key));
        }
        if let Some(writer) = versions.get(last + 1).and_then(|next| next.writer) {
            self.add(reader, writer, Kind::Rw, Some(key));
        }
    }

    /// Whether a reader cannot have seen a version: its writer comes after the reader, or the next
    /// version was visible to the reader.
    fn excludes(&self, reader: usize, versions: &[Version], at: usize) -> bool {
        let is_later = versions[at].writer.is_some_and(|writer| self.leads(reader, writer, true));
        let next = versions.get(at + 1).and_then(|next| next.writer);
        is_later || next.is_some_and(|next| next != reader && self.leads(next, reader, false))
    }

    /// Whether one transaction comes before another one. Under snapshot isolation no two adjacent
    /// `rw` count and the first dependency is none; with `by_rw` the last one may be one.
    fn leads(&self, from: usize, to: usize, by_rw: bool) -> bool {
        let count = self.history.len();
        let start = if self.level == Level::Snapshot { count + from } else { from };
        // Whatever begins after the end of `to` does not lead there, unless there is a cycle.
        let limit = self.history[to].end;
        let is_late = |node: usize| match node.checked_sub(count * 2) {
            Some(moment) => self.ends[moment] > limit,
            None => self.history[node % count].begin > limit,
        };
        let (mut seen, mut queue) = (BTreeSet::from([start]), vec![start]);
        while let Some(node) = queue.pop() {
            for edge in &self.edges[node] {
                if edge.to == to || (by_rw && edge.to == count + to) {
                    return true;
                }
                if !is_late(edge.to) && seen.insert(edge.to) {
                    queue.push(edge.to);
                }
            }
        }
        false
    }

    /// A short cycle, told with its transactions.
    fn cycle(&self) -> Option<String> {
        let cycle = self.on_a_cycle()?;
        let shortest = cycle.iter().filter_map(|node| self.shortest_from(*node)).min_by_key(Vec::len)?;
        let mut text = format!("a cycle that {:?} does not allow:", self.level);
        let count = self.history.len();
        let mut members = BTreeSet::new();
        for (node, edge) in &shortest {
            let mut name = |node: usize| match node < count * 2 {
                true => {
                    members.insert(node % count);
                    Some(node % count)
                }
                false => None,
            };
            let (from, to) = (name(*node), name(edge.to));
            // Moments are left out: only what ended and what began after it is told.
            match (from, to, edge.kind) {
                (Some(from), Some(to), kind) => {
                    let _ = write!(text, " {from} -{kind:?} {:?}-> {to};", edge.key.unwrap_or_default());
                }
                (Some(from), None, _) => {
                    let _ = write!(text, " {from} ended before");
                }
                (None, Some(to), _) => {
                    let _ = write!(text, " {to} began;");
                }
                (None, None, _) => {}
            }
        }
        for member in members {
            let _ = write!(text, "\n  {member}: {:?}", self.history[member]);
        }
        Some(text)
    }

    /// The nodes of some cycle.
    fn on_a_cycle(&self) -> Option<Vec<usize>> {
        let mut is_done = vec![false; self.edges.len()];
        let mut place: Vec<Option<usize>> = vec![None; self.edges.len()];
        for root in 0..self.edges.len() {
            if is_done[root] {
                continue;
            }
            let mut path = vec![(root, self.edges[root].iter())];
            place[root] = Some(0);
            while let Some((node, edges)) = path.last_mut() {
                let node = *node;
                match edges.next() {
                    None => {
                        is_done[node] = true;
                        place[node] = None;
                        path.pop();
                    }
                    Some(edge) => match place[edge.to] {
                        Some(from) => return Some(path[from..].iter().map(|(node, _)| *node).collect()),
                        None if is_done[edge.to] => {}
                        None => {
                            place[edge.to] = Some(path.len());
                            path.push((edge.to, self.edges[edge.to].iter()));
                        }
                    },
                }
            }
        }
        None
    }

    /// The shortest cycle through a node.
    fn shortest_from(&self, start: usize) -> Option<Vec<(usize, Edge)>> {
        let mut came: HashMap<usize, (usize, Edge)> = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for edge in &self.edges[node] {
                if edge.to != start && came.contains_key(&edge.to) {
                    continue;
                }
                came.insert(edge.to, (node, *edge));
                if edge.to == start {
                    let (mut at, mut cycle) = (start, Vec::new());
                    loop {
                        let (from, edge) = came[&at];
                        cycle.push((from, edge));
                        at = from;
                        if at == start {
                            cycle.reverse();
                            return Some(cycle);
                        }
                    }
                }
                queue.push_back(edge.to);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
