//! What can be broken, to see that a model notices: by `SHAMBA_LOOM_BREAK`, one thing in a process.

use std::sync::OnceLock;

/// The variable of the environment that says what is broken.
pub const VARIABLE: &str = "SHAMBA_LOOM_BREAK";

/// Something broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// Every atomic access is relaxed.
    Orderings,
    /// Sequentially consistent accesses are acquire and release only.
    Consistency,
    /// Steps that read and write are two steps.
    Steps,
    /// Nobody is woken.
    Wakeups,
    /// The model uses the part as its documentation forbids.
    Usage,
}

impl Broken {
    /// Everything that can be broken.
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

/// Whether this is broken in this process.
///
/// # Panics
/// If the variable names nothing that can be broken.
pub fn is_broken(what: Broken) -> bool {
    static NOW: OnceLock<Option<Broken>> = OnceLock::new();
    let read = || {
        let name = std::env::var(VARIABLE).ok()?;
        let known = Broken::ALL.into_iter().find(|broken| broken.name() == name);
        Some(known.unwrap_or_else(|| panic!("{VARIABLE}={name:?}: nothing like that can be broken")))
    };
    *NOW.get_or_init(read) == Some(what)
}
