//! The vector probes of x86-64: eight bits of a key per step, with a second step only above eight
//! probes.
//!
//! Each lane computes its bit's number, selects the 32-bit word of the line that holds it (a table
//! lookup in registers, not a gather, whose cost differs between processors), and tests it.
//!
//! Every function of this module requires the processor to support its `target_feature`s: that is
//! the safety condition of each. AVX-512 requires Rust 1.89; a build by an older compiler uses AVX2
//! (see [`HAS_AVX512`]).
// Before Rust 1.87 these intrinsics are unsafe functions, since then they are not.
#![allow(unused_unsafe)]

use std::arch::x86_64::{
    __m256i, _mm256_andnot_si256, _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_load_si256, _mm256_loadu_si256, _mm256_movemask_ps, _mm256_mullo_epi32,
    _mm256_permutevar8x32_epi32, _mm256_set1_epi32, _mm256_slli_epi32, _mm256_sllv_epi32, _mm256_srli_epi32,
};

use super::lines::Line;
use super::{BIT_SHIFT, PROBE_LANES};

/// Shift from the number of a bit to that of its 32-bit word.
const WORD_SHIFT: i32 = 5;
const LANES: u8 = 8;

/// The halves of a line.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn halves(line: &Line) -> (__m256i, __m256i) {
    let at = std::ptr::from_ref(line).cast::<__m256i>();
    // SAFETY: a `Line` is 64 readable bytes, aligned to 64.
    unsafe { (_mm256_load_si256(at), _mm256_load_si256(at.add(1))) }
}

/// The numbers of eight bits, those of the lanes from `8 * step` on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn bit_numbers(probe: u32, step: usize) -> __m256i {
    const _: () = assert!(PROBE_LANES.len() == 2 * LANES as usize);
    debug_assert!(step < 2);
    let at = PROBE_LANES.as_ptr().cast::<__m256i>();
    // SAFETY: the lanes are two vectors long and `step` is 0 or 1 in both callers; the load may be
    // unaligned.
    let lanes = unsafe { _mm256_loadu_si256(at.add(step & 1)) };
    // SAFETY: the caller found the feature.
    unsafe {
        let products = _mm256_mullo_epi32(_mm256_set1_epi32(probe as i32), lanes);
        _mm256_srli_epi32::<{ BIT_SHIFT as i32 }>(products)
    }
}

/// One bit for each of the first `probes` lanes, at most eight.
fn wanted(probes: u8) -> u8 {
    if probes >= LANES { u8::MAX } else { (1 << probes) - 1 }
}

#[target_feature(enable = "avx2")]
pub(super) unsafe fn all_set_avx2(line: &Line, probe: u32, probes: u8) -> bool {
    // SAFETY: the caller found the feature.
    let first = unsafe { set_avx2(line, probe, 0) } & wanted(probes) == wanted(probes);
    if probes <= LANES {
        return first;
    }
    let rest = wanted(probes - LANES);
    // SAFETY: as above.
    first && unsafe { set_avx2(line, probe, 1) } & rest == rest
}

/// Which of eight bits are set.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn set_avx2(line: &Line, probe: u32, step: usize) -> u8 {
    // SAFETY: the caller found the feature.
    unsafe {
        let (low, high) = halves(line);
        let numbers = bit_numbers(probe, step);
        // 0 to 15: the lowest three bits select within a half.
        let words = _mm256_srli_epi32::<WORD_SHIFT>(numbers);
        let of_low = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, words));
        let of_high = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, words));
        // The fourth bit, moved to the sign, selects the half.
        let is_high = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(words));
        let picked = _mm256_castps_si256(_mm256_blendv_ps(of_low, of_high, is_high));
        // The bit itself is moved to the sign: shifted left by 31 minus its number within the word.
        let shifts = _mm256_andnot_si256(numbers, _mm256_set1_epi32(31));
        let signs = _mm256_castsi256_ps(_mm256_sllv_epi32(picked, shifts));
        _mm256_movemask_ps(signs) as u8
    }
}

/// Whether this build has the AVX-512 probe.
pub(super) const HAS_AVX512: bool = avx512::IS_BUILT;
pub(super) use avx512::all_set_avx512;

#[rustversion::since(1.89)]
#[allow(clippy::incompatible_msrv)] // Left out by older compilers.
mod avx512 {
    use std::arch::x86_64::{
        _mm256_mask_testn_epi32_mask, _mm256_permutex2var_epi32, _mm256_rolv_epi32, _mm256_set1_epi32,
        _mm256_srli_epi32,
    };

    use super::{LANES, Line, WORD_SHIFT, bit_numbers, halves, wanted};

    pub(super) const IS_BUILT: bool = true;

    #[target_feature(enable = "avx2,avx512f,avx512vl")]
    pub(in super::super) unsafe fn all_set_avx512(line: &Line, probe: u32, probes: u8) -> bool {
        // SAFETY: the caller found the features.
        let first = unsafe { clear_avx512(line, probe, 0, wanted(probes)) } == 0;
        if probes <= LANES {
            return first;
        }
        // SAFETY: as above.
        first && unsafe { clear_avx512(line, probe, 1, wanted(probes - LANES)) } == 0
    }

    /// The wanted bits, of eight, that are not set.
    #[inline]
    #[target_feature(enable = "avx2,avx512f,avx512vl")]
    unsafe fn clear_avx512(line: &Line, probe: u32, step: usize, wanted: u8) -> u8 {
        // SAFETY: the caller found the features.
        unsafe {
            let (low, high) = halves(line);
            let numbers = bit_numbers(probe, step);
            // The lowest four bits select among the sixteen words of both halves.
            let words = _mm256_permutex2var_epi32(low, _mm256_srli_epi32::<WORD_SHIFT>(numbers), high);
            // The rotation takes the number modulo 32 by itself.
            let bits = _mm256_rolv_epi32(_mm256_set1_epi32(1), numbers);
            _mm256_mask_testn_epi32_mask(wanted, words, bits)
        }
    }
}

/// For a compiler without AVX-512: never called, since `HAS_AVX512` is false.
#[rustversion::before(1.89)]
mod avx512 {
    pub(super) const IS_BUILT: bool = false;
    pub(in super::super) use super::all_set_avx2 as all_set_avx512;
}
