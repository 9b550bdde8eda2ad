//! Options of the builder by their command-line names.

use std::time::Duration;

use shamba_filter::{FilterLayout, MAX_MODULES, Modules};
use shamba_table::Compression;

use super::Builder;
use crate::error::{Error, Result};
use crate::experimental::Experimental;
use crate::settings::{Durability, number, switch};

impl Builder {
    /// Sets an option by its command-line name, without the dashes.
    ///
    /// # Errors
    /// `Invalid` for an unknown name, or a value that does not parse.
    pub fn set_option(self, name: &str, value: &str) -> Result<Self> {
        let parsed = |detail: String| Error::invalid(format!("{name}: {detail}"));
        Ok(match name {
            "memory-budget" => self.memory_budget(number(name, value)?),
            "size-ratio" => self.size_ratio(number(name, value)?),
            "policy" => self.merge_policy(value.parse().map_err(parsed)?),
            "write-buffer" => self.write_buffer(number(name, value)?),
            "bits-per-key" => self.bits_per_key(number(name, value)?),
            "filter-memory" => self.filter_memory(number(name, value)?),
            "allocation" => self.filter_allocation(value.parse().map_err(parsed)?),
            "hash-sharing" => self.hash_sharing(switch(name, value)?),
            "prefetch" => self.prefetch(switch(name, value)?),
            "block-tags" => self.block_tags(switch(name, value)?),
            "filter-layout" if value == "auto" => self.filter_layout_auto(),
            "filter-layout" => self.filter_layout(value.parse().map_err(parsed)?),
            "modules" => self.filter_layout(modules(value).map_err(parsed)?),
            "resident-limit" => self.resident_limit(number(name, value)?),
            "cache-limit" => self.cache_limit(number(name, value)?),
            "count-ios" => self.count_ios(switch(name, value)?),
            "experimental" => {
                let mut experimental = Experimental::default();
                experimental.set(value).map_err(parsed)?;
                self.experimental(|all| *all = experimental)
            }
            "residency" => self.filter_residency(value.parse().map_err(parsed)?),
            "skipping" => self.module_skipping(value.parse().map_err(parsed)?),
            "memtable-index" => self.memtable_index(switch(name, value)?),
            "statistics" => self.statistics(switch(name, value)?),
            "direct-io" => self.direct_io(switch(name, value)?),
            "open-timeout" => self.open_timeout(Duration::from_millis(number(name, value)?)),
            "max-open-files" => self.max_open_files(number(name, value)?),
            "background-threads" => self.background_threads(number(name, value)?),
            "tuning" => self.tuning(value.parse().map_err(parsed)?),
            "sizing" => self.sizing(value.parse().map_err(parsed)?),
            "digest" => self.digest(value.parse().map_err(parsed)?),
            "compression" => {
                let kinds: Vec<Compression> =
                    value.split(',').map(|kind| kind.parse().map_err(parsed)).collect::<Result<_>>()?;
                self.compression_per_level(kinds)
            }
            "file-size" => self.file_size(number(name, value)?),
            "sync" => self.durability(match value {
                "always" => Durability::Sync,
                "never" => Durability::NoSync,
                "buffered" => Durability::Buffered,
                ms => Durability::interval_ms(
                    ms.parse()
                        .map_err(|_| parsed("must be always, never, buffered or milliseconds".into()))?,
                ),
            }),
            _ => return Err(Error::invalid(format!("unknown option {name:?}"))),
        })
    }
}

/// The layout of `count` equal modules.
fn modules(count: &str) -> std::result::Result<FilterLayout, String> {
    let count = count.parse().ok().and_then(Modules::equal);
    count.map(FilterLayout::Modular).ok_or_else(|| format!("must be from 1 to {MAX_MODULES}"))
}
