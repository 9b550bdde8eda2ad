//! Notes on settings of an OPTIONS file that the model does not cover. They are printed with the
//! prediction to show its limits.
//!
//! Not here: settings that the model covers (`settings.rs`), and its simplifications of these
//! (`tree.rs`).

use super::settings::{Family, Settings, number};

impl Settings {
    /// Adds notes on settings of the file that the model does not cover.
    pub fn note_the_rest(&mut self, family: &Family<'_>) -> Result<(), String> {
        let notes = &mut self.notes;
        let is_set = |name: &str, idle: &[&str]| {
            family.word(name).filter(|value| !value.is_empty() && !idle.contains(&value.as_str()))
        };
        const NONE: [&str; 4] = ["kNoCompression", "kDisableCompressionOption", "nullptr", "0"];
        let compressed =
            ["compression", "bottommost_compression", "compression_per_level"].into_iter().any(|name| {
                is_set(name, &NONE).is_some_and(|value| value.split(':').any(|kind| !NONE.contains(&kind)))
            });
        if compressed {
            notes.push("compression: set --entry-bytes as stored; its CPU time is not modelled".into());
        }
        if family.flag("enable_blob_files", false)? {
            notes.push(
                "enable_blob_files: compactions do not rewrite values in blob files; set --entry-bytes without them"
                    .into(),
            );
        }
        if let Some(value) = is_set("prefix_extractor", &["nullptr"]) {
            notes.push(format!(
                "prefix_extractor {value}: savings of filters for prefix scans are not modelled"
            ));
        }
        if let Some(value) = is_set("max_bytes_for_level_multiplier_additional", &[])
            && value.split(':').any(|factor| factor != "1")
        {
            notes.push(format!(
                "max_bytes_for_level_multiplier_additional {value}: the model has one size ratio for all levels"
            ));
        }
        for name in ["ttl", "periodic_compaction_seconds"] {
            // RocksDB writes its own default, 30 days or "choose", as one of these.
            let idle = ["0", "2592000", "18446744073709551615", "18446744073709551614"];
            if let Some(value) = is_set(name, &idle) {
                notes.push(format!("{name} {value}: compactions triggered by age are not modelled"));
            }
        }
        if let Some(value) = is_set("table_factory", &["BlockBasedTable"]) {
            notes.push(format!("table_factory {value}: the model assumes block-based tables with an index"));
        }
        for name in ["compaction_filter", "compaction_filter_factory"] {
            if let Some(value) = is_set(name, &["nullptr"]) {
                notes.push(format!("{name} {value}: entries that it removes are not modelled"));
            }
        }
        if self.filters_in_cache {
            let what = "cache_index_and_filter_blocks: the model assumes that all filters are in memory; each filter evicted from \
                        the block cache costs one more read";
            notes.push(what.into());
        }
        if let Some(file_options) = family.file.section("DBOptions", "")
            && let Some(place) = family.file.find(file_options, "db_write_buffer_size")
            && number(&family.file.value(&place)) != Some(0)
        {
            notes.push("db_write_buffer_size: buffers may be flushed before write_buffer_size".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::rocksdb::settings::tests::with;

    #[test]
    fn what_the_model_does_not_know_is_noted() {
        let settings = with(
            "compression=kZSTD\nenable_blob_files=true\nprefix_extractor=rocksdb.FixedPrefix.8\n\
             max_bytes_for_level_multiplier_additional=1:2:1\nttl=3600\ntable_factory=PlainTable",
            "cache_index_and_filter_blocks=true\nfilter_policy=ribbonfilter:10",
        )
        .unwrap();
        let notes = settings.notes.join("\n");
        for what in [
            "compression",
            "enable_blob_files",
            "FixedPrefix",
            "multiplier_additional",
            "ttl",
            "PlainTable",
            "cache_index",
            "ribbon",
            "block_cache",
        ] {
            assert!(notes.contains(what), "{what} in {notes}");
        }
        let quiet = with(
            "compression=kNoCompression\nttl=2592000\nmax_bytes_for_level_multiplier_additional=1:1:1",
            "filter_policy=bloomfilter:10\nblock_cache=8M",
        );
        assert_eq!(quiet.unwrap().notes, Vec::<String>::new());
    }
}
