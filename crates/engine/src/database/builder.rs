//! The builder: sets options of a database, then opens it.
//!
//! A given option holds for the open; an option that is not given has its recorded value, or its
//! default. The builder therefore keeps a list of *changes*, which recovery applies to the settings
//! read from the manifest.
//!
//! The methods of single options are made from the table of options ([`crate::options`]). Here are
//! those of parts without a text form, and of the open itself.

mod deprecated;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shamba_env::{Env, MappedReads, SlowFs, UnbatchedReads, UnmappedLogs};

use crate::database::Db;
use crate::error::{Error, Result};
use crate::event::EventListener;
use crate::memory::Budget;
use crate::options::experimental::Experimental;
use crate::options::keyspace::KeyspaceOptions;
use crate::options::keyspace::rules::GivenOptions;
use crate::options::settings::{LiveSettings, Settings};
use crate::options::{self, SettingChange};
use crate::workers::Workers;

/// Options of a database, and the ways to open it.
///
/// Every method returns the builder; see the crate's front page for an example. Options that few
/// programs need are methods of [`Experimental`], reached by [`Self::experimental`]. The page
/// `docs/options.md` lists all options with their defaults and ranges.
///
/// An option holds for the open that it is given to. An option that is *recorded* in the database
/// also holds for every open that does not give it:
/// - Creation records the options of the tree and its format: size ratio, merge policy, runs, write
///   buffer, sizing, filter bits, their allocation and layout, compression, sizes of tables and
///   blocks, block tags. The digest and its seed are fixed at creation.
/// - [`Db::redesign`] and the tuner record the design that they move to.
/// - [`Self::record`] records all options that this open is given, including budget, durability and
///   limits.
///
/// So a service and an operator's command can open the same database with different budgets and
/// durabilities. Databases written by builds before version 0.1 may have more options recorded;
/// these hold as well.
pub struct Builder {
    pub(crate) path: PathBuf,
    pub(crate) env: Env,
    pub(crate) listener: Option<Arc<dyn EventListener>>,
    pub(crate) workers: Option<Workers>,
    pub(crate) budget: Option<Budget>,
    pub(crate) keyspaces: GivenOptions,
    /// A keyspace whose options were given twice: a mistake, which the open reports.
    given_twice: Option<String>,
    changes: Vec<SettingChange>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Builder {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            env: Env::real(),
            listener: None,
            workers: None,
            budget: None,
            keyspaces: GivenOptions::new(),
            given_twice: None,
            changes: Vec::new(),
        }
    }

    /// Adds the change that a method of the option `name` makes.
    pub(crate) fn give(mut self, name: &str, change: impl Fn(&mut Settings) + Send + 'static) -> Self {
        self.changes.push(options::given(name, Box::new(change)));
        self
    }

    /// Sets an option by its name, such as `"memory-budget"` ([`crate::options::all`] lists them);
    /// sizes are numbers of bytes.
    ///
    /// # Errors
    /// `Invalid` for an unknown name, or a value of wrong form or out of range.
    pub fn set_option(mut self, name: &str, value: &str) -> Result<Self> {
        if name == "experimental" {
            let mut experimental = Experimental::default();
            experimental.set(value).map_err(|error| Error::invalid(format!("experimental: {error}")))?;
            self.changes.append(&mut experimental.into_changes());
        } else {
            self.changes.push(options::given_text(name, value)?);
        }
        Ok(self)
    }

    /// Sets options that few programs need: baselines of the papers, limits for tests and for
    /// measurements.
    ///
    /// ```
    /// # fn main() -> shamba::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let path = dir.path().join("db");
    /// let builder = shamba::Db::builder(path);
    /// let db = builder.experimental(|e| e.file_size(8 << 20).timers(true)).open()?;
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn experimental(mut self, set: impl FnOnce(&mut Experimental) -> &mut Experimental) -> Self {
        let mut experimental = Experimental::default();
        set(&mut experimental);
        self.changes.append(&mut experimental.into_changes());
        self
    }

    /// Keeps logs that recovery no longer needs for streams of changes ([`Db::changes_since`]): at
    /// most `bytes` of them, and each for at most `age` after it became obsolete. The oldest one is
    /// deleted first. Each log counts at least 64 KiB, so there are at most `bytes` / 64 KiB of
    /// them, and less than 64 KiB keeps none. Default: none, so a stream may fall back by about one
    /// write buffer. An open without this option deletes them all, so [record](Self::record) it.
    #[must_use]
    pub fn keep_log(self, bytes: u64, age: Duration) -> Self {
        self.experimental(|options| options.keep_log((bytes, age)))
    }

    /// Files, clock, randomness and threads. Default: the real ones.
    #[must_use]
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Sets the listener, which receives every [`crate::Event`]. A panic in it is caught.
    #[must_use]
    pub fn event_listener(mut self, listener: Arc<dyn EventListener>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Thread pool for flushes, compactions, memory and tuning, which several databases can share.
    /// Default: the pool that all databases of the process share; see [`Workers`]. A database on a
    /// slow device, or with a slow listener, occupies shared threads: give it its own pool.
    #[must_use]
    pub fn workers(mut self, workers: &Workers) -> Self {
        self.workers = Some(workers.clone());
        self
    }

    /// Memory budget that several databases share ([`Budget`]); [`Self::memory_budget`] then has no
    /// effect. Default: each database has a budget of its own.
    ///
    /// ```
    /// # fn main() -> shamba::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    /// let budget = shamba::Budget::new(1 << 30);
    /// let users = shamba::Db::builder(a).budget(&budget).open()?;
    /// let events = shamba::Db::builder(b).budget(&budget).open()?;
    /// # users.close()?;
    /// # events.close()
    /// # }
    /// ```
    ///
    /// The open fails with `Invalid` if the budget is less than 4 MiB per open database.
    #[must_use]
    pub fn budget(mut self, budget: &Budget) -> Self {
        self.budget = Some(budget.clone());
        self
    }

    /// Options of the keyspace `name`, which hold from the first moment of the open on; its name
    /// may be `default`. A keyspace that does not exist yet has them once it is created.
    ///
    /// ```
    /// # fn main() -> shamba::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let path = dir.path().join("db");
    /// use shamba::{KeyspaceOptions, merge::AddU64};
    ///
    /// let counting = KeyspaceOptions::new().merge_operator(AddU64);
    /// let db = shamba::Db::builder(path).keyspace("visits", counting).open()?;
    /// let visits = db.keyspace("visits")?;
    /// visits.merge("/home", 1u64.to_le_bytes())?;
    /// visits.merge("/home", 1u64.to_le_bytes())?;
    /// assert_eq!(visits.get("/home")?.as_deref(), Some(&2u64.to_le_bytes()[..]));
    /// # db.close()
    /// # }
    /// ```
    ///
    /// The open fails with `Invalid` if the keyspace records another merge operator, or if options
    /// of one keyspace are given twice.
    #[must_use]
    pub fn keyspace(mut self, name: &str, options: KeyspaceOptions) -> Self {
        if self.keyspaces.insert(name.to_owned(), options).is_some() {
            self.given_twice = Some(name.to_owned());
        }
        self
    }

    /// Records the options given to this builder in the database, so that they hold for every later
    /// open that does not give them. Default off: they hold for this open. Never recorded: how to
    /// open (this option, [`Self::read_only`], [`Self::create_if_missing`] ...), limits of the
    /// process (threads, open files, direct I/O) and some experiments. A read-only open records
    /// nothing.
    #[must_use]
    pub fn record(self) -> Self {
        self.record_options(true)
    }

    /// Opens the database. The given options hold for this open; [`Builder`] says which are
    /// recorded.
    ///
    /// # Errors
    /// `Locked` if another handle or process has the database open; `Invalid` for a wrong option;
    /// `Corruption`, `Unsupported`, `Io` and `NoSpace` for failures of the files and the system.
    pub fn open(self) -> Result<Db> {
        match &self.given_twice {
            None => Db::open_with(self),
            Some(name) => Err(Error::invalid(format!(
                "the options of keyspace {name:?} are given twice: give all of them in one call"
            ))),
        }
    }

    /// The environment of the database, without mapped logs and batches of reads if so requested,
    /// and with its device emulated if latencies or a bandwidth were given.
    ///
    /// # Errors
    /// `Invalid` for latencies or a bandwidth out of range.
    pub(crate) fn world(&self) -> Result<Env> {
        let given = self.given();
        given.check_ranges(|name| name.starts_with("device-"))?;
        let ns = |us: f64| (us * 1e3).round() as u64;
        let (read_ns, write_ns) = (ns(given.device_read_us), ns(given.device_write_us));
        let bytes_per_second = (given.device_mib_per_s * f64::from(1 << 20)) as u64;
        let mut env = self.env.clone();
        if !given.map_log {
            env.vfs = Arc::new(UnmappedLogs::new(env.vfs));
        }
        if given.map_reads {
            env.vfs = Arc::new(MappedReads::new(env.vfs));
        }
        if !given.batch_reads {
            env.vfs = Arc::new(UnbatchedReads::new(env.vfs));
        }
        if read_ns > 0 || write_ns > 0 || bytes_per_second > 0 {
            let slow = SlowFs::new(env.vfs, Arc::clone(&env.clock), read_ns, write_ns);
            env.vfs = Arc::new(slow.reading_at(bytes_per_second));
        }
        Ok(env)
    }

    /// The settings of a database with nothing recorded: valid for options that are never recorded.
    pub(crate) fn given(&self) -> Settings {
        self.settings_over(Settings::default())
    }

    /// The recorded settings with the changes of this open applied.
    pub(crate) fn settings_over(&self, recorded: Settings) -> Settings {
        let mut settings = recorded;
        for change in &self.changes {
            change(&mut settings);
        }
        settings.live.change(LiveSettings::apply_policy);
        settings
    }
}
