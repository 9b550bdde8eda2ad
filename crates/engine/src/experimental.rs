//! Switches for experiments: baselines of the papers, available only through
//! [`Builder::experimental`] and `--experimental NAME=VALUE`.
//!
//! They hold for one open and are never recorded.

use shamba_table::CacheUnit;

#[cfg(doc)]
use crate::Builder;

/// Names of switches and their values.
const KNOWN: &str = "filter-partition=sliced|whole, index-partition=sliced|whole";

/// Switches for experiments. A switch that is not set keeps its default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Experimental {
    pub(crate) filter_partition: Option<CacheUnit>,
    pub(crate) index_partition: Option<CacheUnit>,
}

impl Experimental {
    /// Unit in which the block cache reads, holds and evicts a table's filter with
    /// [`Residency::Cached`](crate::Residency::Cached): a slice of at most 64 KiB (default) or a
    /// whole module. With other residencies a plan decides slice by slice.
    pub fn filter_partition(&mut self, unit: CacheUnit) -> &mut Self {
        self.filter_partition = Some(unit);
        self
    }

    /// Unit in which the block cache holds a table's index: a partition of about 4 KiB (default) or
    /// the whole index.
    pub fn index_partition(&mut self, unit: CacheUnit) -> &mut Self {
        self.index_partition = Some(unit);
        self
    }

    /// Sets a switch by its name: `NAME=VALUE`.
    ///
    /// # Errors
    /// A message that lists the known names and values.
    pub fn set(&mut self, text: &str) -> Result<&mut Self, String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let unit = value.parse::<CacheUnit>().map_err(|error| format!("{name}: {error} (known: {KNOWN})"));
        match name {
            "filter-partition" => Ok(self.filter_partition(unit?)),
            "index-partition" => Ok(self.index_partition(unit?)),
            _ => Err(format!("unknown switch {name:?} (known: {KNOWN})")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_set_by_name() {
        let mut all = Experimental::default();
        all.set("filter-partition=whole").expect("known").set("index-partition=sliced").expect("known");
        assert_eq!(all.filter_partition, Some(CacheUnit::Whole));
        assert_eq!(all.index_partition, Some(CacheUnit::Sliced));
        for (text, named) in
            [("filter-partition", "filter-partition"), ("index-partition=half", "half"), ("x=whole", "\"x\"")]
        {
            let error = all.set(text).map(|_| ()).expect_err(text);
            assert!(error.contains(named) && error.contains("known"), "{error}");
        }
    }
}
