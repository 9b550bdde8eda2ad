//! Opening a database for a command: for writing, with the given options, or for reading.
//!
//! Warnings of the engine, during recovery or later, go to standard error, each distinct warning
//! once.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use shamba::{Builder, Db, ErrorKind, Event, EventListener, Recording};

use crate::exit::Failure;
use crate::keyspace::CreatedKeyspace;
use crate::options::{EngineOptions, ReaderOptions};
use crate::output::{note, warn};
use crate::sizes::counted;

/// Hint for a read command that meets a writer.
const HINT_WRITER_ACTIVE: &str = "another process has the database open for writing; stop that process, or run this \
    command on a checkpoint that it makes (`Db::checkpoint`)";
/// Hint for a write command that meets another user of the database.
const HINT_EXCLUSIVE: &str = "commands that write need exclusive access; try again when the other process, reader or \
    writer, has closed it";

/// Prefixes and suffixes of file names that only a database has.
const OWN_FILES: [&str; 5] = ["CURRENT", "MANIFEST-", "REPAIRING", ".sst", ".log"];

/// Opens a database for writing, and creates it if it does not exist.
///
/// # Errors
/// Errors of the engine's open.
pub fn create(path: &Path, options: &EngineOptions) -> Result<Db, Failure> {
    must_be_directory(path)?;
    open(options.apply(Db::builder(path))?).map_err(|failure| advised(failure, HINT_EXCLUSIVE))
}

/// [`create`], with the options that the command was given for its keyspace.
///
/// # Errors
/// As [`create`]; `Invalid` if they do not go with those that the keyspace records.
pub fn create_for(path: &Path, options: &EngineOptions, keyspace: &CreatedKeyspace) -> Result<Db, Failure> {
    must_be_directory(path)?;
    let mut builder = options.apply(Db::builder(path))?;
    if let Some(given) = keyspace.options() {
        builder = builder.keyspace(keyspace.name(), given);
    }
    open(builder).map_err(|failure| advised(failure, HINT_EXCLUSIVE))
}

/// Opens an existing database for writing.
///
/// # Errors
/// [`Failure::Missing`], or errors of the engine's open.
pub fn existing(path: &Path, options: &EngineOptions) -> Result<Db, Failure> {
    must_exist(path)?;
    open(options.apply(Db::builder(path))?.create_if_missing(false))
        .map_err(|failure| advised(failure, HINT_EXCLUSIVE))
}

/// Opens a database for reading, under a shared lock, without writing a byte.
///
/// # Errors
/// [`Failure::Missing`], or errors of the engine's open.
pub fn reader(path: &Path, options: &ReaderOptions) -> Result<Db, Failure> {
    must_exist(path)?;
    open(options.apply(Db::builder(path))?.read_only(true))
        .map_err(|failure| advised(failure, HINT_WRITER_ACTIVE))
}

/// Does `work` with a database and closes it, also after a failure: an open that finds no end of
/// the log recovers as after a crash.
///
/// # Errors
/// That of `work`, or else of the close. Of two, the second is only told.
pub fn closing<T>(db: Db, work: impl FnOnce(&Db) -> Result<T, Failure>) -> Result<T, Failure> {
    let done = work(&db);
    match (done, db.close().map_err(Failure::from)) {
        (done, Ok(())) => done,
        (Ok(_), Err(failure)) => Err(failure),
        (Err(first), Err(second)) => {
            note(format!("shamba: {second}"));
            Err(first)
        }
    }
}

fn open(builder: Builder) -> Result<Db, Failure> {
    let warnings = Arc::new(Warnings::default());
    let db = builder.event_listener(warnings.clone()).open().map_err(as_typed)?;
    db.warnings().iter().for_each(|text| warnings.say(text));
    Ok(db)
}

/// Finishes a recording and reports the number of recorded operations.
///
/// # Errors
/// The reason why the file is incomplete.
pub fn finish(recording: Recording, path: &Path) -> Result<(), Failure> {
    let operations = recording.finish()?.operations;
    note(format!(
        "shamba: {} recorded in {}",
        counted(operations, "operation", "operations"),
        path.display()
    ));
    Ok(())
}

/// Writes the option name at the start of an error message as it is typed on the command line.
fn as_typed(error: shamba::Error) -> Failure {
    if error.kind() == ErrorKind::Invalid
        && let Some((name, rest)) = error.context().split_once(' ')
    {
        let name = name.replace('_', "-");
        if EngineOptions::has(&name) {
            return Failure::Usage(format!("--{name} {rest}"));
        }
    }
    error.into()
}

/// Adds `advice` to a failure because the database is locked.
pub fn advised(failure: Failure, advice: &str) -> Failure {
    match failure {
        Failure::Engine(error) if error.kind() == ErrorKind::Locked => Failure::Advised(error, advice.into()),
        failure => failure,
    }
}

/// Whether `path` exists and is not an empty directory: it may hold a database.
///
/// # Errors
/// I/O errors of `path`.
pub fn has_any(path: &Path) -> Result<bool, Failure> {
    let failed = |error| Failure::io(path.display().to_string(), error);
    if !path.try_exists().map_err(failed)? {
        return Ok(false);
    }
    // The engine rejects other files, and directories of other programs.
    Ok(!path.is_dir() || std::fs::read_dir(path).map_err(failed)?.next().is_some())
}

/// Checks that `path` is a directory with at least one file of a database. The engine reports any
/// other problem.
pub fn must_exist(path: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::io(path.display().to_string(), error);
    if !path.try_exists().map_err(failed)? {
        return Err(Failure::missing(path, "there is no such directory"));
    }
    must_be_directory(path)?;
    let mut other = None;
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        if OWN_FILES.iter().any(|own| name.starts_with(own) || name.ends_with(own)) {
            return Ok(());
        }
        other.get_or_insert_with(|| name.into_owned());
    }
    Err(Failure::missing(
        path,
        &other.map_or("the directory is empty".into(), |name| {
            format!("the directory contains {name:?}, but no database file")
        }),
    ))
}

/// Fails if `path` is a file.
fn must_be_directory(path: &Path) -> Result<(), Failure> {
    if path.is_file() {
        let inside = path.parent().filter(|parent| parent.join("CURRENT").is_file());
        let advice = inside.map_or("DB must be a directory".into(), |parent| {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            format!("the database is the directory {}", parent.display())
        });
        return Err(Failure::Io(
            format!("{} is a file, but {advice}", path.display()),
            std::io::ErrorKind::NotADirectory.into(),
        ));
    }
    Ok(())
}

/// Prints the engine's warnings.
#[derive(Default)]
struct Warnings {
    said: Mutex<HashSet<String>>,
}

impl Warnings {
    fn say(&self, text: &str) {
        if self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_string()) {
            warn(text);
        }
    }
}

impl EventListener for Warnings {
    fn event(&self, event: &Event) {
        match event {
            Event::Warning(text) | Event::BackgroundError(text) => self.say(text),
            _ => {}
        }
    }
}
