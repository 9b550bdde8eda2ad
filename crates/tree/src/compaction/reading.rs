//! Sizes of the read buffers of a compaction's inputs.
//!
//! Every read costs a device about the same, so a compaction should make few. With a buffer of
//! `b_i` bytes for an input of `n_i` bytes, it makes the sum of `n_i / b_i` reads. For a given
//! total of buffer bytes, that sum is smallest when `b_i` is proportional to the square root of
//! `n_i`. A large level that is compacted with a few small runs gets most of the memory.
//!
//! Not here: reading (crate `shamba-table`, `reader/ahead.rs`).

/// Maximum bytes of one read: large enough for sequential throughput.
const READ_BYTES_MAX: u64 = 256 << 10;
/// Minimum bytes of one read: a smaller one costs nearly as much as a single block.
const READ_BYTES_MIN: u64 = 8 << 10;

/// Buffer sizes for inputs of `input_bytes`. They sum to at most `bytes`, except that each gets at
/// least `READ_BYTES_MIN`.
pub fn read_bytes(bytes: u64, input_bytes: &[u64]) -> Vec<u64> {
    let root = |input: u64| (input as f64).sqrt();
    let roots: f64 = input_bytes.iter().map(|input| root(*input)).sum();
    let part = |input: &u64| {
        // `as` saturates.
        let part = bytes as f64 * root(*input) / roots.max(f64::MIN_POSITIVE);
        (part as u64).clamp(READ_BYTES_MIN, READ_BYTES_MAX)
    };
    input_bytes.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_times_the_bytes_get_ten_times_the_buffer() {
        assert_eq!(read_bytes(220_000, &[100 << 20, 1 << 20, 1 << 20]), [183_333, 18_333, 18_333]);
        assert_eq!(read_bytes(1 << 30, &[7, 7]), [READ_BYTES_MAX; 2]);
        assert_eq!(read_bytes(0, &[0, 9]), [READ_BYTES_MIN; 2]);
        assert_eq!(read_bytes(5, &[]), [0; 0]);
    }

    #[test]
    fn there_are_no_fewer_reads_with_the_same_memory_shared_out_otherwise() {
        let inputs = [1u64 << 30, 80 << 20, 60 << 20, 9 << 20];
        let reads = |buffers: &[f64]| -> f64 {
            inputs.iter().zip(buffers).map(|(input, buffer)| *input as f64 / buffer).sum()
        };
        let chosen: Vec<f64> = read_bytes(400 << 10, &inputs).iter().map(|bytes| *bytes as f64).collect();
        let least = reads(&chosen);
        for from in 0..inputs.len() {
            for to in 0..inputs.len() {
                let mut other = chosen.clone();
                other[from] -= 4_096.0;
                other[to] += 4_096.0;
                assert!(reads(&other) >= least - 1.0, "{chosen:?}: {from} to {to}");
            }
        }
    }
}
