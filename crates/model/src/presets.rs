//! The default settings of other systems as designs: starting points for comparisons.
//!
//! The figures are those of table 4 of Dayan, Athanassoulis, Idreos: Monkey (TODS 2018). All of
//! these systems give every filter the same bits per key ([`Preset::ALLOCATION`]). Cassandra sizes
//! its buffer in proportion to memory; without a known memory size its design is an error.
//!
//! Not here: the configuration of an actual system (crate `shamba-cli`, which reads RocksDB's
//! OPTIONS files).

use std::fmt;
use std::str::FromStr;

use crate::allocation::Allocation;
use crate::{Design, MergePolicy};

/// The defaults of one system.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Preset {
    /// The name in options and output.
    pub name: &'static str,
    /// The system's own name.
    pub system: &'static str,
    /// Its merge policy.
    pub policy: MergePolicy,
    /// T.
    pub size_ratio: f64,
    /// Filter bits per key.
    pub bits_per_key: f64,
    /// Its write buffer.
    pub buffer: PresetBuffer,
}

/// How a system sizes its write buffer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum PresetBuffer {
    /// A fixed number of bytes.
    Bytes(u64),
    /// This share of the system's memory.
    OfMemory(f64),
}

impl Preset {
    /// Every known system.
    pub const ALL: [Self; 5] = [
        Self::new("leveldb", "LevelDB", MergePolicy::Leveling, 10.0, 10.0, PresetBuffer::Bytes(2 << 20)),
        Self::new("rocksdb", "RocksDB", MergePolicy::Leveling, 10.0, 10.0, PresetBuffer::Bytes(64 << 20)),
        Self::new("cassandra", "Cassandra", MergePolicy::Tiering, 4.0, 10.0, PresetBuffer::OfMemory(0.05)),
        Self::new("hbase", "HBase", MergePolicy::Leveling, 2.0, 10.0, PresetBuffer::Bytes(128 << 20)),
        Self::new("accumulo", "Accumulo", MergePolicy::Leveling, 4.0, 11.0, PresetBuffer::Bytes(1 << 30)),
    ];

    /// The filter allocation of all these systems.
    pub const ALLOCATION: Allocation = Allocation::Uniform;

    const fn new(
        name: &'static str,
        system: &'static str,
        policy: MergePolicy,
        size_ratio: f64,
        bits_per_key: f64,
        buffer: PresetBuffer,
    ) -> Self {
        Self { name, system, policy, size_ratio, bits_per_key, buffer }
    }

    /// The system's design on a machine with `memory_bytes` in total.
    ///
    /// # Errors
    /// The memory is needed and not known, or too little for a buffer.
    pub fn design(&self, memory_bytes: Option<u64>) -> Result<Design, String> {
        let buffer_bytes = match (self.buffer, memory_bytes) {
            (PresetBuffer::Bytes(bytes), _) => bytes,
            (PresetBuffer::OfMemory(share), Some(memory)) => (memory as f64 * share) as u64,
            (PresetBuffer::OfMemory(share), None) => {
                let system = self.system;
                return Err(format!(
                    "the buffer of {system} is {} % of the memory, which is required",
                    share * 100.0
                ));
            }
        };
        self.design_with(buffer_bytes)
    }

    /// The system's design with a write buffer of `buffer_bytes` instead of its own.
    ///
    /// # Errors
    /// A buffer that is too small or too large.
    pub fn design_with(&self, buffer_bytes: u64) -> Result<Design, String> {
        let design = Design::new(self.policy, self.size_ratio, buffer_bytes, self.bits_per_key);
        design.validate().map_err(|error| format!("{}: {error}", self.system))?;
        Ok(design)
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|preset| preset.name == name).ok_or_else(|| {
            let known = Self::ALL.map(|preset| preset.name).join(", ");
            format!("unknown system {name:?} (known: {known})")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_design() {
        for preset in Preset::ALL {
            let design = preset.design(Some(1 << 30)).unwrap();
            assert_eq!(design.policy(), Some(preset.policy), "{preset}");
            assert_eq!(preset.name.parse(), Ok(preset));
        }
        let error = "couchdb".parse::<Preset>().unwrap_err();
        assert!(error.contains("couchdb") && error.contains("cassandra"), "{error}");
    }

    #[test]
    fn a_buffer_in_proportion_follows_the_memory() {
        let cassandra: Preset = "cassandra".parse().unwrap();
        assert_eq!(cassandra.design(Some(1000 << 20)).unwrap().buffer_bytes, 50 << 20);
        assert!(cassandra.design(None).unwrap_err().contains("memory"));
        assert!(cassandra.design(Some(100)).unwrap_err().contains("Cassandra"));
    }
}
