//! `shamba batch DB`: runs operations from standard input, one per line, with one flushed reply
//! each.
//!
//! ```text
//! put K V       del K       delrange A B       (A up to B, without B)
//! merge K V                 V is an operand of the keyspace's merge operator
//! get K                     reads committed data: `value V` or `none`
//! in NAME ... one of these in the keyspace NAME, which a write creates if it is missing
//! begin  commit             the operations between become one atomic batch, of any keyspaces
//! flush  compact  sync
//! ```
//!
//! A line is split at single spaces; the value of `put` is the rest of the line and may be empty,
//! and so may the operand of `merge`.
//! Replies come one per line and in order, so that a client can count acknowledged operations: `ok`
//! after the operation, `queued` between `begin` and `commit`, `err KIND message`. `in` holds for
//! its own line only, so that a failed line does not redirect the next one. A line with the reply
//! `err` has no effect, and the next lines are processed; the exit code is then that of the first
//! such line.
//!
//! A missing keyspace is created when a valid write to it is applied; between `begin` and `commit`,
//! that is at the commit. If the commit then fails, for example for lack of space, the new empty
//! keyspaces may remain. A missing keyspace has no merge operator, so a `merge` creates none; with
//! options such as `--merge-operator` the keyspace of `--keyspace` is created at the start.
//!
//! The end of input closes the database cleanly. A `begin` without `commit` is then an error of its
//! line: truncated input must not pass for stored input. Empty input creates no database.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use shamba::{Batch, Db, ErrorKind, Keyspace, WriteOptions};

use crate::duration::parse_duration;
use crate::exit::{BAD_INPUT, Failure, USAGE, code_of};
use crate::keyspace::{CreatedKeyspace, DEFAULT, name_of};
use crate::load::Lines;
use crate::open;
use crate::options::EngineOptions;
use crate::output::{Out, note};
use crate::sizes::counted;
use crate::text::Notation;

const LINES: &str = "\
    Lines: put KEY VALUE, putttl TIME KEY VALUE (TIME such as 30s or 7d, or ever), del KEY, delrange FROM TO (TO excluded), merge KEY OPERAND, get KEY; `in KEYSPACE` before one of these selects \
    its keyspace (default: --keyspace); begin and commit enclose one atomic batch; flush, compact, sync. A line is \
    split at single spaces; the value or operand is the rest of the line; a line ends with \\n or \\r\\n, and the last line may lack it. Each line gets one reply: ok (done, with the durability \
    of --sync), queued (after begin), value VALUE or none (of get, which reads committed data), or err KIND MESSAGE. \
    The exit code is that of the first error. A begin without commit at the end of input is an error (65), and its \
    batch is not stored.";

const NO_OPERATOR: &str =
    "has no merge operator; --merge-operator NAME gives one to the keyspace of --keyspace";

const PUTTTL_USAGE: &str = "putttl needs a time, a key and a value: putttl 30s K V";

const IN_USAGE: &str = "in needs a keyspace and an operation: in NAME put K V";

/// Arguments of `batch`.
#[derive(Args)]
#[command(after_help = LINES)]
pub struct BatchArgs {
    /// The database; created if missing
    db: PathBuf,
    #[command(flatten)]
    keyspace: CreatedKeyspace,
    /// Keys and values are hex
    #[arg(long)]
    hex: bool,
    /// Record the operations as a trace in a new file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineOptions,
}

pub fn run(args: &BatchArgs, out: &mut Out) -> Result<(), Failure> {
    let mut input = io::stdin().lock();
    // Empty input creates no database; an existing one is opened (and locked) at once.
    if !open::has_any(&args.db)? && input.fill_buf().map_err(input_failed)?.is_empty() {
        return Ok(());
    }
    args.keyspace.check()?;
    let db = open::create_for(&args.db, &args.engine, &args.keyspace)?;
    let mut first_error = None;
    let mut recorded = Ok(());
    // The database is closed cleanly even if the reader of the replies has gone.
    let result = open::closing(db, |db| {
        let recording = args.record.as_ref().map(|path| db.record_trace(path)).transpose()?;
        if args.keyspace.options().is_some() {
            args.keyspace.of(db)?;
        }
        let mut session = Session::new(db, Notation::from_switch(args.hex)).in_keyspace(args.keyspace.name());
        let result = session.run(&mut input, out);
        first_error = session.first_error;
        if let (Some(recording), Some(path)) = (recording, &args.record) {
            recorded = open::finish(recording, path);
        }
        result
    });
    let outcomes = [first_error.map_or(Ok(()), |code| Err(Failure::Reported(code))), result, recorded];
    // The exit code is that of the first error; the others are only told.
    let mut failures = outcomes.into_iter().filter_map(Result::err);
    let first = failures.next();
    failures.for_each(|failure| note(format!("shamba: {failure}")));
    first.map_or(Ok(()), Err)
}

fn input_failed(error: io::Error) -> Failure {
    Failure::io("standard input", error)
}

/// A write requested by a line.
enum Write {
    Put { key: Vec<u8>, value: Vec<u8> },
    PutExpiring { key: Vec<u8>, value: Vec<u8>, time_to_live: Duration },
    Merge { key: Vec<u8>, operand: Vec<u8> },
    Delete { key: Vec<u8> },
    DeleteRange { from: Vec<u8>, to: Vec<u8> },
}

impl Write {
    fn queue(&self, batch: &mut Batch, space: &Keyspace) {
        match self {
            Self::Put { key, value } => batch.put_in(space, key, value),
            Self::PutExpiring { key, value, time_to_live } => {
                batch.put_expiring_in(space, key, value, *time_to_live)
            }
            Self::Merge { key, operand } => batch.merge_in(space, key, operand),
            Self::Delete { key } => batch.delete_in(space, key),
            Self::DeleteRange { from, to } => batch.delete_range_in(space, from..to),
        };
    }

    fn apply(&self, space: &Keyspace) -> shamba::Result<()> {
        match self {
            Self::Put { key, value } => space.put(key, value),
            Self::PutExpiring { key, value, time_to_live } => {
                space.put_with(key, value, WriteOptions::new().time_to_live(*time_to_live))
            }
            Self::Merge { key, operand } => space.merge(key, operand),
            Self::Delete { key } => space.delete(key),
            Self::DeleteRange { from, to } => space.delete_range(from..to),
        }
    }
}

/// Operations between `begin` and `commit`.
struct Queue {
    batch: Batch,
    /// Writes to keyspaces that do not exist yet. They may be applied last: no other operation
    /// concerns these keyspaces.
    unmade: Vec<(String, Write)>,
    /// Line number of the `begin`.
    begun_at: u64,
}

/// State of a session: input lines and the open batch.
pub(crate) struct Session<'a> {
    db: &'a Db,
    notation: Notation,
    /// Keyspace of lines that name none.
    own: String,
    /// Lines read so far.
    lines: u64,
    /// The open batch, since `begin`.
    queue: Option<Queue>,
    /// Keyspaces opened so far, by name.
    keyspaces: BTreeMap<String, Keyspace>,
    first_error: Option<u8>,
}

/// Reason why a line failed.
enum Refusal {
    /// The line is malformed.
    Line(String),
    /// It merges into a keyspace without a merge operator.
    NoOperator(String),
    /// The engine returned an error.
    Engine(shamba::Error),
}

impl From<shamba::Error> for Refusal {
    fn from(error: shamba::Error) -> Self {
        Self::Engine(error)
    }
}

impl<'a> Session<'a> {
    pub(crate) fn new(db: &'a Db, notation: Notation) -> Self {
        let own = DEFAULT.to_owned();
        Self { db, notation, own, lines: 0, queue: None, keyspaces: BTreeMap::new(), first_error: None }
    }

    /// Sets the keyspace of lines that name none.
    fn in_keyspace(self, name: &str) -> Self {
        Self { own: name.to_owned(), ..self }
    }

    /// Reads all lines and replies to each.
    ///
    /// # Errors
    /// Failures of input or output. An `err` reply is recorded in `first_error`.
    pub(crate) fn run(&mut self, input: &mut impl BufRead, out: &mut Out) -> Result<(), Failure> {
        let mut lines = Lines::new(input);
        loop {
            let Some((number, line)) = lines.next().map_err(input_failed)? else {
                self.end();
                return Ok(());
            };
            self.lines = number;
            let reply = match line.map_err(Refusal::Line).and_then(|line| self.line(line)) {
                Ok(reply) => reply.into_owned(),
                Err(refusal) => {
                    let (kind, message, code) = match refusal {
                        Refusal::Line(reason) => (ErrorKind::Invalid, reason, BAD_INPUT),
                        Refusal::NoOperator(name) => {
                            (ErrorKind::Invalid, format!("keyspace {name:?} {NO_OPERATOR}"), USAGE)
                        }
                        Refusal::Engine(error) => {
                            let code = match error.kind() {
                                ErrorKind::Invalid => BAD_INPUT,
                                _ => code_of(&error),
                            };
                            (error.kind(), error.chain().to_string(), code)
                        }
                    };
                    self.first_error.get_or_insert(code);
                    // One reply per line: line ends in a message become spaces.
                    format!("err {} {}", kind.name(), message.replace(['\n', '\r'], " "))
                }
            };
            out.line(reply).and_then(|()| out.flush()).map_err(|failure| self.unanswered(failure))?;
        }
    }

    /// The failure of a reply. A client counts replies, so a closed pipe is an error here.
    fn unanswered(&self, failure: Failure) -> Failure {
        let Failure::PipeClosed = failure else { return failure };
        let what = format!("the reply to line {}; the lines after it were not read", self.lines);
        Failure::Io(what, io::ErrorKind::BrokenPipe.into())
    }

    /// Reports a batch that is still open at the end of input. It is not committed, and no line is
    /// left to reply to.
    fn end(&mut self) {
        if let Some(Queue { batch, unmade, begun_at: line }) = self.queue.take() {
            let queued = counted((batch.len() + unmade.len()) as u64, "operation", "operations");
            note(format!("shamba: line {line}: begin without commit: {queued} not stored"));
            self.first_error.get_or_insert(BAD_INPUT);
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<Cow<'static, str>, Refusal> {
        let (verb, rest) = split(line);
        let done = match (verb, rest) {
            (b"in", Some(rest)) => {
                let (name, operation) = split(rest);
                let operation = operation.ok_or_else(|| Refusal::Line(IN_USAGE.into()))?;
                return self.operation(Some(name), operation);
            }
            (b"in", None) => return Err(Refusal::Line(IN_USAGE.into())),
            (b"begin" | b"commit" | b"flush" | b"compact" | b"sync", Some(_)) => {
                return Err(Refusal::Line(format!("{} takes no arguments", show(verb))));
            }
            (b"begin", None) if self.queue.is_some() => {
                return Err(Refusal::Line("begin inside begin".into()));
            }
            (b"begin", None) => {
                let (batch, unmade, begun_at) = (self.db.batch(), Vec::new(), self.lines);
                self.queue = Some(Queue { batch, unmade, begun_at });
                Ok(())
            }
            (b"commit", None) => match self.queue.take() {
                Some(queue) => self.commit(queue),
                None => return Err(Refusal::Line("commit without begin".into())),
            },
            (b"flush" | b"compact" | b"sync", None) if self.queue.is_some() => {
                return Err(Refusal::Line(format!("{} between begin and commit", show(verb))));
            }
            (b"flush", None) => self.db.flush(),
            (b"compact", None) => self.db.compact(),
            (b"sync", None) => self.db.sync(),
            (b"", None) => return Err(Refusal::Line("empty line".into())),
            _ => return self.operation(None, line),
        };
        Ok(done.map(|()| "ok".into())?)
    }

    /// Runs a line about a key, in the keyspace that it names, if any.
    fn operation(&mut self, keyspace: Option<&[u8]>, line: &[u8]) -> Result<Cow<'static, str>, Refusal> {
        let (verb, rest) = split(line);
        match (verb, rest) {
            (b"put", Some(rest)) => {
                let (key, value) = split(rest);
                let key = self.bytes("key", key)?;
                let value = self.bytes("value", value.unwrap_or_default())?;
                self.write(keyspace, Write::Put { key, value })
            }
            (b"putttl", Some(rest)) => {
                let (time, rest) = split(rest);
                let Some(rest) = rest else { return Err(Refusal::Line(PUTTTL_USAGE.into())) };
                let time_to_live = parse_duration(&show(time)).map_err(Refusal::Line)?;
                let (key, value) = split(rest);
                let key = self.bytes("key", key)?;
                let value = self.bytes("value", value.unwrap_or_default())?;
                self.write(keyspace, Write::PutExpiring { key, value, time_to_live })
            }
            (b"merge", Some(rest)) => {
                let (key, operand) = split(rest);
                let key = self.bytes("key", key)?;
                let operand = self.bytes("operand", operand.unwrap_or_default())?;
                self.write(keyspace, Write::Merge { key, operand })
            }
            (b"del", Some(key)) => {
                let key = self.bytes("key", single("del K", key)?)?;
                self.write(keyspace, Write::Delete { key })
            }
            (b"delrange", Some(rest)) => {
                let (from, to) = split(rest);
                let to = to.ok_or_else(|| Refusal::Line("delrange needs two keys: delrange A B".into()))?;
                let from = self.bytes("first key", from)?;
                let to = self.bytes("second key", single("delrange A B", to)?)?;
                self.write(keyspace, Write::DeleteRange { from, to })
            }
            (b"get", Some(key)) => {
                let key = self.bytes("key", single("get K", key)?)?;
                // A read does not create a keyspace.
                let name = &self.name(keyspace)?;
                if !self.is_there(name) {
                    return Ok("none".into());
                }
                let found = self.keyspace(name)?.get(&key)?;
                Ok(found.map_or("none".into(), |value| {
                    Cow::Owned(format!("value {}", self.notation.show(&value)))
                }))
            }
            (b"put", None) => Err(Refusal::Line("put needs a key and a value: put K V".into())),
            (b"putttl", None) => Err(Refusal::Line(PUTTTL_USAGE.into())),
            (b"merge", None) => Err(Refusal::Line("merge needs a key and an operand: merge K V".into())),
            (b"del", None) => Err(Refusal::Line("del needs a key: del K".into())),
            (b"get", None) => Err(Refusal::Line("get needs a key: get K".into())),
            (b"delrange", None) => Err(Refusal::Line("delrange needs two keys: delrange A B".into())),
            _ => Err(Refusal::Line(format!("unknown operation {:?}", show(verb)))),
        }
    }

    /// Queues the write in the open batch, or applies it.
    fn write(&mut self, keyspace: Option<&[u8]>, write: Write) -> Result<Cow<'static, str>, Refusal> {
        let name = &self.name(keyspace)?;
        let is_there = self.is_there(name);
        let is_merge = matches!(write, Write::Merge { .. });
        if is_merge && (!is_there || self.keyspace(name)?.merge_operator().is_none()) {
            return Err(Refusal::NoOperator(name.clone()));
        }
        if !is_there {
            // The write is checked in a trial batch before a keyspace is created for it, or for
            // another write of the same batch.
            Keyspace::check_name(name)?;
            let own = self.keyspace(DEFAULT)?;
            let mut trial = self.db.batch();
            write.queue(&mut trial, &own);
            match (&mut self.queue, trial.error()) {
                // As for every invalid write in a batch, the commit reports it.
                (Some(queue), Some(_)) => write.queue(&mut queue.batch, &own),
                (Some(queue), None) => queue.unmade.push((name.clone(), write)),
                (None, Some(error)) => return Err(error.clone().into()),
                (None, None) => {
                    write.apply(&self.keyspace(name)?)?;
                    return Ok("ok".into());
                }
            }
            return Ok("queued".into());
        }
        let space = self.keyspace(name)?;
        match &mut self.queue {
            Some(queue) => {
                write.queue(&mut queue.batch, &space);
                Ok("queued".into())
            }
            None => Ok(write.apply(&space).map(|()| "ok".into())?),
        }
    }

    fn commit(&mut self, queue: Queue) -> shamba::Result<()> {
        let Queue { mut batch, unmade, .. } = queue;
        if batch.error().is_none() {
            for (name, write) in unmade {
                write.queue(&mut batch, &self.keyspace(&name)?);
            }
        }
        batch.commit()
    }

    /// Whether a keyspace of this name exists.
    fn is_there(&self, name: &str) -> bool {
        self.keyspaces.contains_key(name) || self.db.keyspaces().iter().any(|known| known == name)
    }

    /// The keyspace name given by a line; without one, that of `--keyspace`.
    fn name(&self, given: Option<&[u8]>) -> Result<String, Refusal> {
        let Some(given) = given else { return Ok(self.own.clone()) };
        name_of(given).map_err(|reason| Refusal::Line(format!("keyspace: {reason}")))
    }

    /// The keyspace of this name, created if it is missing.
    fn keyspace(&mut self, name: &str) -> shamba::Result<Keyspace> {
        if let Some(known) = self.keyspaces.get(name) {
            return Ok(known.clone());
        }
        let keyspace = self.db.keyspace(name)?;
        self.keyspaces.insert(name.to_owned(), keyspace.clone());
        Ok(keyspace)
    }

    fn bytes(&self, what: &str, text: &[u8]) -> Result<Vec<u8>, Refusal> {
        match self.notation.parse(text) {
            Ok(bytes) => Ok(bytes.into_owned()),
            Err(reason) => Err(Refusal::Line(format!("{what}: {reason}"))),
        }
    }
}

/// The part before the first space, and the part after it if there is one.
fn split(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&byte| byte == b' ') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Checks a last argument, which may not contain a space (`\x20` stands for one).
fn single<'a>(usage: &str, text: &'a [u8]) -> Result<&'a [u8], Refusal> {
    if text.contains(&b' ') { Err(Refusal::Line(format!("too many parts: {usage}"))) } else { Ok(text) }
}

fn show(text: &[u8]) -> String {
    let shown = Notation::Text.show(&text[..text.len().min(40)]).into_owned();
    if text.len() > 40 { shown + "..." } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_split_at_single_spaces() {
        assert_eq!(split(b"put k v w"), (&b"put"[..], Some(&b"k v w"[..])));
        assert_eq!(split(b"put "), (&b"put"[..], Some(&b""[..])));
        assert_eq!(split(b" v"), (&b""[..], Some(&b"v"[..])));
        assert_eq!(split(b""), (&b""[..], None));
    }
}
