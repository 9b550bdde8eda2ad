//! Mutations of the models, to check that a model detects them: one per process, selected by
//! `SHAMBA_LOOM_BREAK`.

use std::sync::OnceLock;

/// The environment variable that selects the mutation.
pub const VARIABLE: &str = "SHAMBA_LOOM_BREAK";

/// A mutation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// Every atomic access is relaxed.
    Orderings,
    /// Sequentially consistent accesses are only acquire and release.
    Consistency,
    /// Read-modify-write steps are split into two steps.
    Steps,
    /// No thread is woken.
    Wakeups,
    /// The model uses the part in a way that its documentation forbids.
    Usage,
}

impl Broken {
    /// Every mutation.
    pub const ALL: [Self; 5] = [Self::Orderings, Self::Consistency, Self::Steps, Self::Wakeups, Self::Usage];

    /// Its name in the environment.
    pub fn name(self) -> &'static str {
        match self {
            Self::Orderings => "orderings",
            Self::Consistency => "consistency",
            Self::Steps => "steps",
            Self::Wakeups => "wakeups",
            Self::Usage => "usage",
        }
    }
}

/// Whether this mutation is active in this process.
///
/// # Panics
/// If the variable names no mutation.
pub fn is_broken(what: Broken) -> bool {
    static NOW: OnceLock<Option<Broken>> = OnceLock::new();
    let read = || {
        let name = std::env::var(VARIABLE).ok()?;
        let known = Broken::ALL.into_iter().find(|broken| broken.name() == name);
        Some(known.unwrap_or_else(|| panic!("{VARIABLE}={name:?}: nothing like that can be broken")))
    };
    *NOW.get_or_init(read) == Some(what)
}
