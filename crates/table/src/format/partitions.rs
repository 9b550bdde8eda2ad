//! Summaries of index partitions: what an open needs to know of a partition without reading it.
//!
//! ```text
//! summary   end of its blocks u64, bytes in memory u32           12 bytes
//! ```
//!
//! The properties of a table have one for each partition, in their order. The end of a partition's
//! blocks is where those of the next one begin. The bytes in memory are an estimate of the build
//! that wrote the table, for the division of memory until the partition was resident once.

/// Length of a stored summary.
const SUMMARY_BYTES: usize = 12;

/// Summary of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartitionSummary {
    /// End of its last block.
    pub(crate) blocks_end: u64,
    /// Estimated memory of the decoded partition, in bytes.
    pub(crate) memory_bytes: u32,
}

impl PartitionSummary {
    pub(crate) fn encode(&self) -> [u8; SUMMARY_BYTES] {
        let mut bytes = [0; SUMMARY_BYTES];
        bytes[..8].copy_from_slice(&self.blocks_end.to_le_bytes());
        bytes[8..].copy_from_slice(&self.memory_bytes.to_le_bytes());
        bytes
    }

    /// The summaries that were encoded one after the other.
    ///
    /// # Errors
    /// A description of the damage.
    pub(crate) fn decode_all(bytes: &[u8]) -> Result<Vec<Self>, String> {
        if bytes.len() % SUMMARY_BYTES != 0 {
            return Err(format!("summaries of partitions in {} bytes", bytes.len()));
        }
        let decode = |bytes: &[u8]| match bytes {
            [end @ .., m0, m1, m2, m3] => Some(Self {
                blocks_end: u64::from_le_bytes(end.try_into().ok()?),
                memory_bytes: u32::from_le_bytes([*m0, *m1, *m2, *m3]),
            }),
            _ => None,
        };
        Ok(bytes.chunks_exact(SUMMARY_BYTES).filter_map(decode).collect())
    }

    /// Checks that the partition has blocks after `start`, none of them beyond `data_end`, and
    /// takes memory.
    pub(crate) fn check(&self, start: u64, data_end: u64) -> Result<(), String> {
        if self.blocks_end <= start || self.blocks_end > data_end {
            let end = self.blocks_end;
            return Err(format!(
                "blocks of a partition end at {end}, expected between {start} and {data_end}"
            ));
        }
        if self.memory_bytes == 0 {
            return Err("a partition that takes no memory".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_come_back() {
        let all: Vec<PartitionSummary> = [(1, 7), (u64::MAX, u32::MAX)]
            .map(|(blocks_end, memory_bytes)| PartitionSummary { blocks_end, memory_bytes })
            .into();
        let bytes: Vec<u8> = all.iter().flat_map(PartitionSummary::encode).collect();
        assert_eq!(PartitionSummary::decode_all(&bytes), Ok(all));
        assert_eq!(PartitionSummary::decode_all(&[]), Ok(Vec::new()));
        assert!(PartitionSummary::decode_all(&bytes[1..]).is_err(), "part of a summary");
    }

    #[test]
    fn a_summary_lies_between_its_neighbours() {
        let summary = PartitionSummary { blocks_end: 200, memory_bytes: 9 };
        assert_eq!(summary.check(199, 200), Ok(()));
        assert!(summary.check(200, 200).is_err(), "a partition without blocks");
        assert!(summary.check(100, 199).is_err(), "blocks beyond the data");
        assert!(PartitionSummary { memory_bytes: 0, ..summary }.check(100, 300).is_err());
    }
}
