//! Tests of the operators: what they make of operands, and that combining them changes nothing.

use std::sync::Arc;

use super::builtin::{AddI64, AddU64, Append, Max, Min, NAMES, SetBit, named};
use super::*;
use crate::error::Cause;

fn folded(operator: &dyn MergeOperator, base: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
    operator.merge(b"k", base, operands).expect("the operands are valid")
}

/// Whether any two neighbouring parts, combined or not, give the same value.
fn check_combining(operator: &dyn MergeOperator, base: Option<&[u8]>, operands: &[&[u8]]) {
    let due = folded(operator, base, operands);
    for cut in 1..operands.len() {
        for next in cut + 1..=operands.len() {
            let part = operator.combine(b"k", &operands[cut - 1..next]).expect("valid").expect("combines");
            let mut fewer = operands[..cut - 1].to_vec();
            fewer.push(&part);
            fewer.extend_from_slice(&operands[next..]);
            assert_eq!(folded(operator, base, &fewer), due, "{}: {cut} to {next}", operator.name());
            let all = operator.combine(b"k", &fewer).expect("valid").expect("combines");
            assert_eq!(folded(operator, base, &[&all]), due, "{}: {cut} to {next}, all", operator.name());
        }
    }
}

#[test]
fn combined_operands_have_the_effect_of_all_in_turn() {
    let unsigned = [7u64, 1, u64::MAX - 5, 3].map(u64::to_le_bytes);
    let signed = [i64::MAX, 5, -9, i64::MIN, -3, 8, i64::MAX].map(i64::to_le_bytes);
    let bits = [3u32, 100, 3, 0].map(u32::to_le_bytes);
    let words: [&[u8]; 4] = [b"b", b"", b"abc", b"aa"];
    fn refs<const N: usize>(list: &[[u8; N]]) -> Vec<&[u8]> {
        list.iter().map(|bytes| &bytes[..]).collect()
    }
    for base in [None, Some(&5u64.to_le_bytes()[..])] {
        check_combining(&AddU64, base, &refs(&unsigned));
        check_combining(&AddI64, base, &refs(&signed));
        check_combining(&Max, base, &words);
        check_combining(&Min, base, &words);
        check_combining(&Append::separated_by(", "), base, &words);
        check_combining(&SetBit, base, &refs(&bits));
    }
}

#[test]
fn the_operators_do_what_their_names_say() {
    let number = |value: u64| value.to_le_bytes();
    assert_eq!(folded(&AddU64, None, &[&number(2), &number(3)]), number(5));
    assert_eq!(folded(&AddU64, Some(&number(u64::MAX - 1)), &[&number(3)]), number(u64::MAX));
    assert_eq!(folded(&AddI64, Some(&(-4i64).to_le_bytes()), &[&1i64.to_le_bytes()]), (-3i64).to_le_bytes());
    assert_eq!(folded(&Max, Some(b"b"), &[b"a", b"c"]), b"c");
    assert_eq!(folded(&Min, Some(b"b"), &[b"a", b"c"]), b"a");
    assert_eq!(folded(&Append::separated_by(","), None, &[b"x", b"y"]), b"x,y");
    assert_eq!(folded(&Append::separated_by(""), Some(b"x"), &[b"y"]), b"xy");
    assert_eq!(folded(&SetBit, Some(b"\x01"), &[&9u32.to_le_bytes()]), b"\x01\x02");
    for refused in [&AddU64 as &dyn MergeOperator, &AddI64, &SetBit] {
        assert!(refused.check(b"k", b"abc").is_err(), "{}", refused.name());
        assert!(refused.merge(b"k", None, &[b"abc", b"abc"]).is_err(), "{}", refused.name());
    }
    assert!(SetBit.check(b"k", &u32::MAX.to_le_bytes()).is_err(), "a value of half a gigabyte");
}

#[test]
fn a_recorded_name_is_enough_for_a_built_in_operator() {
    for name in NAMES {
        assert_eq!(named(name).map(|operator| operator.name().to_owned()).as_deref(), Some(name));
        assert!(Merging::recorded(name).is_given());
    }
    let append = Append::separated_by([0, b'\n']);
    assert_eq!(named(append.name()).expect("built in").name(), "shamba.append:000a");
    for other in ["counter", "shamba.append:2", "shamba.append:2C", "shamba.append", "shamba.append:+1"] {
        assert!(named(other).is_none(), "{other}");
    }
}

/// Fails on "bad", panics on "panic".
struct Fussy;

impl AssociativeMerge for Fussy {
    fn name(&self) -> &str {
        "fussy"
    }

    fn merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> MergeResult<Vec<u8>> {
        match newer {
            b"bad" => Err("no such thing".into()),
            b"panic" => panic!("at the operand"),
            _ => Ok([older, newer].concat()),
        }
    }
}

#[test]
fn an_operator_that_fails_is_named_with_the_key() {
    let merging = Merging::with(Arc::new(Fussy));
    assert_eq!(merging.fold(b"k", None, &[b"a", b"b"]).expect("it folds"), b"ab");
    let failures: [(&[u8], &str); 2] = [(b"bad", "no such thing"), (b"panic", "it panicked: at the operand")];
    for (operand, cause) in failures {
        let error = merging.fold(b"k\xff", Some(b"a"), &[operand]).expect_err("it fails");
        let text = error.to_string();
        assert!(matches!(error.cause(), Cause::File(shamba_env::FileError::Invalid(_))), "{text}");
        assert!(text.contains("\"fussy\"") && text.contains("k\\xff") && text.contains(cause), "{text}");
        assert_eq!(merging.combine(b"k", &[b"a", operand]), None);
    }
    let absent = Merging::recorded("fussy");
    let error = absent.fold(b"k", None, &[b"a"]).expect_err("it has no code");
    assert!(matches!(error.cause(), Cause::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("\"fussy\""), "{error}");
    assert_eq!(absent.combine(b"k", &[b"a", b"b"]), None);
    assert!(merging.check(b"k", &[0; shamba_key::MAX_OPERAND_BYTES + 1]).is_err());
}
