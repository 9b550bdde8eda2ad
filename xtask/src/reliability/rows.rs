//! Measures of the table, their targets, and the counts that they are computed from.
//!
//! Not here: the suites that write the counts, and the table ([`super`]).

/// A measure with its targets and counts.
pub struct Row {
    pub number: u32,
    pub measure: &'static str,
    /// Minimum within CI; 0: only on demand.
    pub ci: u64,
    /// Minimum on demand; 0: no additional target.
    pub on_demand: u64,
    /// The step that must reach `on_demand` by itself once it runs; empty: none must, and the count
    /// is only shown.
    pub by: &'static str,
    /// (suite, count), added up. A count with a trailing star stands for all names that begin with
    /// it.
    pub counts: &'static [(&'static str, &'static str)],
    /// The targets are maxima; of several counts the greatest is used.
    pub is_limit: bool,
}

const fn row(
    number: u32,
    measure: &'static str,
    ci: u64,
    on_demand: u64,
    counts: &'static [(&'static str, &'static str)],
) -> Row {
    Row { number, measure, ci, on_demand, by: "", counts, is_limit: false }
}

impl Row {
    /// The row with the step that must reach its on-demand target.
    const fn by(self, step: &'static str) -> Self {
        Self { by: step, ..self }
    }
}

/// A row with a maximum, in CI (`ci`) or on demand.
const fn limit(
    number: u32,
    measure: &'static str,
    (ci, on_demand): (u64, u64),
    counts: &'static [(&'static str, &'static str)],
) -> Row {
    Row { number, measure, ci, on_demand, by: "", counts, is_limit: true }
}

pub const ROWS: &[Row] = &[
    row(
        1,
        "distinct crash images recovered and checked, those of recoveries among them",
        100_000,
        10_000_000,
        &[("crash", "distinct images"), ("crash-threads", "distinct images")],
    ),
    row(
        2,
        "workloads of one or two operations (on demand three), from an empty and from a filled database",
        220,
        2_220,
        &[("crash", "short lives")],
    )
    .by("crash-deep"),
    row(
        3,
        "crashes of recoveries (depth 2)",
        1_000,
        0,
        &[("crash", "crashes of recoveries"), ("peers-opens", "images")],
    ),
    row(
        3,
        "crashes of recoveries after a crashed recovery (depth 3)",
        0,
        1_000,
        &[("crash", "crashes of recoveries, three deep")],
    )
    .by("crash-deep"),
    row(
        3,
        "distinct images of lives with compaction filters, FIFO limits, transactions or entries that expire",
        3_000,
        0,
        &[
            ("crash-rules", "distinct images"),
            ("fault-rules", "distinct images"),
            ("crash-transactions", "distinct images"),
            ("crash-expiry", "distinct images"),
        ],
    ),
    row(4, "lives with two faults", 1_000, 100_000, &[("fault-pairs", "lives with two faults")]).by("pairs"),
    row(
        4,
        "single-fault runs, every call that a script makes",
        10_000,
        0,
        &[("faults", "single-fault runs")],
    ),
    row(
        4,
        "faults followed by a power cut, images",
        8_000,
        0,
        &[("fault-then-crash", "images"), ("fault-then-crash-no-wal", "images")],
    ),
    row(4, "faults in storms", 5_000, 1_000_000, &[("storms", "faults"), ("stress", "faults")]).by("storms"),
    row(
        5,
        "bytes flipped, each file type, three masks",
        100_000,
        2_000_000,
        &[
            ("corruption", "flips in tables"),
            ("corruption", "flips in logs"),
            ("corruption", "flips in manifests"),
            ("corruption-featured", "flips in tables"),
            ("corruption-featured", "flips in logs"),
            ("corruption-featured", "flips in manifests"),
            ("sweep", "flips"),
        ],
    ),
    row(6, "truncations, each length of each file", 5_000, 0, &[("corruption", "truncations")]),
    row(
        7,
        "lookups through filters whole and in parts, half of them of keys that are there",
        1_000_000,
        100_000_000,
        &[("membership", "checks")],
    )
    .by("membership"),
    row(
        8,
        "kill -9 cycles, a worker and the binary",
        12,
        300,
        &[("kill-worker", "kills"), ("kill", "kills")],
    )
    .by("kill"),
    row(9, "system calls that failed or killed", 0, 500, &[("syscalls", "points reached")]).by("syscalls"),
    row(10, "operations against the oracle", 1_000_000, 1_000_000_000, &[("model", "operations")]),
    row(10, "option vectors", 500, 0, &[("model", "vectors")]),
    row(
        10,
        "operations beside RocksDB and a sorted map (`cargo xtask peers differential`)",
        0,
        1_000_000,
        &[("differential", "operations")],
    )
    .by("differential"),
    row(11, "metamorphic runs, 60 scripts under 8 vectors", 480, 0, &[("metamorphic", "runs")]),
    row(11, "operations of these runs", 200_000, 2_400_000, &[("metamorphic", "operations")])
        .by("metamorphic"),
    row(
        12,
        "operations beside one another, held to sums or to one order of all",
        1_000_000,
        2_000_000,
        &[
            ("concurrency-leveling", "operations"),
            ("concurrency-tiering", "operations"),
            ("histories-leveling", "operations"),
            ("histories-tiering", "operations"),
            ("histories-lazy-leveling", "operations"),
        ],
    ),
    row(
        13,
        "models of small parts under every schedule with at most three preemptions",
        6,
        0,
        &[
            ("loom-digest_index", "models"),
            ("loom-grace_periods", "models"),
            ("loom-cache_sections", "models"),
            ("loom-large_cache_sections", "models"),
            ("loom-cache_pins", "models"),
            ("loom-group_commit", "models"),
            ("loom-snapshots", "models"),
            ("loom-filter_fence", "models"),
            ("loom-ledger", "models"),
            ("loom-pressure", "models"),
            ("loom-idle_slots", "models"),
            ("loom-fresh_slots", "models"),
            ("loom-views", "models"),
            ("loom-files_of_versions", "models"),
        ],
    ),
    row(
        12,
        "committed transactions in histories that have a serial order",
        5_000,
        0,
        &[
            ("transactions-serializable", "transactions committed"),
            ("transactions-snapshot", "transactions committed"),
        ],
    ),
    row(
        13,
        "schedules of the whole engine by chance, three scenarios",
        3_000,
        1_000_000,
        &[
            ("schedules-write_flush_and_merge", "schedules"),
            ("schedules-close_beside_writers", "schedules"),
            ("schedules-sums_beside_merges", "schedules"),
        ],
    ),
    row(
        13,
        "schedules of features by chance, nine scenarios",
        600,
        0,
        &[
            ("schedules-transactions_have_a_serial_order", "schedules"),
            ("schedules-pairs_in_the_record_cache", "schedules"),
            ("schedules-filter_changes_beside_readers", "schedules"),
            ("schedules-drops_of_limits_beside_readers", "schedules"),
            ("schedules-streams_beside_writers", "schedules"),
            ("schedules-one_closes_while_the_other_works", "schedules"),
            ("schedules-readers_of_value_files", "schedules"),
            ("schedules-readers_of_expiring_entries", "schedules"),
            ("schedules-scans_during_changes_of_the_extractor", "schedules"),
        ],
    ),
    row(
        14,
        "hostile files and lives for decoders and recovery",
        300_000,
        1_000_000_000,
        &[("fuzz", "executions, *"), ("fuzz-operations", "executions, *"), ("fuzz-guided", "executions, *")],
    ),
    row(15, "planted defects killed", 0, 40, &[("planted", "killed")]).by("planted"),
    limit(
        16,
        "KiB allocated at a time for hostile bytes, beyond their own size, at most",
        (16_384, 16_384),
        &[("hostile-memory", "max KiB beyond the input")],
    ),
    limit(
        16,
        "calls to the file system for a hostile database, in percent of 1,000 and 100 more for each KiB, at most",
        (100, 100),
        &[("hostile-memory", "max percent of the limit of calls")],
    ),
    limit(
        17,
        "KiB resident beyond the budget under ten times the writes for 60 s, at most",
        (0, 65_536),
        &[
            ("overload-16MiB", "max KiB resident beyond the budget"),
            ("overload-64MiB", "max KiB resident beyond the budget"),
            ("overload-512MiB", "max KiB resident beyond the budget"),
        ],
    ),
    row(
        18,
        "seconds of soak: faults, kills and threads, options drawn anew for each life",
        0,
        86_400,
        &[("soak", "seconds")],
    ),
    row(
        18,
        "seconds of one database under all features, whose memory, descriptors and files do not grow",
        0,
        3_600,
        &[("steady", "seconds")],
    ),
    limit(
        19,
        "ms of an open after a kill, 1 GiB of tables and 64 MiB of log, at most",
        (0, 2_000),
        &[("reopen", "max ms with 64 MiB of log")],
    ),
    limit(
        19,
        "ms more for each further 64 MiB of log, at most",
        (0, 1_000),
        &[("reopen", "max ms of each further 64 MiB of log")],
    ),
    row(20, "seeds whose calls are equal twice", 20, 1_000, &[("determinism", "seeds")]).by("seeds"),
];
