//! Comparison of the engine's answers with the oracle's.
//!
//! [`Surface`] is the common interface of a database, a keyspace and a snapshot, so that the same
//! code compares each. Every function returns the difference as text.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::Duration;

use shamba::{Cursor, Db, Iter, KeyCursor, Keyspace, Slice, Snapshot};

use crate::ops::{Move, shown, shown_span};
use crate::oracle::{Moment, Oracle, Pair, SPACES, Span, State};

/// A readable set of keys.
pub trait Surface {
    /// A point read.
    fn read(&self, key: &[u8]) -> shamba::Result<Option<Slice>>;
    /// Several point reads in one call.
    fn read_many(&self, keys: &[Vec<u8>]) -> shamba::Result<Vec<Option<Slice>>>;
    /// Whether the key has a value.
    fn has(&self, key: &[u8]) -> shamba::Result<bool>;
    /// The time that the value of a key has left.
    fn left(&self, key: &[u8]) -> shamba::Result<Option<Duration>>;
    /// A scan.
    fn scan(&self, span: &Span) -> Iter;
    /// A scan of a prefix.
    fn scan_prefix(&self, prefix: &[u8]) -> Iter;
    /// A cursor, and one over keys.
    fn walk(&self) -> (Cursor, KeyCursor);
}

macro_rules! surface {
    ($($handle:ty),*) => {$(
        impl Surface for $handle {
            fn read(&self, key: &[u8]) -> shamba::Result<Option<Slice>> {
                self.get(key)
            }
            fn read_many(&self, keys: &[Vec<u8>]) -> shamba::Result<Vec<Option<Slice>>> {
                self.multi_get(keys)
            }
            fn has(&self, key: &[u8]) -> shamba::Result<bool> {
                self.contains_key(key)
            }
            fn left(&self, key: &[u8]) -> shamba::Result<Option<Duration>> {
                self.time_to_live_of(key)
            }
            fn scan(&self, span: &Span) -> Iter {
                self.range(span.clone())
            }
            fn scan_prefix(&self, prefix: &[u8]) -> Iter {
                self.prefix(prefix)
            }
            fn walk(&self) -> (Cursor, KeyCursor) {
                (self.cursor(), self.key_cursor())
            }
        }
    )*};
}

surface!(Db, Keyspace, Snapshot);

/// The message of a failed call.
pub fn failed(what: impl Display) -> impl Fn(shamba::Error) -> String {
    move |error| format!("{what} failed: {error:?}")
}

fn value_shown(value: Option<&[u8]>) -> String {
    value.map_or("nothing".to_owned(), shown)
}

/// Compares a value. `what` is only written if it differs: give `format_args!`.
///
/// # Errors
/// The difference.
pub fn same_value(
    what: impl Display,
    key: &[u8],
    got: Option<&[u8]>,
    want: Option<&[u8]>,
) -> Result<(), String> {
    if got == want {
        return Ok(());
    }
    Err(format!("{what}({}) gave {}, the oracle has {}", shown(key), value_shown(got), value_shown(want)))
}

/// Compares a key's value by `get` and `contains_key`.
///
/// # Errors
/// The difference.
pub fn point(surface: &dyn Surface, key: &[u8], want: Option<&[u8]>) -> Result<(), String> {
    let got = surface.read(key).map_err(failed("get"))?;
    same_value("get", key, got.as_deref(), want)?;
    let has = surface.has(key).map_err(failed("contains_key"))?;
    if has != want.is_some() {
        return Err(format!("contains_key({}) gave {has}", shown(key)));
    }
    Ok(())
}

/// Compares the time that a key's value has left.
///
/// # Errors
/// The difference.
pub fn time_left(surface: &dyn Surface, key: &[u8], want: Option<Duration>) -> Result<(), String> {
    let got = surface.left(key).map_err(failed("time_to_live_of"))?;
    match got == want {
        true => Ok(()),
        false => Err(format!("time_to_live_of({}) gave {got:?}, the oracle has {want:?}", shown(key))),
    }
}

/// Compares one scanned pair. `what` is only written if it differs: give `format_args!`.
///
/// # Errors
/// The difference.
pub fn same_pair(
    what: impl Display,
    got: Option<shamba::Result<(Slice, Slice)>>,
    want: Option<&Pair>,
) -> Result<(), String> {
    let got = got.transpose().map_err(failed(&what))?;
    let same = match (&got, want) {
        (None, None) => true,
        (Some(got), Some(want)) => got.0[..] == want.0[..] && got.1[..] == want.1[..],
        _ => false,
    };
    if same {
        return Ok(());
    }
    let got = got.map(|(key, value)| (key.to_vec(), value.to_vec()));
    let pair = |pair: Option<&Pair>| match pair {
        Some((key, value)) => format!("{} = {}", shown(key), shown(value)),
        None => "the end".to_owned(),
    };
    Err(format!("{what} gave {}, the oracle has {}", pair(got.as_ref()), pair(want)))
}

/// Compares a whole scan, forward or backward.
///
/// # Errors
/// The difference.
pub fn scan(surface: &dyn Surface, span: &Span, reverse: bool, want: &[Pair]) -> Result<(), String> {
    let what = format!("scan of {} reverse={reverse}", shown_span(span));
    ends(surface.scan(span), &what, |_| reverse, want)
}

/// Compares a scan whose step `i` comes from the back if `back(i)`.
///
/// # Errors
/// The difference.
pub fn ends(mut iter: Iter, what: &str, back: impl Fn(usize) -> bool, want: &[Pair]) -> Result<(), String> {
    let mut want = want.iter();
    let mut step = 0;
    loop {
        let (got, expected) = match back(step) {
            true => (iter.next_back(), want.next_back()),
            false => (iter.next(), want.next()),
        };
        same_pair(format_args!("{what} step {step}"), got, expected)?;
        if expected.is_none() {
            break;
        }
        step += 1;
    }
    // The iterator stays at its end.
    same_pair(format_args!("{what} past its end"), iter.next(), None)?;
    same_pair(format_args!("{what} past its end, backward"), iter.next_back(), None)
}

/// Moves a cursor, one over keys and a position in the oracle's list in parallel. The cursor over
/// keys reads every second value.
///
/// # Errors
/// The difference.
pub fn walk(
    (mut cursor, mut keys): (Cursor, KeyCursor),
    moves: &[Move],
    pairs: &[(&[u8], &[u8])],
) -> Result<(), String> {
    macro_rules! go {
        ($cursor:expr, $movement:expr) => {
            match $movement {
                Move::Seek(key) => $cursor.seek(key),
                Move::SeekForPrev(key) => $cursor.seek_for_prev(key),
                Move::First => $cursor.seek_to_first(),
                Move::Last => $cursor.seek_to_last(),
                Move::Next => $cursor.next(),
                Move::Prev => $cursor.prev(),
            }
        };
    }
    /// Before the first pair, at a pair, or after the last.
    #[derive(Clone, Copy)]
    enum Place {
        Unset,
        Before,
        At(usize),
        Behind,
    }
    let first = if pairs.is_empty() { Place::Behind } else { Place::At(0) };
    let last = pairs.len().checked_sub(1).map_or(Place::Before, Place::At);
    let mut place = Place::Unset;
    for (step, movement) in moves.iter().enumerate() {
        let what = fmt::from_fn(|f| write!(f, "cursor step {step} {movement:?}"));
        let found = go!(cursor, movement).map_err(failed(&what))?;
        if found != go!(keys, movement).map_err(failed(&what))? {
            return Err(format!("{what}: found {found}, and the cursor over keys otherwise"));
        }
        place = match (movement, place) {
            (Move::Seek(key), _) => match pairs.partition_point(|pair| *pair.0 < **key) {
                i if i < pairs.len() => Place::At(i),
                _ => Place::Behind,
            },
            (Move::SeekForPrev(key), _) => {
                pairs.partition_point(|pair| *pair.0 <= **key).checked_sub(1).map_or(Place::Before, Place::At)
            }
            (Move::First, _) | (Move::Next, Place::Unset | Place::Before) => first,
            (Move::Last, _) | (Move::Prev, Place::Unset | Place::Behind) => last,
            (Move::Next, Place::At(i)) if i + 1 < pairs.len() => Place::At(i + 1),
            (Move::Next, Place::At(_) | Place::Behind) => Place::Behind,
            (Move::Prev, Place::At(i)) if i > 0 => Place::At(i - 1),
            (Move::Prev, Place::At(_) | Place::Before) => Place::Before,
        };
        let want = match place {
            Place::At(i) => Some(&pairs[i]),
            _ => None,
        };
        if cursor.valid() != want.is_some() {
            return Err(format!("{what}: valid() is {}", cursor.valid()));
        }
        if keys.key() != cursor.key() || keys.valid() != cursor.valid() {
            return Err(format!("{what}: the cursor over keys is at {:?}", keys.key().map(shown)));
        }
        if step % 2 == 0 {
            let value = keys.value().map_err(failed(&what))?;
            same_value(format_args!("{what}: value by key"), b"", value.as_deref(), want.map(|pair| pair.1))?;
        }
        if let Some((key, value)) = want {
            same_value(format_args!("{what}: key"), key, cursor.key(), Some(key))?;
            same_value(format_args!("{what}: value"), key, cursor.value(), Some(value))?;
        }
    }
    Ok(())
}

/// The handles of a database's keyspaces, in the order of [`SPACES`].
pub struct Spaces {
    /// The database.
    pub db: Db,
    /// The other keyspaces; `None` for one that does not exist.
    pub others: Vec<Option<Keyspace>>,
}

impl Spaces {
    /// Opens the keyspaces of the suites, creating missing ones.
    ///
    /// # Errors
    /// The error of the call that failed.
    pub fn create(db: Db) -> shamba::Result<Self> {
        let others = SPACES[1..].iter().map(|name| db.keyspace(name).map(Some)).collect::<Result<_, _>>()?;
        Ok(Self { db, others })
    }

    /// Opens the keyspaces that exist.
    ///
    /// # Errors
    /// The error of the call that failed.
    pub fn existing(db: Db) -> shamba::Result<Self> {
        let names = db.keyspaces();
        let open = |name: &&str| match names.iter().any(|known| known == name) {
            true => db.keyspace(name).map(Some),
            false => Ok(None),
        };
        let others = SPACES[1..].iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { db, others })
    }

    /// The keyspace of an index into [`SPACES`].
    pub fn at(&self, space: usize) -> Option<&dyn Surface> {
        match space {
            0 => Some(&self.db),
            _ => self.others.get(space - 1)?.as_ref().map(|keyspace| keyspace as &dyn Surface),
        }
    }

    /// The whole state, by one forward scan of each keyspace.
    ///
    /// # Errors
    /// The first error of a scan.
    pub fn dump(&self) -> shamba::Result<State> {
        let mut state = State::new();
        for (space, name) in SPACES.iter().enumerate() {
            let Some(surface) = self.at(space) else { continue };
            let mut pairs = BTreeMap::new();
            for pair in surface.scan(&everything()) {
                let (key, value) = pair?;
                pairs.insert(key.to_vec(), value.to_vec());
            }
            if !pairs.is_empty() {
                state.insert((*name).to_owned(), pairs);
            }
        }
        Ok(state)
    }
}

/// A pair of a scan, as the oracle has it.
///
/// # Errors
/// That of the scan.
pub fn owned(pair: shamba::Result<(Slice, Slice)>) -> shamba::Result<Pair> {
    pair.map(|(key, value)| (key.into_vec(), value.into_vec()))
}

/// The span of all keys.
pub fn everything() -> Span {
    (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)
}

/// Compares everything that can be read with the oracle at a moment: scans in both
/// directions, and every key that was ever written together with its neighbours.
///
/// # Errors
/// The difference.
pub fn everything_at(spaces: &Spaces, oracle: &Oracle, at: impl Into<Moment>) -> Result<(), String> {
    let at = at.into();
    for (space, name) in SPACES.iter().enumerate() {
        let span = everything();
        let want = oracle.pairs(space, &span, at);
        let Some(surface) = spaces.at(space) else {
            if want.is_empty() {
                continue;
            }
            return Err(format!("keyspace {name} is missing, the oracle has {} pairs in it", want.len()));
        };
        let in_space = |error: String| format!("keyspace {name}: {error}");
        scan(surface, &span, false, &want).map_err(in_space)?;
        scan(surface, &span, true, &want).map_err(in_space)?;
        for key in oracle.keys(space) {
            point(surface, key, oracle.get(space, key, at)).map_err(in_space)?;
            let mut after = key.to_vec();
            after.push(0);
            point(surface, &after, oracle.get(space, &after, at)).map_err(in_space)?;
        }
    }
    Ok(())
}

/// Compares a state that was read with the expected one.
pub fn same_state(got: &State, want: &State) -> Result<(), String> {
    for name in SPACES {
        let none = BTreeMap::new();
        let (got, want) = (got.get(name).unwrap_or(&none), want.get(name).unwrap_or(&none));
        for key in got.keys().chain(want.keys()) {
            let (got, want) = (got.get(key), want.get(key));
            same_value(
                format_args!("keyspace {name}: scan"),
                key,
                got.map(Vec::as_slice),
                want.map(Vec::as_slice),
            )?;
        }
    }
    Ok(())
}
