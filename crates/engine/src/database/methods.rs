//! The methods that several handles have, as macros: reads of every handle, writes of those of one
//! keyspace ([`writes`]). So each handle has them as inherent methods, which need no trait in
//! scope.

#[macro_use]
mod writes;

/// The read methods that every handle has, by way of a [`ReadAt`].
macro_rules! read_methods {
    () => {
        /// The value of `key`, if it has one.
        ///
        /// # Errors
        /// `Invalid` for a key over 65,535 bytes, which is longer than any stored key; `Corruption`
        /// or `Io` when a file is damaged or cannot be read; `Closed` after `close`.
        pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
            self.read_at().get(key.as_ref())
        }

        /// Calls `read` with the value of `key`, if it has one, without copying it.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// db.put("greeting", "jambo")?;
        /// let length = db.get_with("greeting", |value| value.len())?;
        /// assert_eq!(length, Some(5));
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `get`.
        pub fn get_with<T>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
            self.read_at().get_with(key.as_ref(), read)
        }

        /// Copies the value of `key` into `buffer`, replacing its contents. Returns false, and
        /// leaves the buffer empty, if the key has no value.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// db.put("greeting", "jambo")?;
        /// // One buffer for many lookups.
        /// let mut value = Vec::new();
        /// assert!(db.get_into("greeting", &mut value)?);
        /// assert_eq!(value, b"jambo");
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `get`.
        pub fn get_into(&self, key: impl AsRef<[u8]>, buffer: &mut Vec<u8>) -> Result<bool> {
            self.read_at().get_into(key.as_ref(), buffer)
        }

        /// Whether `key` has a value.
        ///
        /// # Errors
        /// As `get`.
        pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
            self.read_at().contains_key(key.as_ref())
        }

        /// The time for which the value of `key` still lives; [`Duration::MAX`] if it does not
        /// expire, `None` if the key has no value. A key with operands of a merge operator lasts,
        /// as they do.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// use std::time::Duration;
        /// use shamba::WriteOptions;
        ///
        /// let minute = Duration::from_secs(60);
        /// db.put_with("session:3", "user:2", WriteOptions::new().time_to_live(minute))?;
        /// assert!(db.time_to_live_of("session:3")?.expect("a value") <= minute);
        /// db.put("user:2", "Baraka")?;
        /// assert_eq!(db.time_to_live_of("user:2")?, Some(Duration::MAX));
        /// assert_eq!(db.time_to_live_of("user:3")?, None);
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `get`.
        pub fn time_to_live_of(&self, key: impl AsRef<[u8]>) -> Result<Option<Duration>> {
            self.read_at().time_to_live_of(key.as_ref())
        }

        /// The time at which the value of `key` expires, in milliseconds since 1970-01-01 UTC;
        /// `None` if it does not expire, or the key has no value. A key with operands of a merge
        /// operator lasts, as they do. The time is the database's, which never goes back
        /// ([`Self::time_to_live_of`] gives the time that is left). Costs nothing in a database
        /// without values that expire.
        ///
        /// # Errors
        /// As `get`.
        pub fn expiry_ms_of(&self, key: impl AsRef<[u8]>) -> Result<Option<u64>> {
            self.read_at().expiry_ms_of(key.as_ref())
        }

        /// The values of many keys at one sequence number, in the order of the keys. Costs less per
        /// key than `get`.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// db.put("a", "1")?;
        /// let values = db.multi_get(["a", "b"])?;
        /// assert_eq!(values[0].as_deref(), Some(&b"1"[..]));
        /// assert_eq!(values[1], None);
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `get`.
        pub fn multi_get<K: AsRef<[u8]>>(
            &self,
            keys: impl IntoIterator<Item = K>,
        ) -> Result<Vec<Option<Slice>>> {
            self.read_at().multi_get(keys)
        }

        /// As `get`, without hashing the key again.
        ///
        /// # Errors
        /// As `get`; `Invalid` if the key was hashed by a database with another digest or seed.
        pub fn get_hashed(&self, key: &HashedKey) -> Result<Option<Slice>> {
            self.read_at().get_hashed(key)
        }

        /// The entries of a range, in key order, from both ends, as of this call. A bound may be
        /// longer than any key.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// for key in ["a", "b", "c", "d"] {
        ///     db.put(key, "")?;
        /// }
        /// let mut middle = db.range("b"..="c");
        /// assert_eq!(&middle.next().expect("an entry")?.0[..], b"b");
        /// // From the other end: the last key before "d".
        /// assert_eq!(&db.range(.."d").next_back().expect("an entry")?.0[..], b"c");
        /// # Ok::<(), shamba::Error>(())
        /// ```
        pub fn range(&self, range: impl KeyRange) -> Iter {
            self.read_at().range(range)
        }

        /// The entries whose keys begin with `prefix`, in key order, as of this call.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// db.put("user:1", "Asha")?;
        /// db.put("user:2", "Baraka")?;
        /// db.put("visit:1", "user:2")?;
        /// assert_eq!(db.prefix("user:").count(), 2);
        /// # Ok::<(), shamba::Error>(())
        /// ```
        pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
            self.read_at().prefix(prefix.as_ref())
        }

        /// All entries, in key order, as of this call.
        pub fn iter(&self) -> Iter {
            self.read_at().range(..)
        }

        /// The keys of a range, without their values: a large value is not read from its file.
        /// Counting them walks all of them.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// db.put("a", "1")?;
        /// db.put("b", vec![0; 1 << 20])?;
        /// let keys = db.keys(..).collect::<Result<Vec<_>, _>>()?;
        /// assert_eq!(keys, ["a", "b"]);
        /// # Ok::<(), shamba::Error>(())
        /// ```
        pub fn keys(&self, range: impl KeyRange) -> Keys {
            self.read_at().keys(range)
        }

        /// The entry with the smallest key.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// assert_eq!(db.first()?, None);
        /// db.put("b", "2")?;
        /// db.put("a", "1")?;
        /// let (key, value) = db.first()?.expect("an entry");
        /// assert_eq!((&key[..], &value[..]), (&b"a"[..], &b"1"[..]));
        /// assert_eq!(&db.last()?.expect("an entry").0[..], b"b");
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `get`.
        pub fn first(&self) -> Result<Option<(Slice, Slice)>> {
            self.iter().next().transpose()
        }

        /// The entry with the largest key.
        ///
        /// # Errors
        /// As `get`.
        pub fn last(&self) -> Result<Option<(Slice, Slice)>> {
            self.iter().next_back().transpose()
        }

        /// Approximate bytes that a range takes: of tables on storage, and of keys and values in
        /// memtables. Versions that are overwritten or deleted count until a compaction drops
        /// them. Reads at most indexes of tables; walks the entries of the range in memtables.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// for number in 0..1_000u32 {
        ///     db.put(number.to_be_bytes(), [7; 100])?;
        /// }
        /// let half = db.approximate_size(..500u32.to_be_bytes())?;
        /// assert_eq!(half, 500 * 104);
        /// assert_eq!(db.approximate_count(..500u32.to_be_bytes())?, 500);
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// `Closed`; `Invalid` if the keyspace was dropped.
        pub fn approximate_size(&self, range: impl KeyRange) -> Result<u64> {
            let estimate = self.read_at().estimate(range)?;
            Ok(estimate.table_bytes + estimate.memtable_bytes)
        }

        /// Approximate number of entries in a range, tombstones and overwritten versions included;
        /// otherwise as `approximate_size`. The exact number is that of `keys`, in time that grows
        /// with it.
        ///
        /// # Errors
        /// As `approximate_size`.
        pub fn approximate_count(&self, range: impl KeyRange) -> Result<u64> {
            Ok(self.read_at().estimate(range)?.entries)
        }

        /// At most `parts` - 1 keys that split a range into parts of about equal bytes, for scans
        /// in parallel. Fewer where there is too little to split.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// for number in 0..10_000u32 {
        ///     db.put(number.to_be_bytes(), "value")?;
        /// }
        /// let points = db.split_points(.., 4)?;
        /// let starts = [Vec::new()].into_iter().chain(points.clone());
        /// let ends = points.into_iter().chain([vec![0xff; 4]]);
        /// let counts: Vec<usize> = std::thread::scope(|scope| {
        ///     let count = |(start, end)| scope.spawn(|| db.range(start..end).count());
        ///     let threads: Vec<_> = starts.zip(ends).map(count).collect();
        ///     threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        /// });
        /// assert_eq!(counts.len(), 4);
        /// assert_eq!(counts.into_iter().sum::<usize>(), 10_000);
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `approximate_size`.
        pub fn split_points(&self, range: impl KeyRange, parts: usize) -> Result<Vec<Vec<u8>>> {
            self.read_at().split_points(range, parts)
        }

        /// A cursor without a position, which reads the state as of this call.
        pub fn cursor(&self) -> Cursor {
            self.read_at().cursor()
        }

        /// A cursor over keys without a position, which reads the state as of this call. It reads
        /// only the values that it is asked for.
        pub fn key_cursor(&self) -> KeyCursor {
            KeyCursor::new(self.to_reader())
        }

        /// Explains a lookup of `key`: everything it touches and skips, with reasons.
        ///
        /// ```
        /// # let dir = tempfile::tempdir().expect("a temporary directory");
        /// # let db = shamba::Db::open(dir.path().join("db"))?;
        /// db.put("key", "value")?;
        /// let explanation = db.explain("key")?;
        /// println!("{explanation}"); // One line for each memtable, run, filter and block.
        /// # Ok::<(), shamba::Error>(())
        /// ```
        ///
        /// # Errors
        /// As `get`.
        pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
            self.read_at().explain(key.as_ref())
        }

        /// Explains which runs a scan of `prefix` reads, and which it leaves out by their filters
        /// ([`KeyspaceOptions::prefix`](crate::KeyspaceOptions::prefix)).
        ///
        /// # Errors
        /// `Invalid` if the keyspace was dropped; `Closed` after `close`; of reading a filter.
        pub fn explain_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<PrefixExplanation> {
            self.read_at().explain_prefix(prefix.as_ref())
        }
    };
}
