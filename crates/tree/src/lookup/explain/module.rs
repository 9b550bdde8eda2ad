//! The handling of the modules of a filter, as a part of an explanation.

use std::fmt;

use shamba_table::{ReadCounters, ResidentFilter};

/// The handling of one module of a filter by a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ModuleStep {
    /// It was tested in memory.
    Held {
        /// Its number, from 0.
        module: usize,
        /// False: the key is certainly not in the table.
        maybe: bool,
    },
    /// It was tested after it was found in the block cache or read from the file.
    Fetched {
        /// Its number, from 0.
        module: usize,
        /// False: the key is certainly not in the table.
        maybe: bool,
        /// Whether it was read from the file, because the block cache did not have it.
        read: bool,
    },
    /// It was skipped.
    Skipped {
        /// Its number, from 0.
        module: usize,
        /// The reason.
        why: SkipReason,
    },
}

/// Reason for skipping a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SkipReason {
    /// The module is not in memory, because other pieces save more per byte.
    NotResident,
    /// Other slices of the module are in memory, but not the key's.
    SliceNotResident,
    /// The module is in memory but dormant: most lookups find their key here, so testing it costs
    /// more than it saves.
    Dormant,
}

impl ModuleStep {
    /// A module that memory holds.
    pub fn held(module: usize, maybe: bool) -> Self {
        Self::Held { module, maybe }
    }

    /// A module that was read from the file.
    pub fn fetched(module: usize, maybe: bool, io: &ReadCounters) -> Self {
        Self::Fetched { module, maybe, read: io.filter.count > 0 }
    }

    /// A module that was not consulted.
    pub fn skipped(module: usize, filter: &ResidentFilter) -> Self {
        let is_in = |mask: u8| mask >> module & 1 == 1;
        let why = match (is_in(filter.asked()), is_in(filter.unasked().dormant)) {
            (true, _) => SkipReason::SliceNotResident,
            (false, true) => SkipReason::Dormant,
            (false, false) => SkipReason::NotResident,
        };
        Self::Skipped { module, why }
    }
}

impl fmt::Display for ModuleStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |maybe: &bool| if *maybe { "maybe" } else { "no" };
        match self {
            Self::Held { module, maybe } => write!(f, "module {} says {}", module + 1, said(maybe)),
            Self::Fetched { module, maybe, read } => {
                let from = if *read { "read from the file" } else { "from the block cache" };
                write!(f, "module {}, {from}, says {}", module + 1, said(maybe))
            }
            Self::Skipped { module, why } => write!(f, "module {} skipped: {why}", module + 1),
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotResident => "not in memory: other data has a higher value",
            Self::SliceNotResident => "the key's slice is not in memory",
            Self::Dormant => "dormant: in memory, but a probe costs more than it saves, because most lookups find their key",
        })
    }
}

/// The steps of some modules, as text.
pub(super) fn joined(modules: &[ModuleStep]) -> String {
    modules.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
