//! Starting points of the mutations of text.

/// Redesigns as a manifest records them.
pub const HISTORIES: [&str; 2] = [
    "1700000000000\tcaller\tsize-ratio=10 inner-runs=1 last-runs=1 write-buffer=1048576 bits-per-key=7.25 filter-memory=auto \
     allocation=monkey\tsize-ratio=4.5 inner-runs=3 last-runs=1 write-buffer=65536 bits-per-key=10 filter-memory=1000000 \
     allocation=workload\tbecause lookups find nothing",
    "7\tfuture\ta\tb\tc\n\t\t\t\t\n1\ttuner\tsize-ratio=1e308\tsize-ratio=nan\twhy",
];

/// A recorded trace with every kind of line, and a generated one.
pub const TRACES: [&str; 2] = [
    "# shamba trace 1\nI ada *8\nQ ada +\nQ bob -\nI k\\xc3\\xa4se *1000\nK users\nU ada text\nD ada\nQ ada\nX a b\nX m\n\
     R a f\nS a z\nN b 3\nP y 2\nG users\nK default\nQ \\e -\n# end 15\n",
    "I abc 1\nI abd 22\nU abc \\x2a3\nD abd \nQ abx\nS a z\nR abc abd\n",
];

/// Arguments, one per line.
pub const COMMAND_LINES: [&str; 7] = [
    "put\n/db\nkey\nvalue\n--sync\nalways\n--memory-budget\n64MiB\n--policy\nlazy-leveling\n--hex",
    "load\n/db\n-\n--format\ncsv\n--key\nname\n--skip-bad\n--json\n--filter-layout\nmodular:3",
    "scan\n/db\n--from\na\\x00\n--to\nz\n--limit\n10\n--reverse\n--prefix\nb",
    "bench\n/db\nfillrandom\nycsb-a\n--num\n1k\n--key-shape\npath\n--distribution\nzipf\n--threads\n4",
    "plan\ncost\n--entries\n100M\n--entry-bytes\n116\n--lookups-zero\n0.5\n--updates\n0.5\n--size-ratio\n10",
    "repair\n/db\n--out\n/new\n--json",
    "--help",
];

/// A byte of options, then lines.
pub const BATCHES: [&str; 3] = [
    "\0put a 1\nput b two words\nget a\ndel a\nbegin\nput c 3\ndelrange a c\ncommit\nflush\nsync\ncompact\nget b",
    "\0in users put a 1\nin users get a\nbegin\nin logs put x \\x00\nin users del a\ncommit\nin none get a\nbegin\nbegin",
    "\x01put 00 ff0a\nget 00\nput zz 00\ndelrange 00 ff",
];

/// A byte of options, then a file.
pub const RECORDS: [&str; 7] = [
    "\0key\tvalue\tmore\nkey\\x00\t\nno tab\n",
    "\x04a\tb\tc\n\n",
    "\x01a,\"b \"\"c\"\"\",d\r\n\"x\ny\",z\n",
    "\x09id,name\n1,\"one, two\"\n2,\n",
    "\x02{\"key\":\"a\",\"value\":\"b\"}\n{\"key\":\"\\u0000\\ud83d\\ude00\",\"other\":[1,2.5e3,null]}\n[]\n",
    "\x03a line\nanother\nä\n",
    "\x1300ff\n0\n",
];

/// Option files of RocksDB.
pub const ROCKSDB_OPTIONS: [&str; 2] = [
    "# This is a RocksDB option file.\n\n[Version]\n  rocksdb_version=9.1.1\n  options_file_version=1.1\n\n[DBOptions]\n  \
     max_background_jobs=4\n\n[CFOptions \"default\"]\n  compaction_style=kCompactionStyleLevel\n  compression=kNoCompression\n  \
     num_levels=7\n  write_buffer_size=67108864  # for the nightly load\n  max_bytes_for_level_base=268435456\n  \
     max_bytes_for_level_multiplier=10.000000\n  level_compaction_dynamic_level_bytes=false\n\n[TableOptions/BlockBasedTable \
     \"default\"]\n  block_size=4096\n  filter_policy=bloomfilter:10:false\n  unheard_of={a=b;}\n\n[CFOptions \"logs\"]\n  \
     compaction_style=kCompactionStyleFIFO\n",
    "[CFOptions \"default\"]\n  compaction_style=kCompactionStyleUniversal\n  compaction_options_universal={size_ratio=1;\
     max_size_amplification_percent=200;}\n  write_buffer_size=64K\n  block_based_table_factory={block_size=16K;\
     filter_policy={id=ribbonfilter\\:10;bloom_before_level=3;};cache_index_and_filter_blocks=true;}\n",
];
