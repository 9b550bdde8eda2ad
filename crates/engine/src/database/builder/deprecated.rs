//! Former methods of the builder, until version 0.3: each forwards to the method in use.

use shamba_filter::FilterLayout;
use shamba_key::DigestKind;
use shamba_model::allocation::Allocation;
use shamba_model::skip::Skipping;
use shamba_model::{Design, Sizing};
use shamba_table::{Compression, Residency};

use super::Builder;

/// Methods that moved to `Experimental` under the same name.
macro_rules! moved {
    ($($method:ident($($value:ident: $type:ty),+);)+) => {
        #[doc(hidden)]
        impl Builder { $(
            #[deprecated(since = "0.2.0", note = "moved: `builder.experimental(|e| e.NAME(..))`")]
            #[must_use]
            pub fn $method(self, $($value: $type),+) -> Self {
                self.experimental(|experimental| experimental.$method($($value),+))
            }
        )+ }
    };
}

moved! {
    inner_runs(runs: u32);
    last_runs(runs: u32);
    filter_memory(bytes: u64);
    filter_allocation(allocation: Allocation);
    design(design: Design);
    digest(kind: DigestKind);
    digest_seed(seed: u64);
    hash_sharing(on: bool);
    filter_layout(layout: FilterLayout);
    filter_residency(residency: Residency);
    resident_limit(bytes: u64);
    cache_limit(bytes: u64);
    count_ios(on: bool);
    module_skipping(skipping: Skipping);
    prefetch(on: bool);
    block_tags(on: bool);
    memtable_index(on: bool);
    statistics(on: bool);
    sizing(sizing: Sizing);
    large_values(from_bytes: usize, chunk_bytes: usize);
    file_size(bytes: u64);
    block_bytes(bytes: usize);
    no_wal(on: bool);
    max_wal_bytes(bytes: u64);
    l0_compaction_trigger(runs: u32);
    l0_slowdown_runs(runs: u32);
    l0_stop_runs(runs: u32);
    max_immutable_memtables(count: u32);
    rate_limit_bytes_per_s(bytes: u64);
    auto_compaction(on: bool);
    error_if_exists(on: bool);
    recovery_point_in_time(on: bool);
    timers(on: bool);
}

#[doc(hidden)]
impl Builder {
    #[deprecated(since = "0.2.0", note = "use `experimental(|e| e.device_read_us(..).device_write_us(..))`")]
    #[must_use]
    pub fn device_latency_us(self, read_us: f64, write_us: f64) -> Self {
        self.experimental(|experimental| experimental.device_read_us(read_us).device_write_us(write_us))
    }

    #[deprecated(since = "0.2.0", note = "use `experimental(|e| e.device_mib_per_s(..))`")]
    #[must_use]
    pub fn device_bandwidth_mib_per_s(self, mib_per_s: f64) -> Self {
        self.experimental(|experimental| experimental.device_mib_per_s(mib_per_s))
    }

    #[deprecated(since = "0.2.0", note = "`compression` takes a list")]
    #[must_use]
    pub fn compression_per_level(self, compression: Vec<Compression>) -> Self {
        self.compression(compression)
    }

    #[deprecated(since = "0.2.0", note = "use `set_option(\"filter-layout\", \"auto\")`")]
    #[must_use]
    pub fn filter_layout_auto(self) -> Self {
        self.give("filter-layout", |settings| settings.filter_layout = None)
    }

    #[deprecated(since = "0.2.0", note = "use `experimental(|e| e.l0_compaction_trigger(..))`")]
    #[must_use]
    pub fn inbox_trigger(self, runs: u32) -> Self {
        self.experimental(|experimental| experimental.l0_compaction_trigger(runs))
    }

    #[deprecated(since = "0.2.0", note = "use `experimental(|e| e.l0_slowdown_runs(..))`")]
    #[must_use]
    pub fn inbox_soft_runs(self, runs: u32) -> Self {
        self.experimental(|experimental| experimental.l0_slowdown_runs(runs))
    }

    #[deprecated(since = "0.2.0", note = "use `experimental(|e| e.l0_stop_runs(..))`")]
    #[must_use]
    pub fn inbox_hard_runs(self, runs: u32) -> Self {
        self.experimental(|experimental| experimental.l0_stop_runs(runs))
    }
}
