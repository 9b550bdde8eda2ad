//! Options that few programs need: baselines of the papers, limits for tests and measurements.
//!
//! They are reached by [`Builder::experimental`](crate::Builder::experimental) and by
//! `--experimental NAME=VALUE`. Their methods are made from the table of options
//! ([`crate::options`]); here are those that set several values at once.

use shamba_model::Design;
use shamba_table::LargeValues;

use crate::options::settings::Settings;
use crate::options::settings::live::OwnRuns;
use crate::options::{self, SettingChange};

/// Options that few programs need, for
/// [`Builder::experimental`](crate::Builder::experimental). An option that is not set keeps its
/// recorded value, or its default.
///
/// Names and meanings may change in any version. `docs/options.md` lists defaults and ranges.
#[derive(Default)]
pub struct Experimental {
    changes: Vec<SettingChange>,
}

impl std::fmt::Debug for Experimental {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Experimental").field("changes", &self.changes.len()).finish()
    }
}

impl Experimental {
    /// Adds the change that a method of the option `name` makes.
    pub(crate) fn give(&mut self, name: &str, change: impl Fn(&mut Settings) + Send + 'static) -> &mut Self {
        self.changes.push(options::given(name, Box::new(change)));
        self
    }

    pub(crate) fn into_changes(self) -> Vec<SettingChange> {
        self.changes
    }

    /// Sets an option by its name: `NAME=VALUE`.
    ///
    /// # Errors
    /// A message that lists the known names, or says what the value must be.
    pub fn set(&mut self, text: &str) -> Result<&mut Self, String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        if !options::find(name).is_some_and(|option| option.is_experimental) {
            let known = options::all().iter().filter(|option| option.is_experimental);
            let known = known.map(|option| option.name).collect::<Vec<_>>().join(", ");
            return Err(format!("there is no experimental option {name:?} (known: {known})"));
        }
        let change = options::given_text(name, value).map_err(|error| error.to_string())?;
        self.changes.push(change);
        Ok(self)
    }

    /// Size ratio, runs, write buffer and filter bits at once.
    pub fn design(&mut self, design: Design) -> &mut Self {
        self.give("design", move |settings| {
            settings.live.change(|live| {
                live.policy = design.policy();
                live.is_own = OwnRuns::default();
                live.tree.design = design;
            });
        })
    }

    /// Splits values of at least `from_bytes` into chunks of `chunk_bytes`, in tables written from
    /// now on. For tests, which can then use small values.
    #[doc(hidden)]
    pub fn large_values(&mut self, from_bytes: usize, chunk_bytes: usize) -> &mut Self {
        self.give("large-values", move |settings| {
            settings.large_values = LargeValues { from_bytes, chunk_bytes };
        })
    }
}
